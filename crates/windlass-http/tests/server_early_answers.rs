//! PF-30: an answer that is given before the body was read reaches the client, over real sockets.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::{Read, Write};
use std::net::TcpStream;

use live::{Client, Server, set_buffers};
use windlass::models::Limits;
use windlass_http::{Answered, HttpConfig, Request, Responder, ResponseError, Status};

const BODY_BYTES: usize = 64 * 1024 * 1024;

/// Neither path reads a body of that size.
fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    match request.path() {
        "/collect" => Ok(response
            .collect(|body, response| Ok(response.start(Status::OK).body(body.len().to_string())))),
        "/upload" => Ok(response.upload(Nothing).start(Status::OK).body("done")),
        _ => Ok(response.start(Status::UNAUTHORIZED).body("who are you?")),
    }
}

#[derive(Debug)]
struct Nothing;

impl windlass_http::BodySink for Nothing {
    fn data(&mut self, _: &[u8]) -> Result<(), windlass_http::Response> {
        Ok(())
    }
}

/// Sends a head and the whole body, and reads only then.
fn upload(server: &Server, path: &str, framing: &str, chunk: &[u8], count: usize) -> Vec<u8> {
    let stream = TcpStream::connect(server.addr).expect("connect");
    set_buffers(&stream, 64 * 1024);
    let mut client = Client::new(stream);
    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
    client.send(head.as_bytes());
    for _ in 0..count {
        client.send(chunk);
    }
    client.end().read_all()
}

#[test]
fn pf30_early_answer_reaches_a_client_that_reads_only_when_it_has_sent_everything() {
    let limits = Limits {
        linger_bytes_max: 2 * BODY_BYTES as u64,
        ..Limits::default()
    };
    let server = Server::start(handle, HttpConfig::default(), limits, Some(64 * 1024));
    let piece = vec![b'a'; 1 << 20];
    let chunk = [b"100000\r\n".as_slice(), &piece, b"\r\n"].concat();
    let length = format!("Content-Length: {BODY_BYTES}");
    for run in 0..25 {
        for (path, framing, piece, status) in [
            ("/collect", length.as_str(), &piece, 413),
            ("/collect", "Transfer-Encoding: chunked", &chunk, 413),
            ("/upload", length.as_str(), &piece, 413),
            ("/secret", length.as_str(), &piece, 401),
        ] {
            let sent = upload(&server, path, framing, piece, BODY_BYTES >> 20);
            let answers = common::answers(&sent);
            assert_eq!((answers.len(), answers[0].status), (1, status), "run {run}");
            assert_eq!(answers[0].header("connection"), Some("close"));
        }
    }
    assert_eq!(server.stop().failed, 0);
}

#[test]
fn pf30_a_reset_ends_an_upload_only_beyond_the_limit() {
    let limits = Limits {
        linger_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let server = Server::start(handle, HttpConfig::default(), limits, None);
    let mut client = server.connect();
    client.send(b"POST /secret HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    let (status, ..) = client.answer();
    assert_eq!(status, 401);
    let piece = vec![b'a'; 1 << 16];
    let mut taken = 0;
    while client.0.write_all(&piece).is_ok() {
        taken += piece.len();
        assert!(taken < 100 << 20, "it is taken without end");
    }
    assert!(taken >= 1 << 20, "only {taken} bytes were taken");
    let mut rest = Vec::new();
    assert!(matches!(client.0.read_to_end(&mut rest), Err(_) | Ok(0)));
    server.stop();
}
