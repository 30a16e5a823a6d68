//! Byte classes of RFC 9110 and RFC 9112, and the checks built on them.

use std::net::Ipv6Addr;

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const HOST: u8 = 4;
const TARGET: u8 = 8;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let mut class = 0;
        let word = b.is_ascii_alphanumeric();
        // tchar, RFC 9110 section 5.6.2.
        if word
            || matches!(
                b,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
            )
            || matches!(b, b'`' | b'|' | b'~')
        {
            class |= TOKEN;
        }
        // field-vchar, SP and HTAB, RFC 9110 section 5.5.
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            class |= VALUE;
        }
        // unreserved, sub-delims and pct-encoded, RFC 3986 section 3.2.2.
        if word
            || matches!(
                b,
                b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\''
            )
            || matches!(b, b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
        {
            class |= HOST;
        }
        // Printable ASCII but the fragment mark. RFC 3986 forbids some more, which browsers send.
        if b.is_ascii_graphic() && b != b'#' {
            class |= TARGET;
        }
        table[byte] = class;
        byte += 1;
    }
    table
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|b| CLASSES[usize::from(*b)] & class != 0)
}

/// Whether `byte` may be in a token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

/// Whether `bytes` is a token (RFC 9110 section 5.6.2): a header name, a method.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Whether each byte may be in a header value (RFC 9110 section 5.5).
pub(crate) fn is_value_bytes(bytes: &[u8]) -> bool {
    all(bytes, VALUE)
}

/// Whether `bytes` is a header value: as [`is_value_bytes`], no blank at either end.
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    let blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    is_value_bytes(bytes) && !blank(bytes.first()) && !blank(bytes.last())
}

/// Where the query mark of a request target is, or its end; nothing if a byte of it may not be in
/// a target.
pub(crate) fn scan_target(bytes: &[u8]) -> Option<usize> {
    let query_at = bytes
        .iter()
        .position(|b| *b == b'?' || CLASSES[usize::from(*b)] & TARGET == 0);
    match query_at {
        None => Some(bytes.len()),
        Some(at) => all(&bytes[at..], TARGET).then_some(at),
    }
}

/// The length of the target at the start of `bytes`, if it begins with a slash and a blank follows,
/// and where its query mark is, or its end.
#[inline]
pub(crate) fn scan_origin_form(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.first() != Some(&b'/') {
        return None;
    }
    let path_end = bytes
        .iter()
        .position(|b| *b == b'?' || CLASSES[usize::from(*b)] & TARGET == 0)?;
    let len = if bytes[path_end] == b'?' {
        let query = bytes[path_end..]
            .iter()
            .position(|b| CLASSES[usize::from(*b)] & TARGET == 0);
        path_end + query?
    } else {
        path_end
    };
    (bytes[len] == b' ').then_some((len, path_end))
}

/// Whether `bytes` is a host with an optional port (RFC 9110 section 7.2, RFC 3986 section 3.2.2),
/// as http and https need it: not empty, without user information.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    if let Some(rest) = bytes.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', rest) else {
            return false;
        };
        let (literal, port) = (&rest[..end], &rest[end + 1..]);
        let literal = str::from_utf8(literal).unwrap_or_default();
        return literal.parse::<Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port));
    }
    let host_end = bytes
        .iter()
        .position(|b| CLASSES[usize::from(*b)] & HOST == 0)
        .unwrap_or(bytes.len());
    let (host, port) = bytes.split_at(host_end);
    !host.is_empty()
        && has_whole_escapes(host)
        && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// Whether each percent sign is followed by two hexadecimal digits (RFC 3986 section 2.1).
fn has_whole_escapes(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'%', bytes).all(|at| {
        bytes
            .get(at + 1..at + 3)
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Whether `bytes` is a host with a port, as CONNECT needs it (RFC 9110 section 9.3.6).
pub(crate) fn is_authority_with_port(bytes: &[u8]) -> bool {
    is_authority(bytes) && bytes.last().is_some_and(u8::is_ascii_digit) && {
        let port_at = memchr::memrchr(b':', bytes);
        port_at.is_some_and(|at| bytes[at + 1..].iter().all(u8::is_ascii_digit))
    }
}

/// A port: digits, 65535 at most. None at all is allowed (RFC 3986 section 3.2.3).
fn is_port(bytes: &[u8]) -> bool {
    bytes.is_empty() || parse_decimal(bytes).is_some_and(|port| port <= 65535)
}

/// A number of digits only, if it fits.
pub(crate) fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Without blanks (SP and HTAB) at both ends.
pub(crate) fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list, trimmed, empty ones left out (RFC 9110 section 5.6.1).
pub(crate) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|b| *b == b',')
        .map(trim_blanks)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_not_empty_and_has_no_separators() {
        assert!(is_token(b"X-Test_1") && !is_token(b""));
        for bad in b" \t\r\n\0:;,()<>@\\\"/[]?={}\x7f\x80" {
            assert!(!is_token(&[b'a', *bad]), "{bad:#x}");
        }
    }

    #[test]
    fn value_has_no_control_bytes_and_no_blanks_around() {
        assert!(is_value(b"") && is_value(b"a\tb \xff"));
        for bad in [&b"a\0"[..], b"a\rb", b"a\nb", b"\x7f", b" a", b"a\t"] {
            assert!(!is_value(bad), "{bad:?}");
        }
    }

    #[test]
    fn authority_is_checked_by_its_grammar() {
        for good in [
            "a",
            "a:",
            "a:80",
            "a.b-c:65535",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:8080",
            "%61%2e",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "", ":80", "a:b", "a:65536", "a b", "u@h", "a/b", "[::1", "[x]", "[::1]80", "a:1:2",
            "a%", "a%2", "a%zz",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn authority_of_connect_has_a_port() {
        for good in ["a:1", "127.0.0.1:443", "[::1]:65535"] {
            assert!(is_authority_with_port(good.as_bytes()), "{good}");
        }
        for bad in ["", "a", "a1", "a:", "[::1]", "[::1]:", ":1", "a:65536"] {
            assert!(!is_authority_with_port(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn decimal_is_checked() {
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"18446744073709551616",
            b"+1",
            b"-1",
            b"1 ",
            b"0x1",
            b"1_0",
        ] {
            assert_eq!(parse_decimal(bad), None, "{bad:?}");
        }
    }
}
