//! The sans-I/O client connection: framing, strictness, limits, any cut of the input.

use proptest::prelude::*;
use windlass::session::{Front, Input, Output};
use windlass_http::Method;
use windlass_http::client::{
    ClientConnection, ClientNext, ClientRequest, Flow, Pulled, ResponseFault, ResponseHead,
    ResponseLimits, ResponseSink, Reuse, UploadError,
};

/// Keeps all parts of a response.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    pauses: bool,
}

impl Parts {
    fn flow(&self) -> Flow {
        if self.pauses {
            Flow::Pause
        } else {
            Flow::Continue
        }
    }
}

impl ResponseSink for Parts {
    fn head(&mut self, head: &ResponseHead<'_>) -> Flow {
        assert_eq!(self.status, 0, "one head only");
        self.status = head.status().code();
        let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
        self.headers = head.headers().map(owned).collect();
        self.flow()
    }

    fn body(&mut self, piece: &[u8]) -> Flow {
        assert!(!piece.is_empty());
        self.body.extend_from_slice(piece);
        self.flow()
    }

    fn trailer(&mut self, name: &str, value: &[u8]) {
        self.trailers.push((name.to_owned(), value.to_vec()));
    }
}

type Answer = Result<(Parts, Reuse), ResponseFault>;

/// How the input is given.
#[derive(Clone, Copy)]
struct Cut {
    step: usize,
    pauses: bool,
}

/// Asks with `method`, and gives `wire` in pieces; with `ends` the peer closes after it.
fn ask(method: Method, wire: &[u8], ends: bool, limits: ResponseLimits, cut: Cut) -> Answer {
    let request = ClientRequest::new(method, "http://h/")
        .expect("valid")
        .prepare();
    let mut connection = ClientConnection::new(limits);
    connection.send(&request, &mut Output::default());
    let mut parts = Parts {
        pauses: cut.pauses,
        ..Parts::default()
    };
    let (mut at, mut given) = (0, 0);
    loop {
        let ended = ends && given == wire.len();
        let bytes = &wire[at..given];
        let progress = connection.advance(Input { bytes, ended }, &mut parts)?;
        at += progress.consumed;
        match progress.next {
            ClientNext::Done(reuse) => {
                parts.pauses = false;
                return Ok((parts, reuse));
            }
            ClientNext::Paused => {}
            ClientNext::Read if given < wire.len() => given = (given + cut.step).min(wire.len()),
            ClientNext::Read => {
                assert!(!ended, "the end is not waited for");
                panic!("incomplete: {}", wire.escape_ascii());
            }
            ClientNext::Tunnel => {
                parts.pauses = false;
                parts.body.extend_from_slice(&wire[at..]);
                return Ok((parts, Reuse::Close));
            }
        }
    }
}

fn ask_all_ways(method: Method, wire: &[u8], ends: bool, limits: ResponseLimits) -> Answer {
    let whole = Cut {
        step: wire.len().max(1),
        pauses: false,
    };
    let expected = ask(method, wire, ends, limits, whole);
    for step in 1..=wire.len().min(64) {
        for pauses in [false, true] {
            let mut got = ask(method, wire, ends, limits, Cut { step, pauses });
            // Bytes behind the response are noticed only if they are there when it ends.
            if let (Ok((_, got)), Ok((_, expected))) = (&mut got, &expected) {
                assert!(*got == *expected || *got == Reuse::Keep);
                *got = *expected;
            }
            assert_eq!(got, expected, "{step}: {}", wire.escape_ascii());
        }
    }
    expected
}

fn get(wire: &str) -> Answer {
    ask_all_ways(
        Method::Get,
        wire.as_bytes(),
        true,
        ResponseLimits::default(),
    )
}

/// The answer if the connection stays open.
fn get_open(wire: &str) -> (Parts, Reuse) {
    let limits = ResponseLimits::default();
    ask_all_ways(Method::Get, wire.as_bytes(), false, limits).expect(wire)
}

#[test]
fn length_chunks_and_close_delimit_a_body() {
    let (parts, reuse) = get_open("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nA: b\r\n\r\nabc");
    assert_eq!(
        (parts.status, &*parts.body, reuse),
        (200, &b"abc"[..], Reuse::Keep)
    );
    assert_eq!(parts.headers[1], ("A".to_owned(), b"b".to_vec()));

    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n\
                   3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1 \r\nU: 2\r\n\r\n";
    let (parts, reuse) = get_open(chunked);
    assert_eq!((&*parts.body, reuse), (&b"abcde"[..], Reuse::Keep));
    let trailers = [
        ("T".to_owned(), b"1".to_vec()),
        ("U".to_owned(), b"2".to_vec()),
    ];
    assert_eq!(parts.trailers, trailers);
    assert_eq!(parts.headers.len(), 1, "trailers are no headers");

    let (parts, reuse) = get("HTTP/1.1 200 OK\r\n\r\nall of it").expect("ends with the close");
    assert_eq!((&*parts.body, reuse), (&b"all of it"[..], Reuse::Close));
}

#[test]
fn some_responses_have_no_body_whatever_they_say() {
    for status in ["204 No Content", "304 Not Modified"] {
        let (parts, reuse) = get_open(&format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n"));
        assert_eq!((parts.body.len(), reuse), (0, Reuse::Keep));
    }
    let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let limits = ResponseLimits::default();
    let (parts, reuse) = ask_all_ways(Method::Head, wire, false, limits).expect("HEAD");
    assert_eq!((parts.body.len(), reuse), (0, Reuse::Keep));
    let tunnel = b"HTTP/1.1 200 OK\r\n\r\n";
    let (parts, _) = ask_all_ways(Method::Connect, tunnel, false, limits).expect("CONNECT");
    assert_eq!(parts.status, 200);
    let refused = b"HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx";
    let (parts, _) = ask_all_ways(Method::Connect, refused, false, limits).expect("CONNECT");
    assert_eq!(parts.body, b"x");
}

#[test]
fn version_and_connection_header_rule_reuse() {
    for (head, expected) in [
        ("HTTP/1.1 200 OK\r\n", Reuse::Keep),
        ("HTTP/1.1 200\r\n", Reuse::Keep),
        ("HTTP/1.1 200 OK\r\nConnection: Close\r\n", Reuse::Close),
        ("HTTP/1.1 200 OK\r\nConnection: x, close\r\n", Reuse::Close),
        ("HTTP/1.0 200 OK\r\n", Reuse::Close),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", Reuse::Keep),
        (
            "HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\n",
            Reuse::Close,
        ),
    ] {
        let (_, reuse) = get_open(&format!("{head}Content-Length: 0\r\n\r\n"));
        assert_eq!(reuse, expected, "{head}");
    }
}

#[test]
fn interim_responses_are_skipped_up_to_a_limit() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let (parts, reuse) = get_open(&format!("{}{last}", interim.repeat(16)));
    assert_eq!(
        (parts.status, parts.headers.len(), reuse),
        (200, 1, Reuse::Keep)
    );
    let flood = get(&format!("{}{last}", interim.repeat(17)));
    assert_eq!(flood.err(), Some(ResponseFault::TooManyInterim));
    let upgrade = get("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n");
    assert_eq!(upgrade.err(), Some(ResponseFault::Upgrade));
}

#[test]
fn pf26_framing_that_is_not_clear_is_a_fault() {
    for (headers, fault) in [
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            ResponseFault::ConflictingLengths,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 1",
            ResponseFault::ConflictingLengths,
        ),
        (
            "Content-Length: 1\r\nContent-Length: 1",
            ResponseFault::ContentLength,
        ),
        ("Content-Length: 1, 1", ResponseFault::ContentLength),
        ("Content-Length: +1", ResponseFault::ContentLength),
        ("Content-Length: -1", ResponseFault::ContentLength),
        ("Content-Length:", ResponseFault::ContentLength),
        (
            "Content-Length: 18446744073709551616",
            ResponseFault::ContentLength,
        ),
        ("Transfer-Encoding: gzip", ResponseFault::TransferEncoding),
        (
            "Transfer-Encoding: gzip, chunked",
            ResponseFault::TransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked, chunked",
            ResponseFault::TransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            ResponseFault::TransferEncoding,
        ),
    ] {
        let answer = get(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\na"));
        assert_eq!(answer.err(), Some(fault), "{headers}");
    }
    let old = get("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(old.err(), Some(ResponseFault::TransferEncoding));
}

#[test]
fn heads_that_break_the_grammar_are_faults() {
    for (wire, fault) in [
        ("GET / HTTP/1.1\r\n\r\n", ResponseFault::NotHttp),
        ("\x15\x03\x01", ResponseFault::NotHttp),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", ResponseFault::NotHttp),
        ("HTTP/2.0 200 OK\r\n\r\n", ResponseFault::NotHttp),
        ("HTTP/1.2 200 OK\r\n\r\n", ResponseFault::NotHttp),
        ("HTTP/1.1  200 OK\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 20 OK\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 2000 OK\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 099 OK\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 600 OK\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 200 O\0K\r\n\r\n", ResponseFault::Status),
        ("HTTP/1.1 200 OK\nA: b\r\n\r\n", ResponseFault::LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", ResponseFault::LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\n", ResponseFault::LineEnd),
        (
            "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
            ResponseFault::HeaderValue,
        ),
        (
            "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
            ResponseFault::HeaderValue,
        ),
        (
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            ResponseFault::HeaderName,
        ),
        (
            "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
            ResponseFault::HeaderName,
        ),
        (
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            ResponseFault::HeaderName,
        ),
        ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", ResponseFault::HeaderName),
        ("HTTP/1.1 200 OK\r\nA\r\n\r\n", ResponseFault::HeaderName),
    ] {
        assert_eq!(get(wire).err(), Some(fault), "{wire:?}");
    }
}

#[test]
fn a_response_that_is_cut_short_is_told_from_one_that_never_came() {
    assert_eq!(get("").err(), Some(ResponseFault::Closed));
    for wire in [
        "H",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n",
    ] {
        assert_eq!(get(wire).err(), Some(ResponseFault::Truncated), "{wire:?}");
    }
}

#[test]
fn pf27_and_pf29_bad_chunks_and_trailers_are_faults() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "10000000000000000\r\na",
        "-1\r\na",
        "1\na",
        "1\r\nab\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\nA: b\n\r\n",
    ] {
        assert_eq!(
            get(&format!("{head}{body}")).err(),
            Some(ResponseFault::Body),
            "{body:?}"
        );
    }
}

#[test]
fn limits_are_kept() {
    let mut limits = ResponseLimits::default();
    limits.head_bytes = 64;
    limits.header_count = 2;
    limits.body_bytes = 4;
    let fault = |wire: String| ask_all_ways(Method::Get, wire.as_bytes(), true, limits).err();
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    let long = "x".repeat(100);
    let too_large = Some(ResponseFault::HeadTooLarge { limit_bytes: 64 });
    assert_eq!(fault(head(&format!("A: {long}\r\n\r\n"))), too_large);
    let many = "A:b\r\nA:b\r\nA:b\r\n\r\n";
    assert_eq!(fault(head(many)), Some(ResponseFault::TooManyHeaders));
    let body = Some(ResponseFault::BodyTooLarge { limit_bytes: 4 });
    assert_eq!(fault(head("Content-Length: 5\r\n\r\nabcde")), body);
    assert_eq!(fault(head("\r\nabcde")), body);
    assert_eq!(
        fault(head("Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")),
        body
    );
    assert_eq!(fault(head("Content-Length: 4\r\n\r\nabcd")), None);
    let trailers = format!("Transfer-Encoding: chunked\r\n\r\n0\r\nA: {long}\r\n\r\n");
    assert_eq!(fault(head(&trailers)), Some(ResponseFault::Body));
}

#[test]
fn bytes_behind_a_response_end_the_connection() {
    let wire = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n";
    let whole = Cut {
        step: wire.len(),
        pauses: false,
    };
    let limits = ResponseLimits::default();
    let answer = ask(Method::Get, wire.as_bytes(), false, limits, whole);
    assert_eq!(answer.map(|(_, reuse)| reuse), Ok(Reuse::Close));

    let mut idle = ClientConnection::new(limits);
    let bytes = &b"HTTP/1.1 408 Request Timeout\r\n\r\n"[..];
    let input = Input {
        bytes,
        ended: false,
    };
    for _ in 0..2 {
        let answer = idle.advance(input, &mut ());
        assert_eq!(answer, Err(ResponseFault::Unsolicited), "a fault stays");
    }
}

fn sent(output: &mut Output) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(Front::Bytes(front)) = output.front() {
        bytes.extend_from_slice(front);
        let len = front.len() as u64;
        output.advance(len);
    }
    bytes
}

#[test]
fn a_streamed_body_is_sent_in_chunks_or_to_its_length() {
    let source = |_: &mut Vec<u8>| Ok(Pulled::End);
    let post = || ClientRequest::post("http://h/").expect("valid");
    let mut output = Output::default();
    let mut chunked = ClientConnection::new(ResponseLimits::default());
    chunked.send(&post().body_stream(source, None).prepare(), &mut output);
    chunked
        .push_body(b"0123456789abcdef", &mut output)
        .expect("open");
    chunked.push_body(b"", &mut output).expect("no end");
    chunked.push_body(b"x", &mut output).expect("open");
    chunked.end_body(&mut output).expect("open");
    assert_eq!(
        chunked.push_body(b"x", &mut output),
        Err(UploadError::NoBody)
    );
    assert_eq!(chunked.end_body(&mut output), Err(UploadError::NoBody));
    let wire = sent(&mut output);
    assert!(wire.ends_with(b"\r\n\r\n10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\n\r\n"));

    let mut sized = ClientConnection::new(ResponseLimits::default());
    sized.send(&post().body_stream(source, Some(3)).prepare(), &mut output);
    assert_eq!(
        sized.push_body(b"abcd", &mut output),
        Err(UploadError::TooLong)
    );
    sized.push_body(b"ab", &mut output).expect("fits");
    assert_eq!(sized.end_body(&mut output), Err(UploadError::TooShort));
    sized.push_body(b"c", &mut output).expect("fits");
    sized.end_body(&mut output).expect("complete");
    assert!(sent(&mut output).ends_with(b"\r\n\r\nabc"));
}

#[test]
fn an_answer_before_the_body_was_sent_ends_the_connection() {
    let source = |_: &mut Vec<u8>| Ok(Pulled::End);
    let request = ClientRequest::post("http://h/").expect("valid");
    let mut connection = ClientConnection::new(ResponseLimits::default());
    connection.send(
        &request.body_stream(source, None).prepare(),
        &mut Output::default(),
    );
    let bytes = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n";
    let input = Input {
        bytes,
        ended: false,
    };
    let progress = connection.advance(input, &mut ()).expect("a response");
    assert_eq!(progress.next, ClientNext::Done(Reuse::Close));
    assert!(!connection.is_idle());
}

#[test]
#[should_panic(expected = "not idle")]
fn a_second_request_before_the_response_is_a_broken_rule() {
    let request = ClientRequest::get("http://h/").expect("valid").prepare();
    let mut connection = ClientConnection::new(ResponseLimits::default());
    connection.send(&request, &mut Output::default());
    connection.send(&request, &mut Output::default());
}

proptest! {
    #[test]
    fn any_bytes_in_any_cut_give_the_same_answer(
        start in prop_oneof![
            Just(&b"HTTP/1.1 200 OK\r\n"[..]),
            Just(&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..]),
            Just(&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"[..]),
            Just(&b""[..]),
        ],
        rest in proptest::collection::vec(
            prop_oneof![
                Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b':'), Just(b'A'), Just(b' '),
                any::<u8>(),
            ],
            0..40,
        ),
    ) {
        let wire = [start, &rest].concat();
        let _ = ask_all_ways(Method::Get, &wire, true, ResponseLimits::default());
    }

    #[test]
    fn any_chunked_body_comes_back(pieces in proptest::collection::vec("[a-z]{1,30}", 0..5)) {
        let mut wire = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        for piece in &pieces {
            wire += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        let (parts, reuse) = get_open(&(wire + "0\r\n\r\n"));
        prop_assert_eq!((parts.body, reuse), (pieces.concat().into_bytes(), Reuse::Keep));
    }
}
