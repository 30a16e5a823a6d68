//! Clear-text HTTP on the TLS port: told from a handshake by its first bytes.

/// What the first bytes of a connection look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// An HTTP request without TLS.
    PlainHttp,
    /// TLS, or something that the TLS layer shall refuse.
    Tls,
    /// More bytes are needed.
    Unclear,
}

/// The methods of RFC 9110 section 9 and RFC 5789, and the preface of HTTP/2 (RFC 9113
/// section 3.4). None begins like a TLS record, whose first byte is 22.
const BEGINNINGS: [&[u8]; 10] = [
    b"CONNECT ",
    b"DELETE ",
    b"GET ",
    b"HEAD ",
    b"OPTIONS ",
    b"PATCH ",
    b"POST ",
    b"PRI ",
    b"PUT ",
    b"TRACE ",
];

/// Judges the first bytes of a connection.
pub(crate) fn judge(bytes: &[u8]) -> Opening {
    if BEGINNINGS.iter().any(|start| bytes.starts_with(start)) {
        Opening::PlainHttp
    } else if BEGINNINGS.iter().any(|start| start.starts_with(bytes)) {
        Opening::Unclear
    } else {
        Opening::Tls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_told_from_a_record_at_every_length() {
        let request = b"GET / HTTP/1.1\r\n";
        for len in 0..request.len() {
            let expected = if len < 4 {
                Opening::Unclear
            } else {
                Opening::PlainHttp
            };
            assert_eq!(judge(&request[..len]), expected, "{len}");
        }
        for other in [
            &b"\x16\x03\x01"[..],
            b"GOT",
            b"get ",
            b"\x80\x2e\x01",
            b"PUTS ",
        ] {
            assert_eq!(judge(other), Opening::Tls, "{other:?}");
        }
    }
}
