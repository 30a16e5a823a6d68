//! Credentials of the Basic scheme, RFC 7617 section 2.

use data_encoding::BASE64;

/// Name and password with the first colon between them, from the value of an `Authorization`
/// header; nothing if they are not there.
pub(crate) fn decode_basic(authorization: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = authorization.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = BASE64.decode(rest.trim_ascii()).ok()?;
    decoded.contains(&b':').then_some(decoded)
}

/// Parts what [`decode_basic`] gave.
pub(crate) fn name_and_password(credentials: &[u8]) -> (&[u8], &[u8]) {
    let colon = credentials.iter().position(|&byte| byte == b':');
    match colon {
        Some(at) => (&credentials[..at], &credentials[at + 1..]),
        None => (credentials, b""),
    }
}
