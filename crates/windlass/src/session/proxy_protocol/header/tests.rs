//! The parser at every cut, and what it refuses.

use proptest::prelude::*;

use super::*;

fn complete(bytes: &[u8]) -> (ProxyHeader, usize) {
    match parse_proxy_header(bytes) {
        Ok(ProxyParse::Complete { header, len }) => (header, len),
        other => panic!("{other:?}"),
    }
}

fn client(addr: &str) -> ProxyHeader {
    ProxyHeader::Client(addr.parse().unwrap())
}

/// A header of version 2.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &len, rest].concat()
}

/// From 192.0.2.1:4711 to 192.0.2.2:443.
const V4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x67, 0x01, 0xbb];

fn v6() -> Vec<u8> {
    let mut block = vec![0; 36];
    block[..2].copy_from_slice(&[0x20, 0x01]);
    block[15] = 9;
    block[32..34].copy_from_slice(&443_u16.to_be_bytes());
    block
}

/// With a checksum field and a field of an unknown type.
fn with_checksum() -> Vec<u8> {
    let fields = [
        &V4[..],
        &[0xe0, 0, 2, 7, 7],
        &[CHECKSUM_TYPE, 0, 4, 0, 0, 0, 0],
    ]
    .concat();
    let mut header = binary(0x21, 0x11, &fields);
    let sum = !crc32c(!0, &header);
    let at = header.len() - 4;
    header[at..].copy_from_slice(&sum.to_be_bytes());
    header
}

fn good() -> Vec<(Vec<u8>, ProxyHeader)> {
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(91));
    assert_eq!(longest.len(), PROXY_LINE_BYTES_MAX);
    vec![
        (
            b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\r\n".to_vec(),
            client("192.0.2.1:4711"),
        ),
        (
            b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n".to_vec(),
            client("0.0.0.0:0"),
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 65535 1\r\n".to_vec(),
            client("[2001:db8::1]:65535"),
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), ProxyHeader::Local),
        (longest.into_bytes(), ProxyHeader::Local),
        (binary(0x21, 0x11, &V4), client("192.0.2.1:4711")),
        (binary(0x21, 0x12, &V4), client("192.0.2.1:4711")),
        (binary(0x21, 0x21, &v6()), client("[2001::9]:443")),
        (
            binary(0x21, 0x31, &[b'x'; 216]),
            ProxyHeader::ClientWithoutAddress,
        ),
        (binary(0x21, 0x00, b"skipped"), ProxyHeader::Local),
        (binary(0x20, 0x00, b""), ProxyHeader::Local),
        (binary(0x20, 0x11, b"short"), ProxyHeader::Local),
        (binary(0x20, 0xff, &V4), ProxyHeader::Local),
        (
            binary(0x21, 0x11, &[&V4[..], &[0xe0, 0, 0]].concat()),
            client("192.0.2.1:4711"),
        ),
        (with_checksum(), client("192.0.2.1:4711")),
    ]
}

#[test]
fn headers_are_understood_at_every_cut() {
    for (bytes, expected) in good() {
        for cut in 0..bytes.len() {
            let parsed = parse_proxy_header(&bytes[..cut]);
            assert_eq!(parsed, Ok(ProxyParse::Partial), "{cut} of {bytes:?}");
        }
        assert_eq!(complete(&bytes), (expected, bytes.len()));
        let followed = [&bytes[..], b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(complete(&followed), (expected, bytes.len()));
    }
}

#[test]
fn malformed_lines_are_refused() {
    use ProxyHeaderError::{AddressText, Line, Signature, TooLong};
    let long = format!("PROXY UNKNOWN {}", "f".repeat(100));
    for (line, expected) in [
        ("GET / HTTP/1.1\r\n", Signature),
        ("proxy TCP4 1.1.1.1 1.1.1.1 1 1\r\n", Signature),
        ("PROXY\r\n", Signature),
        ("PROXY \r\n", Line),
        ("PROXY TCP5 1.1.1.1 1.1.1.1 1 1\r\n", Line),
        ("PROXY tcp4 1.1.1.1 1.1.1.1 1 1\r\n", Line),
        ("PROXY UNKNOWNX\r\n", Line),
        ("PROXY TCP4\r\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1 \r\n", Line),
        ("PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n", Line),
        ("PROXY TCP4 1.1.1.1\t1.1.1.1 1 1\r\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\rX\n", Line),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 \u{fc}\r\n", Line),
        ("PROXY TCP4 1.1.1.01 1.1.1.1 1 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.256 1.1.1.1 1 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1 1.1.1.1 1 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.1 ::1 1 1\r\n", AddressText),
        ("PROXY TCP6 1.1.1.1 ::1 1 1\r\n", AddressText),
        ("PROXY TCP6 ::1 fe80::1%eth0 1 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 01 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 +1 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n", AddressText),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 -1\r\n", AddressText),
        (&*long, TooLong),
    ] {
        assert_eq!(
            parse_proxy_header(line.as_bytes()),
            Err(expected),
            "{line:?}"
        );
    }
}

#[test]
fn malformed_binary_headers_are_refused() {
    use ProxyHeaderError::{AddressBlock, Checksum, Command, Family, Fields, TooLong, Version};
    let mut wrong_sum = with_checksum();
    wrong_sum[16] ^= 1;
    let twice = [&V4[..], &[3, 0, 4, 0, 0, 0, 0], &[3, 0, 4, 0, 0, 0, 0]].concat();
    for (bytes, expected) in [
        (binary(0x11, 0x11, &V4), Version),
        (binary(0x31, 0x11, &V4), Version),
        (binary(0x22, 0x11, &V4), Command),
        (binary(0x21, 0x13, &V4), Family),
        (binary(0x21, 0x41, &V4), Family),
        (binary(0x21, 0x11, &V4[..11]), AddressBlock),
        (binary(0x21, 0x21, &V4), AddressBlock),
        (binary(0x21, 0x31, &[0; 215]), AddressBlock),
        (binary(0x21, 0x11, &[&V4[..], &[1]].concat()), Fields),
        (binary(0x21, 0x11, &[&V4[..], &[1, 0, 1]].concat()), Fields),
        (
            binary(0x21, 0x11, &[&V4[..], &[3, 0, 3, 0, 0, 0]].concat()),
            Fields,
        ),
        (binary(0x21, 0x11, &twice), Fields),
        (wrong_sum, Checksum),
        (binary(0x21, 0x11, &[0; 5000])[..16].to_vec(), TooLong),
    ] {
        assert_eq!(parse_proxy_header(&bytes), Err(expected), "{bytes:?}");
    }
}

#[test]
fn checksum_is_that_of_the_standard() {
    // RFC 3720 appendix B.4.
    assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
    assert_eq!(!crc32c(!0, &[0xff; 32]), 0x62a8_ab43);
    assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
}

proptest! {
    /// More bytes never change what was understood, and never heal what was refused.
    #[test]
    fn answers_are_final(
        start in prop::sample::select(vec![b"PROXY ".to_vec(), b"PROXY TCP4 1.2.".to_vec(), SIGNATURE.to_vec(), Vec::new()]),
        noise in prop::collection::vec(any::<u8>(), 0..400),
        cut in 0_usize..400,
    ) {
        let bytes = [start, noise].concat();
        let cut = cut.min(bytes.len());
        match parse_proxy_header(&bytes[..cut]) {
            Ok(ProxyParse::Partial) => {}
            answer => prop_assert_eq!(parse_proxy_header(&bytes), answer),
        }
        if let Ok(ProxyParse::Complete { len, .. }) = parse_proxy_header(&bytes) {
            prop_assert!(len <= bytes.len() && len <= PROXY_HEADER_BYTES_MAX);
        }
    }

    /// One flipped bit in a good header is refused, or says something, but does no harm.
    #[test]
    fn damage_does_no_harm(which in 0_usize..15, at in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let (mut bytes, _) = good().swap_remove(which);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        // Any answer will do.
        let _ = parse_proxy_header(&bytes);
    }
}
