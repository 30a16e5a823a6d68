//! Answers that break off, and answers of sinks that refuse.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::{AllMethods, Connection, open};
use windlass::session::Service;
use windlass_http::{
    AccessLog, Answered, BodySink, BodyWriter, HttpConfig, HttpService, LogFormat, Method,
    Produced, Request, Responder, Response, ResponseError, Status,
};

struct Refuses;

impl BodySink for Refuses {
    fn data(&mut self, _: &[u8]) -> Result<(), Response> {
        let mut left = 3;
        Err(
            Response::new(Status::FORBIDDEN).stream(move |body: &mut BodyWriter<'_, '_>| {
                body.push(b"no ");
                left -= 1;
                if left == 0 {
                    Produced::End
                } else {
                    Produced::More
                }
            }),
        )
    }
}

/// Refuses each body with a stream; breaks each other answer off.
fn breaks(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    if request.method() == Method::Post {
        return Ok(response.receive(Refuses, |_, _, response| {
            Ok(response.start(Status::OK).empty())
        }));
    }
    let mut calls = 0;
    Ok(response
        .start(Status::OK)
        .stream(move |body: &mut BodyWriter<'_, '_>| {
            body.push(b"part");
            calls += 1;
            if calls == 2 {
                Produced::Failed
            } else {
                Produced::More
            }
        }))
}

#[test]
fn a_refusal_that_is_a_stream_is_sent_whole() {
    for step in [1, 1000] {
        let mut connection = open(breaks);
        let request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n123456789";
        for piece in request.chunks(step) {
            connection.feed(piece);
        }
        let text = connection.text();
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
        let body = text.split_once("\r\n\r\n").expect("a head").1;
        let data: String = body.split("\r\n").skip(1).step_by(2).collect();
        assert_eq!(data, "no no no ", "{text}");
        assert!(body.ends_with("0\r\n\r\n") && connection.closed, "{text}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_in_the_log_with_what_was_made_of_it() {
    let sink = Arc::new(Mutex::new(Vec::new()));
    let writer: Arc<Mutex<dyn Write + Send>> = sink.clone();
    let mut config = HttpConfig::default();
    config.access_log = Some(AccessLog::new(writer, LogFormat::Common));
    let service = HttpService::new(AllMethods(breaks), config);
    let mut connection = Connection::open(&service);
    connection.feed(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.closed);
    service.settle(&mut connection.local, connection.now);
    let log = String::from_utf8(sink.lock().expect("a lock").clone()).expect("ASCII");
    assert!(
        log.trim_end().ends_with("\"GET /a HTTP/1.1\" 200 8"),
        "{log}"
    );
}
