//! Requests that break the rules: what each is answered, and that nothing after it is read.

mod common;

use common::{Connection, answers, talk, test_service};

/// Sends `input` and a good request behind it; the bad one must be answered and be the last.
#[track_caller]
fn refused(input: &[u8], status: u16) {
    let mut stream = input.to_vec();
    stream.extend_from_slice(b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    let (whole, closed) = talk(&stream, stream.len());
    let shown = input.escape_ascii();
    let found = answers(&whole);
    assert_eq!(found.len(), 1, "{shown}: {found:?}");
    assert_eq!(found[0].status, status, "{shown}: {found:?}");
    assert_eq!(found[0].header("connection"), Some("close"), "{shown}");
    assert!(closed, "{shown}");
    assert_eq!(talk(&stream, 1), (whole, true), "cut at each byte: {shown}");
}

#[test]
fn pf28_request_lines_out_of_grammar() {
    for (line, status) in [
        ("GET  / HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("GET /a b HTTP/1.1", 400),
        ("GET / http/1.1", 400),
        ("GET /", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/11", 400),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/3.0", 505),
        ("GET /#fragment HTTP/1.1", 400),
        ("GET relative HTTP/1.1", 400),
        ("GET ftp://h/ HTTP/1.1", 400),
        ("GET http:///a HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("CONNECT h HTTP/1.1", 400),
        ("CONNECT h: HTTP/1.1", 400),
        ("CONNECT / HTTP/1.1", 400),
        ("GET http://h%2/ HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("get / HTTP/1.1", 501),
        ("BREW / HTTP/1.1", 501),
        (" GET / HTTP/1.1", 400),
        (":", 400),
    ] {
        refused(format!("{line}\r\nHost: h\r\n\r\n").as_bytes(), status);
    }
    refused(b"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    refused(b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);
}

#[test]
fn pf28_header_lines_out_of_grammar() {
    for line in [
        ": empty",
        "A : b",
        "A\t: b",
        " A: b",
        "A b: c",
        "A",
        "A: b\r\n folded",
        "A: b\r\n\tfolded",
        "A: b\0c",
        "A: b\x01c",
        "A: b\x7f",
        "A: b\rc",
        "A: b\r\r\nB: c",
        "A\0: b",
        "A(: b",
        "\u{e9}: b",
        "A: b\nB: c",
        "A: b\n",
    ] {
        refused(
            format!("GET / HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n").as_bytes(),
            400,
        );
    }
    refused(b"GET / HTTP/1.1\nHost: h\r\n\r\n", 400);
    refused(b"GET / HTTP/1.1\r\nHost: h\n\n", 400);
    refused(b"GET / HTTP/1.1\r\nHost: h\r\n\n", 400);
    refused(b"GET / HTTP/1.1\n\n", 400);
}

#[test]
fn host_must_be_there_once_and_valid() {
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: u@a\r\n",
        "Host: a:b\r\n",
        "Host: a, b\u{e9}\r\n",
        "Host: [::1\r\n",
        "Host: a%2\r\n",
        "Host: a%zz\r\n",
    ] {
        refused(format!("GET / HTTP/1.1\r\n{hosts}\r\n").as_bytes(), 400);
    }
    refused(b"GET http://a/ HTTP/1.1\r\n\r\n", 400);
}

#[test]
fn pf26_framing_headers_that_disagree() {
    for (framing, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5, 5\r\n", 400),
        ("Content-Length: -5\r\n", 400),
        ("Content-Length: 5x\r\n", 400),
        ("Content-Length: 99999999999999999999\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 400),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        ("Transfer-Encoding: \x0bchunked\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
    ] {
        for method in ["GET", "POST"] {
            let head = format!("{method} / HTTP/1.1\r\nHost: h\r\n{framing}\r\n");
            refused(head.as_bytes(), status);
        }
    }
    refused(
        b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    );
}

#[test]
fn expectations_that_cannot_be_met_are_417() {
    refused(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", 417);
    refused(
        b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nExpect: x\r\n\r\n",
        417,
    );
}

#[test]
fn limits_are_enforced() {
    let long = "a".repeat(9000);
    refused(
        format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
        414,
    );
    refused(
        format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", long.repeat(2)).as_bytes(),
        414,
    );
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", long.repeat(2));
    refused(head.as_bytes(), 431);
    let head = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    refused(head.as_bytes(), 431);
    let (sent, closed) = talk(
        format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(99)).as_bytes(),
        7,
    );
    assert_eq!((answers(&sent)[0].status, closed), (200, false));
}

#[test]
fn http2_preface_is_answered_in_http1() {
    let mut connection = Connection::open(&test_service());
    connection.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04");
    assert_eq!(connection.statuses(), [505]);
    assert!(connection.closed && connection.text().contains("HTTP/1.1 is"));
}

#[test]
fn refusals_name_what_was_wrong() {
    let (sent, _) = talk(b"GET / HTTP/1.1\r\n\r\n", 100);
    assert_eq!(
        answers(&sent)[0].body,
        b"400 Bad Request: Host is missing\n"
    );
}

#[test]
fn one_empty_line_before_a_request_is_skipped_and_no_second() {
    for step in [1, 100] {
        let input = b"\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
        let (sent, closed) = talk(input, step);
        assert_eq!((answers(&sent).len(), closed), (2, false));
    }
    refused(b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    refused(b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
    refused(b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
}
