//! The access log as its sink sees it.

mod common;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use common::{Connection, TestHandler};
use windlass::session::Service;
use windlass_http::{
    AccessLog, BodyWriter, HttpConfig, HttpService, LogFormat, Produced, Request, Responder, Status,
};

fn logged_service(sink: Arc<Mutex<dyn Write + Send>>) -> HttpService<TestHandler> {
    let mut config = HttpConfig::default();
    config.access_log = Some(AccessLog::new(sink, LogFormat::Common));
    HttpService::new(TestHandler::default(), config)
}

#[test]
fn each_answer_is_one_line_written_when_the_turn_ends() {
    let sink = Arc::new(Mutex::new(Vec::new()));
    let service = logged_service(sink.clone());
    let mut connection = Connection::open(&service);
    connection.feed(
        b"GET /fixed?a=\"b HTTP/1.1\r\nHost: h\r\n\r\nHEAD /fixed HTTP/1.1\r\nHost: h\r\n\r\n\
          GET /job?abc HTTP/1.1\r\nHost: h\r\n\r\nPUT /x HTTP/1.1\r\nHost: h\r\n\r\nbad\r\n\r\n",
    );
    assert!(sink.lock().expect("a lock").is_empty());

    service.settle(&mut connection.local, connection.now);

    let text = String::from_utf8(sink.lock().expect("a lock").clone()).expect("ASCII");
    let start = "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000]";
    let expected = [
        "\"GET /fixed?a=\\\"b HTTP/1.1\" 200 64",
        "\"HEAD /fixed HTTP/1.1\" 200 -",
        "\"GET /job?abc HTTP/1.1\" 200 3",
        "\"PUT /x HTTP/1.1\" 405 47",
        "\"-\" 400 47",
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|line| format!("{start} {line}"))
        .collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn stream_is_logged_when_it_ends_also_if_it_fails() {
    let sink = Arc::new(Mutex::new(Vec::new()));
    let mut config = HttpConfig::default();
    config.access_log = Some(AccessLog::new(sink.clone(), LogFormat::Common));
    let handler = |request: &Request<'_>, response: Responder<'_>| {
        let last = if request.path() == "/fails" {
            Produced::Failed
        } else {
            Produced::End
        };
        let source = move |body: &mut BodyWriter<'_, '_>| {
            body.push(b"abc");
            last
        };
        Ok(response.start(Status::OK).stream(source))
    };
    let service = HttpService::new(handler, config);
    let mut connection = Connection::open(&service);
    connection.feed(b"GET /ends HTTP/1.1\r\nHost: h\r\n\r\nGET /fails HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.aborted);
    service.settle(&mut connection.local, connection.now);
    let text = String::from_utf8(sink.lock().expect("a lock").clone()).expect("ASCII");
    let requests: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once("] "))
        .map(|(_, request)| request)
        .collect();
    assert_eq!(
        requests,
        [
            "\"GET /ends HTTP/1.1\" 200 3",
            "\"GET /fails HTTP/1.1\" 200 3"
        ]
    );
}

#[test]
fn sink_that_fails_is_counted_and_does_not_stop_the_answers() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let service = logged_service(Arc::new(Mutex::new(Broken)));
    let mut connection = Connection::open(&service);
    connection.feed(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    service.settle(&mut connection.local, connection.now);
    service.settle(&mut connection.local, connection.now);
    assert_eq!(service.log_failures(), 1);
    assert_eq!(connection.statuses(), [200]);
}
