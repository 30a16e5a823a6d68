use proptest::prelude::*;

use super::*;

/// Decodes input that arrives in `cuts` pieces; answers the data and what was left over.
fn decode_all(framing: Framing, input: &[u8], step: usize) -> Result<(Vec<u8>, usize), BadBody> {
    let mut decoder = BodyDecoder::new(framing, 64);
    let (mut data, mut at, mut given) = (Vec::new(), 0, 0);
    loop {
        let decoded = decoder.decode(&input[at..given])?;
        at += decoded.consumed;
        data.extend_from_slice(decoded.data);
        if decoded.done {
            return Ok((data, at));
        }
        if decoded.consumed == 0 {
            if given == input.len() {
                return Ok((data, usize::MAX));
            }
            given = (given + step).min(input.len());
        }
    }
}

fn chunked(input: &[u8]) -> Result<(Vec<u8>, usize), BadBody> {
    let whole = decode_all(Framing::Chunked, input, input.len());
    assert_eq!(
        whole,
        decode_all(Framing::Chunked, input, 1),
        "{:?}",
        input.escape_ascii()
    );
    whole
}

#[test]
fn length_framed_body_ends_after_its_length() {
    assert_eq!(
        decode_all(Framing::Length(3), b"abcGET", 1),
        Ok((b"abc".to_vec(), 3))
    );
    assert_eq!(decode_all(Framing::Length(0), b"GET", 1), Ok((vec![], 0)));
}

#[test]
fn chunks_extensions_and_trailers_are_parsed() {
    assert_eq!(
        chunked(b"3\r\nabc\r\n0\r\n\r\nGET"),
        Ok((b"abc".to_vec(), 13))
    );
    assert_eq!(
        chunked(b"3;a=\"b;c\"\r\nabc\r\n00\r\nA: b\r\n\r\n").map(|r| r.0),
        Ok(b"abc".to_vec())
    );
    assert_eq!(
        chunked(b"3;a;b=c;d=\"\";e=\"\\\"\t\xff\"\r\nabc\r\n0;x\r\n\r\n").map(|r| r.0),
        Ok(b"abc".to_vec())
    );
    assert_eq!(chunked(b"1\r\na\r\n").map(|r| r.1), Ok(usize::MAX));
}

#[test]
fn pf27_chunk_sizes_are_checked() {
    let zeros = "0".repeat(1000);
    for size in [
        "10000000000000000",
        "fffffffffffffffff",
        zeros.as_str(),
        "",
        "-1",
        "+1",
        "0x1",
    ] {
        assert_eq!(
            chunked(format!("{size}\r\na\r\n").as_bytes()),
            Err(BadBody),
            "{size}"
        );
    }
    for size in [
        "7fffffff",
        "80000000",
        "ffffffff",
        "7fffffffffffffff",
        "ffffffffffffffff",
    ] {
        let (data, end) = chunked(format!("{size}\r\na\r\n0\r\n\r\n").as_bytes()).expect(size);
        assert_eq!((data.len(), end), (8, usize::MAX), "all is data: {size}");
    }
}

#[test]
fn pf26_chunk_grammar_is_strict() {
    for bad in [
        &b"1\na\r\n0\r\n\r\n"[..],
        b"1\r\na\n0\r\n\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"1 \r\na\r\n0\r\n\r\n",
        b" 1\r\na\r\n",
        b"1;a\nb\r\na\r\n",
        b"1;a\0b\r\na\r\n",
        b"1\r\r\na",
        b"1;\r\na\r\n",
        b"1;;a\r\na\r\n",
        b"1;a=\r\na\r\n",
        b"1;a=b=c\r\na\r\n",
        b"1;a=\"b\r\na\r\n",
        b"1;a=\"b\\\r\na\r\n",
        b"1;a=\"b\"c\r\na\r\n",
        b"1;a b\r\na\r\n",
        b"1 ;a\r\na\r\n",
        b"1; a\r\na\r\n",
        b"1;a=b,c\r\na\r\n",
        b"g\r\n",
        b"\r\n",
    ] {
        assert_eq!(chunked(bad), Err(BadBody), "{}", bad.escape_ascii());
    }
}

#[test]
fn pf29_trailers_are_checked_and_bounded() {
    for bad in [
        "A : b\r\n\r\n",
        " A: b\r\n\r\n",
        "A: b\n\r\n",
        "A\r\n\r\n",
        "A: \0\r\n\r\n",
        "\n",
    ] {
        assert_eq!(
            chunked(format!("0\r\n{bad}").as_bytes()),
            Err(BadBody),
            "{bad:?}"
        );
    }
    let long = format!("0\r\nA: {}", "b".repeat(100));
    assert_eq!(chunked(long.as_bytes()), Err(BadBody));
    let many = format!("0\r\n{}\r\n", "A: b\r\n".repeat(20));
    assert_eq!(chunked(many.as_bytes()), Err(BadBody));
    let extension = format!("1;{}\r\na", "x".repeat(100));
    assert_eq!(chunked(extension.as_bytes()), Err(BadBody));
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_result(
        input in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b';'), Just(b':'), any::<u8>()],
            0..60,
        ),
    ) {
        let _ = chunked(&input);
    }

    #[test]
    fn encoded_data_is_decoded(pieces in proptest::collection::vec("[a-z]{1,20}", 0..6)) {
        let mut wire = String::new();
        for piece in &pieces {
            wire += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        wire += "0\r\n\r\n";
        prop_assert_eq!(chunked(wire.as_bytes()), Ok((pieces.concat().into_bytes(), wire.len())));
    }
}
