//! PF-35: bodies that come late, or that nobody reads, over real sockets.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::Write;

use live::{Client, Server};
use windlass::models::Limits;
use windlass_http::{Answered, HttpConfig, Request, Responder, ResponseError, Status};

fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    match request.path() {
        "/collect" => {
            Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))))
        }
        "/panic" => panic!("a handler panics"),
        "/panic-late" => Ok(response.collect(|_, _| panic!("a handler panics"))),
        path => Ok(response.start(Status::OK).body(path)),
    }
}

fn start() -> Server {
    let limits = Limits {
        linger_bytes_max: 256 << 20,
        ..Limits::default()
    };
    Server::start(handle, HttpConfig::default(), limits, None)
}

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn pf35_unread_body_that_comes_behind_the_answer_is_not_taken_for_a_request() {
    let server = start();
    for (framing, body) in [
        (format!("Content-Length: {}", EVIL.len()), EVIL.to_owned()),
        (
            "Transfer-Encoding: chunked".to_owned(),
            format!("{:x}\r\n{EVIL}\r\n0\r\n\r\n", EVIL.len()),
        ),
    ] {
        let mut client = server.connect();
        for _ in 0..3 {
            let head = format!("POST /a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
            client.send(head.as_bytes());
            // The answer comes before the body is sent.
            assert_eq!(client.answer().2, b"/a");
            client.send(body.as_bytes()).get("/b");
            assert_eq!(client.answer().2, b"/b");
        }
    }
    server.stop();
}

#[test]
fn pf35_body_of_100_mb_that_nobody_reads_ends_the_connection_in_order() {
    let server = start();
    let piece = vec![b'a'; 1 << 20];
    let chunk = [b"100000\r\n".as_slice(), &piece, b"\r\n"].concat();
    for (framing, piece, says_close) in [
        ("Content-Length: 104857600", &piece, true),
        // It is found out too late to be said.
        ("Transfer-Encoding: chunked", &chunk, false),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n").as_bytes());
        for _ in 0..100 {
            client.send(piece);
        }
        let answers = common::answers(&client.send(EVIL.as_bytes()).end().read_all());
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].header("connection").is_some(), says_close);
    }
    assert_eq!(server.stop().failed, 0);
}

#[test]
fn continue_is_waited_for_and_then_the_body_is_taken() {
    let server = start();
    let mut client = server.connect();
    let head = "POST /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\
                Expect: 100-continue\r\n\r\n";
    for _ in 0..2 {
        client.send(head.as_bytes());
        assert_eq!(client.answer().0, 100);
        client.send(b"hello");
        assert_eq!(client.answer().2, b"hello");
    }
    server.stop();
}

/// Sends what its server may have given up on.
fn send_leniently(client: &mut Client, bytes: &[u8]) {
    let _ = client.0.write_all(bytes);
}

#[test]
fn panic_of_a_handler_ends_its_connection_and_no_other() {
    let server = start();
    let mut other = server.connect();
    other.get("/a");
    assert_eq!(other.answer().2, b"/a");
    for path in ["/panic", "/panic-late"] {
        let mut client = server.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na");
        send_leniently(&mut client, head.as_bytes());
        let mut sent = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.0, &mut sent);
        assert!(sent.is_empty(), "{path}");
    }
    other.get("/b");
    assert_eq!(other.answer().2, b"/b");
    assert_eq!(server.stop().panics, 2);
}
