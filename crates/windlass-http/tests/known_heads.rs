//! Header sections that are recognised instead of parsed: a head is read the same either way.

mod common;

use common::Connection;
use proptest::prelude::*;
use windlass_http::{HttpConfig, HttpService, Methods, Request, Responder, ResponseError, Status};

/// Tells all that it knows of a request.
struct Mirror;

impl windlass_http::Handler for Mirror {
    type Local = ();

    fn local(&self) {}

    fn methods(&self) -> Methods {
        [
            windlass_http::Method::Post,
            windlass_http::Method::Delete,
            windlass_http::Method::Options,
        ]
        .into_iter()
        .fold(Methods::GET_HEAD, Methods::with)
    }

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<windlass_http::Answered, ResponseError> {
        let headers: Vec<_> = request
            .headers()
            .map(|(name, value)| (name.to_owned(), value.escape_ascii().to_string()))
            .collect();
        let told = format!(
            "{} {} {:?} {:?} {:?} {:?} {:?} {:?} {headers:?}",
            request.method(),
            request.target(),
            request.path(),
            request.query(),
            request.authority(),
            request.version(),
            request.body_length(),
            request.header("x-empty"),
        );
        Ok(response.start(Status::OK).body(told))
    }
}

/// What is said to `head` on a connection on which `before` came first.
fn said(before: &[&[u8]], head: &[u8]) -> (Vec<u8>, bool) {
    let service = HttpService::new(Mirror, HttpConfig::default());
    let mut connection = Connection::open(&service);
    for head in before {
        connection.feed(head);
    }
    let sent_before = connection.sent.len();
    connection.feed(head);
    (connection.sent[sent_before..].to_vec(), connection.closed)
}

#[test]
fn repeated_section_is_read_as_the_first_time() {
    let section = "Host: a.example:80\r\nX-Empty:\r\nUser-Agent:  x y\t\r\nCookie: \u{80}\r\n\r\n";
    let section: Vec<u8> = section.chars().map(|c| c as u8).collect();
    let with = |line: &str| [line.as_bytes(), &section].concat();
    let warm = with("GET /warm HTTP/1.1\r\n");
    for line in [
        "GET / HTTP/1.1\r\n",
        "HEAD /a?b?c HTTP/1.1\r\n",
        "POST /x HTTP/1.1\r\n",
        "DELETE /x/y HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT a.example:80 HTTP/1.1\r\n",
        "GET http://b.example/x?y HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "GET / HTTP/1.2\r\n",
        "GET / HTTP/2.0\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
        "GET /#f HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "BREW / HTTP/1.1\r\n",
        "get / HTTP/1.1\r\n",
    ] {
        let head = with(line);
        let expected = said(&[], &head);
        assert_eq!(said(&[&warm, &warm], &head), expected, "{line:?}");
        assert_eq!(said(&[&warm, &warm, &warm], &head), expected, "{line:?}");
    }
}

#[test]
fn section_that_begins_like_a_known_one_is_parsed() {
    let warm = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for head in [
        &b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: ab\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        b"GET / HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
    ] {
        assert_eq!(said(&[warm, warm], head), said(&[], head));
    }
}

proptest! {
    #[test]
    fn any_line_before_a_known_section_is_judged_alike(
        method in "(GET|HEAD|POST|DELETE|PUT|GE|get)",
        target in "[/*a-z?#%. \t\\x00]{0,8}",
        version in "(HTTP/1\\.[012]|HTTP/2\\.0|http/1\\.1)",
        end in "(\r\n|\n|\r)",
        cut in 0..64_usize,
    ) {
        let section = b"Host: a\r\nAccept: */*\r\n\r\n";
        let line = format!("{method} {target} {version}{end}");
        let head = [line.as_bytes(), section].concat();
        let warm = [b"GET / HTTP/1.1\r\n", &section[..]].concat();
        prop_assert_eq!(said(&[&warm, &warm, &warm], &head), said(&[], &head));
        // In two pieces, the section is recognised only when it is whole.
        let (first, second) = head.split_at(cut.min(head.len()));
        let service = HttpService::new(Mirror, HttpConfig::default());
        let mut connection = Connection::open(&service);
        connection.feed(&warm).feed(&warm);
        let before = connection.sent.len();
        connection.feed(first).feed(second);
        prop_assert_eq!(&connection.sent[before..], &said(&[], &head).0[..]);
    }
}

#[test]
fn connections_do_not_see_each_others_sections() {
    let service = HttpService::new(Mirror, HttpConfig::default());
    let mut first = Connection::open(&service);
    let close = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let keep = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    first.feed(keep).feed(keep).feed(keep);
    assert!(!first.closed);
    first.feed(close);
    assert!(first.closed);
}
