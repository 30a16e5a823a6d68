//! Requests that keep to the rules: answers, bodies, order, persistence.

mod common;

use common::{Connection, answers, open, talk, test_service};
use proptest::prelude::*;
use windlass_http::{Request, Responder, Response, Status};

const GET: &[u8] = b"GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn fixed_answer_has_exactly_this_form() {
    let mut connection = Connection::open(&test_service());
    connection.feed(GET);
    let expected = format!(
        "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/plain\r\n\
         Content-Length: 64\r\n\r\n{}",
        "x".repeat(64)
    );
    assert_eq!(connection.text(), expected);
    assert!(!connection.closed);
}

#[test]
fn debugging_a_request_shows_no_header() {
    let (shown, see) = std::sync::mpsc::channel();
    let shown = std::sync::Mutex::new(shown);
    let mut connection = open(move |request: &Request<'_>, response: Responder<'_>| {
        let text = format!("{request:?}");
        shown
            .lock()
            .expect("no panic")
            .send(text)
            .expect("the test looks");
        Ok(response.respond(Response::new(Status::NO_CONTENT)))
    });
    // The third time the header section is known.
    for _ in 0..3 {
        connection.feed(b"GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: Basic c2VjcmV0\r\n\r\n");
        let text = see.recv().expect("the handler was called");
        assert!(text.contains("/a"), "{text}");
        assert!(
            !text.contains("c2VjcmV0") && !text.contains("99, 50, 86"),
            "{text}"
        );
    }
}

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    let mut connection = Connection::open(&test_service());
    let mut input = Vec::new();
    for number in 0..1000 {
        let path = if number % 1000 == 7 {
            format!("/job?{number}")
        } else {
            format!("/{number}")
        };
        input.extend_from_slice(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    }
    connection.feed(&input);
    let bodies: Vec<_> = answers(&connection.sent)
        .into_iter()
        .map(|a| a.body)
        .collect();
    assert_eq!(bodies.len(), 1000);
    for (number, body) in bodies.iter().enumerate() {
        let expected = if number % 1000 == 7 {
            number.to_string()
        } else {
            format!("/{number}")
        };
        assert_eq!(body, expected.as_bytes());
    }
    assert!(connection.flushes > 0, "the output was full in between");
}

#[test]
fn pf37_output_that_is_full_stops_the_parsing() {
    let mut connection = Connection::open(&test_service());
    connection.feed(&b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n".repeat(10));
    assert_eq!(connection.statuses().len(), 10);
    // Two answers of 40,000 bytes reach the high mark of 64 KiB.
    assert_eq!(connection.flushes, 5);
}

#[test]
fn pf36_answers_without_body_have_no_framing_that_says_otherwise() {
    for (code, length) in [(200, Some("8")), (204, None), (205, Some("0")), (304, None)] {
        for method in ["GET", "HEAD"] {
            let request = format!("{method} /status?{code} HTTP/1.1\r\nHost: h\r\n\r\n");
            let (sent, closed) = talk(request.as_bytes(), 1000);
            let sent = String::from_utf8(sent).expect("ASCII");
            let (head, body) = sent.split_once("\r\n\r\n").expect("a head");
            let found = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            assert_eq!(found, length, "{method} {code}");
            assert!(!head.contains("Transfer-Encoding") && !closed);
            let has_body = method == "GET" && code == 200;
            assert_eq!(
                body,
                if has_body { "the body" } else { "" },
                "{method} {code}"
            );
        }
    }
}

#[test]
fn pf36_head_has_the_fields_of_get_for_every_way_to_answer() {
    for path in ["/fixed", "/job?abc", "/big", "/a", "/bad-header"] {
        let ask = |method| {
            let (sent, _) = talk(
                format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
                99,
            );
            let end = sent
                .windows(4)
                .position(|w| w == b"\r\n\r\n")
                .expect("a head")
                + 4;
            (sent[..end].to_vec(), sent.len() - end)
        };
        let (get, head) = (ask("GET"), ask("HEAD"));
        assert_eq!(get.0, head.0, "{path}");
        assert_eq!(head.1, 0, "{path}");
    }
}

#[test]
fn pf28_bad_header_of_a_handler_becomes_500() {
    let (sent, closed) = talk(b"GET /bad-header HTTP/1.1\r\nHost: h\r\n\r\n", 99);
    let found = answers(&sent);
    assert_eq!((found[0].status, found.len(), closed), (500, 1, false));
    assert_eq!(found[0].header("C"), None);
}

#[test]
fn other_methods_are_405_with_allow_and_options_star_is_answered() {
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        let (sent, closed) = talk(
            format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
            99,
        );
        let found = answers(&sent);
        assert_eq!((found[0].status, closed), (405, false), "{method}");
        assert_eq!(found[0].header("allow"), Some("GET, HEAD, POST"));
    }
    let (sent, _) = talk(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 99);
    assert_eq!(answers(&sent)[0].status, 204);
    assert_eq!(answers(&sent)[0].header("allow"), Some("GET, HEAD, POST"));
}

#[test]
fn connect_is_405_and_its_tunnel_is_not_parsed() {
    let (sent, closed) = talk(
        b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\nGET / HTTP/1.1\r\n",
        9,
    );
    assert_eq!(
        (answers(&sent)[0].status, answers(&sent).len(), closed),
        (405, 1, true)
    );
}

#[test]
fn persistence_follows_version_and_connection() {
    for (request, connection, closed) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", None, false),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            Some("close"),
            true,
        ),
        ("GET / HTTP/1.0\r\n\r\n", Some("close"), true),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            Some("keep-alive"),
            false,
        ),
        (
            "GET /fixed HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            Some("keep-alive"),
            false,
        ),
        ("GET /fixed HTTP/1.0\r\n\r\n", Some("close"), true),
    ] {
        let (sent, is_closed) = talk(request.as_bytes(), 5);
        assert_eq!(
            answers(&sent)[0].header("connection"),
            connection,
            "{request}"
        );
        assert_eq!(is_closed, closed, "{request}");
    }
}

#[test]
fn pf35_bodies_are_dropped_and_never_parsed_as_requests() {
    let evil = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n";
    let chunked = format!("{:x}\r\n{evil}\r\n0\r\n\r\n", evil.len());
    for (framing, body) in [
        (format!("Content-Length: {}", evil.len()), evil),
        ("Transfer-Encoding: chunked".to_owned(), chunked.as_str()),
    ] {
        for method in ["GET", "POST", "PUT"] {
            let request = format!("{method} /a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n{body}");
            let mut input = request.into_bytes();
            input.extend_from_slice(GET);
            for step in [1, 10, 1000] {
                let (sent, closed) = talk(&input, step);
                let found = answers(&sent);
                assert_eq!((found.len(), closed), (2, false), "{method} {framing}");
                assert_eq!(found[1].body.len(), 64);
            }
        }
    }
}

#[test]
fn pf35_body_beyond_the_limit_ends_the_connection() {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        1 << 21
    );
    let (sent, closed) = talk(head.as_bytes(), 1000);
    assert_eq!(answers(&sent)[0].header("connection"), Some("close"));
    assert!(closed);

    let mut connection = Connection::open(&test_service());
    connection.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        connection
            .feed(b"10000\r\n")
            .feed(&[b'a'; 0x10000])
            .feed(b"\r\n");
    }
    assert!(connection.closed);
    assert_eq!(connection.statuses(), [200]);
}

#[test]
fn pf27_bad_chunks_end_the_connection() {
    for chunk in [
        "fffffffffffffffff\r\n",
        "1\na\r\n",
        "1 \r\na\r\n",
        "-1\r\n",
        "0\r\nA : b\r\n\r\n",
    ] {
        let mut input =
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        input.extend_from_slice(chunk.as_bytes());
        input.extend_from_slice(GET);
        let (sent, closed) = talk(&input, 3);
        assert_eq!((answers(&sent).len(), closed), (1, true), "{chunk:?}");
    }
}

#[test]
fn pf29_trailers_do_not_become_headers() {
    let input = b"POST /headers HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
        0\r\nAuthorization: x\r\nHost: evil\r\nContent-Length: 9\r\n\r\n\
        GET /headers HTTP/1.1\r\nHost: h\r\n\r\n";
    let (sent, closed) = talk(input, 11);
    let found = answers(&sent);
    assert_eq!(found[0].body, b"Host,Transfer-Encoding");
    assert_eq!((found[1].body.as_slice(), closed), (&b"Host"[..], false));
}

#[test]
fn expect_continue_gets_the_final_answer_and_the_connection_ends() {
    let (sent, closed) = talk(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        99,
    );
    assert_eq!(
        (answers(&sent)[0].status, answers(&sent).len(), closed),
        (200, 1, true)
    );
    let (_, closed) = talk(
        b"GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
        99,
    );
    assert!(!closed, "without a body there is nothing to wait for");
}

fn message() -> impl Strategy<Value = String> {
    prop_oneof![
        "GET /[a-z?]{0,9} HTTP/1.[01]\r\nHost: h\r\n(Connection: (close|keep-alive)\r\n)?\r\n",
        "HEAD /fixed HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /job\\?[a-z]{0,5} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n[a-z\r\n]{4}",
        "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
         (3\r\n[a-z]{3}\r\n){0,3}0(;x=y)?\r\n(A: b\r\n)?\r\n",
        "(\r\n)?GET / HTTP/1.1\r\nHost: h\r\n(A[ :]{0,2}b?[\r\n]{1,3}){0,2}\r\n",
        "[A-Z]{1,4} ?[/*a]{0,3} ?HTTP/[0-3].[0-2][\r\n]{0,4}",
    ]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_answers(messages in proptest::collection::vec(message(), 0..6), step in 1_usize..40) {
        let input = messages.concat().into_bytes();
        let whole = talk(&input, input.len());
        prop_assert_eq!(&talk(&input, 1), &whole);
        prop_assert_eq!(&talk(&input, step), &whole);
    }

    #[test]
    fn random_bytes_never_panic_and_any_cut_is_the_same(
        input in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        prop_assert_eq!(talk(&input, 1), talk(&input, input.len()));
    }

    #[test]
    fn damaged_requests_never_panic(at in 0_usize..100, byte: u8) {
        let mut input = b"POST /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n".to_vec();
        let at = at % input.len();
        input[at] = byte;
        input.extend_from_slice(GET);
        prop_assert_eq!(talk(&input, 1), talk(&input, input.len()));
    }
}
