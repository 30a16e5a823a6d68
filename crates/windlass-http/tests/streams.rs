//! Answers whose body is made piece by piece: framing, back-pressure, failure, the stop.

mod common;
#[path = "common/reader.rs"]
mod reader;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Connection, open};
use reader::{Ending, FinalAnswer, read_answers};
use windlass::Instant;
use windlass::session::Notifier;
use windlass_http::{
    Answered, BodySource, BodyWriter, FixedResponse, Method, Produced, Request, Responder,
    Response, ResponseError, Status,
};

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

fn read(sent: &[u8]) -> Vec<FinalAnswer> {
    read_answers(sent, Ending::Closed)
}

/// Pushes `text` and ends.
fn once(text: &'static str) -> impl FnMut(&mut BodyWriter<'_, '_>) -> Produced + Send {
    move |body| {
        body.push(text.as_bytes());
        Produced::End
    }
}

/// Answers with the status, and in the way, that the path names: `/204/stream`.
fn by_path(request: &Request<'_>, mut response: Responder<'_>) -> Result<Answered, ResponseError> {
    const TEXT: &str = "the body";
    if request.method() == Method::Head {
        response.with_header("X-Head", "1")?;
    }
    let (code, way) = request.path()[1..].split_once('/').expect("two parts");
    let status = Status::new(code.parse().expect("a code")).expect("a status");
    Ok(match way {
        "body" => response.start(status).body(TEXT),
        "empty" => response.start(status).empty(),
        "fixed" => response.fixed(&FixedResponse::new(Response::new(status).body(TEXT))),
        "job" => response.job(move || Response::new(status).body(TEXT)),
        "job-stream" => response.job(move || Response::new(status).stream(once(TEXT))),
        "sized" => response.start(status).stream_sized(8, once(TEXT)),
        "stream" => response.start(status).stream(once(TEXT)),
        other => panic!("unknown: {other}"),
    })
}

#[test]
fn pf36_framing_fits_status_method_and_version_for_each_way_to_answer() {
    let ways = [
        "body",
        "empty",
        "fixed",
        "job",
        "job-stream",
        "sized",
        "stream",
    ];
    for code in [200, 204, 205, 304, 404] {
        for way in ways {
            let mut heads = Vec::new();
            for method in ["GET", "HEAD"] {
                let mut connection = open(by_path);
                let request = format!("{method} /{code}/{way} HTTP/1.1\r\nHost: h\r\n\r\n");
                connection.feed(request.as_bytes()).feed(request.as_bytes());
                // The reader asserts that the fields fit the status.
                let answers = read(&connection.sent);
                assert_eq!((answers.len(), connection.closed), (2, false), "{request}");
                assert_eq!(answers[0], answers[1]);
                let has_body = method == "GET" && matches!(code, 200 | 404) && way != "empty";
                let body: &[u8] = if has_body { b"the body" } else { b"" };
                assert_eq!(answers[0].body, body, "{request}");
                let mut fields = answers.into_iter().next().expect("two").fields;
                fields.retain(|(name, _)| name != "x-head");
                heads.push(fields);
            }
            assert_eq!(
                heads[0], heads[1],
                "{code} {way}: HEAD has the fields of GET"
            );
        }
    }
}

#[test]
fn pf36_http10_gets_no_chunks_but_the_end_of_the_connection() {
    for (method, way, closes) in [
        ("GET", "stream", true),
        ("HEAD", "stream", true),
        ("GET", "job-stream", true),
        ("HEAD", "job-stream", true),
        ("GET", "sized", false),
        ("GET", "body", false),
        ("HEAD", "body", false),
    ] {
        let mut connection = open(by_path);
        let request = format!("{method} /200/{way} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        connection.feed(request.as_bytes());
        let answers = read(&connection.sent);
        let answer = &answers[0];
        assert_eq!(answers.len(), 1);
        assert_eq!(
            (answer.closes, connection.closed),
            (closes, closes),
            "{request}"
        );
        assert_eq!(answer.field("transfer-encoding"), None, "{request}");
        assert_eq!(answer.body.is_empty(), method == "HEAD", "{request}");
    }
}

#[test]
fn trailers_of_a_stream_follow_its_last_chunk_and_are_checked() {
    let mut connection = open(|_, response| {
        Ok(response
            .start(Status::OK)
            .stream(|body: &mut BodyWriter<'_, '_>| {
                assert!(body.trailer("Content-Length", "9").is_err());
                assert!(body.trailer("A", "b\r\nC: d").is_err());
                body.push(b"text");
                match body.trailer("Sum", "4") {
                    Ok(()) => Produced::End,
                    Err(_) => Produced::Failed,
                }
            }))
    });
    connection.feed(&get("/"));
    let answer = &read(&connection.sent)[0];
    assert_eq!(answer.trailers, [("sum".to_owned(), "4".to_owned())]);
    assert_eq!(answer.body, b"text");
}

/// Makes pieces without end, and counts them.
fn endless(made: &Arc<AtomicUsize>) -> impl FnMut(&mut BodyWriter<'_, '_>) -> Produced + use<> {
    let made = Arc::clone(made);
    move |body| {
        while !body.is_full() {
            body.push(&[b'x'; 1000]);
            made.fetch_add(1, Ordering::Relaxed);
        }
        Produced::More
    }
}

#[test]
fn pf37_source_is_not_asked_while_the_output_is_full_and_goes_on_when_it_drained() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let mut connection =
        open(move |_, response| Ok(response.start(Status::OK).stream(endless(&counted))));
    connection.hold_output = true;
    connection.feed(&get("/"));
    // The high mark of the test's queue is 64 KiB; sources gather chunks of at most 16 KiB.
    let full = made.load(Ordering::Relaxed);
    assert!(connection.output.queued_bytes() < 100 * 1024 && full > 60);
    connection.feed(&get("/")).feed(&get("/"));
    assert_eq!(
        made.load(Ordering::Relaxed),
        full,
        "input does not ask the source"
    );
    for round in 2..10 {
        connection.take_output();
        assert!(
            made.load(Ordering::Relaxed) > full * (round - 1),
            "round {round}"
        );
        assert!(connection.output.queued_bytes() < 100 * 1024);
    }
}

#[test]
fn pf37_requests_behind_a_stream_wait_for_its_end() {
    let mut connection = open(|request, response| match request.path() {
        "/stream" => {
            let mut left = 200;
            Ok(response
                .start(Status::OK)
                .stream(move |body: &mut BodyWriter<'_, '_>| {
                    left -= 1;
                    body.push(&[b'x'; 1000]);
                    if left == 0 {
                        Produced::End
                    } else {
                        Produced::More
                    }
                }))
        }
        path => Ok(response.start(Status::OK).body(path)),
    });
    connection.feed(&[get("/stream"), get("/second")].concat());
    let lens: Vec<_> = read(&connection.sent)
        .iter()
        .map(|a| a.body.len())
        .collect();
    assert_eq!(lens, [200_000, 7]);
    assert!(connection.flushes >= 3);
}

#[test]
fn stream_that_fails_or_does_not_keep_its_length_aborts_the_connection() {
    type Source = fn(&mut BodyWriter<'_, '_>) -> Produced;
    let sources: [(Option<u64>, Source); 4] = [
        (None, |_| Produced::Failed),
        (Some(9), |body| {
            body.push(b"short");
            Produced::End
        }),
        (Some(3), |body| {
            body.push(b"long");
            Produced::End
        }),
        (Some(3), |body| {
            body.push(b"long");
            Produced::More
        }),
    ];
    for (len, source) in sources {
        let mut connection = open(move |_, response| {
            let head = response.start(Status::OK);
            Ok(match len {
                Some(len) => head.stream_sized(len, source),
                None => head.stream(source),
            })
        });
        connection.feed(&[get("/"), get("/")].concat());
        assert!(connection.aborted, "{len:?}");
        assert!(read_answers(&connection.sent, Ending::Aborted).len() <= 1);
    }
}

#[test]
fn pushing_nothing_is_no_last_chunk() {
    let mut left = 2;
    let mut connection = open(move |_, response| {
        Ok(response
            .start(Status::OK)
            .stream(move |body: &mut BodyWriter<'_, '_>| {
                left -= 1;
                body.push(b"");
                body.push_shared(bytes::Bytes::new());
                body.push(b"a");
                if left == 0 {
                    Produced::End
                } else {
                    Produced::More
                }
            }))
    });
    connection.feed(&get("/"));
    assert_eq!(read(&connection.sent)[0].body, b"aa");
}

/// What a test pushes through a source from outside.
#[derive(Clone, Debug, Default)]
struct Feed(Arc<Mutex<(Vec<&'static str>, Option<Notifier>)>>);

impl Feed {
    fn send(&self, text: &'static str) {
        let mut feed = self.0.lock().expect("not poisoned");
        feed.0.push(text);
        feed.1.as_ref().expect("the source was asked").notify();
    }
}

impl BodySource for Feed {
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        let mut feed = self.0.lock().expect("not poisoned");
        feed.1 = Some(body.notifier());
        for text in feed.0.drain(..) {
            body.push(text.as_bytes());
        }
        match () {
            () if body.is_stopping() => Produced::End,
            () if body.peer_ended() => {
                body.push(b" you left");
                Produced::End
            }
            () => Produced::Pending,
        }
    }
}

fn open_feed() -> (Feed, Connection<impl windlass::session::Service>) {
    let feed = Feed::default();
    let source = feed.clone();
    let connection = open(move |_, response| Ok(response.start(Status::OK).stream(source.clone())));
    (feed, connection)
}

#[test]
fn source_that_waits_is_asked_when_it_is_notified() {
    let (feed, mut connection) = open_feed();
    connection.feed(&get("/"));
    feed.send("one");
    assert!(connection.serve_notification());
    assert!(connection.text().ends_with("3\r\none\r\n"));
    assert!(!connection.serve_notification());
    connection.pass(Duration::from_secs(1000));
    assert!(!connection.closed, "a stream has no time-out of its own");
}

#[test]
fn pf34_source_is_told_that_the_client_has_ended_its_side_and_may_still_finish() {
    let (_, mut connection) = open_feed();
    connection.feed(&get("/")).end();
    assert_eq!(read(&connection.sent)[0].body, b" you left");
    assert!(connection.closed && !connection.aborted);
}

#[test]
fn pf31_source_is_told_of_the_stop_and_no_request_follows() {
    let (_, mut connection) = open_feed();
    connection.feed(&[get("/"), get("/")].concat()).stop();
    assert_eq!(read(&connection.sent).len(), 1);
    assert!(connection.closed && !connection.aborted);
}

/// Shows a sign of life each 10 s.
#[derive(Debug, Default)]
struct Heartbeat(Option<Instant>);

impl BodySource for Heartbeat {
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        if self.0.is_some_and(|at| at <= body.now().monotonic) {
            body.push(b".");
        }
        self.0 = Some(body.now().monotonic + Duration::from_secs(10));
        Produced::Pending
    }

    fn wake_at(&self) -> Option<Instant> {
        self.0
    }
}

#[test]
fn source_is_asked_at_the_time_it_named() {
    let mut connection =
        open(|_, response| Ok(response.start(Status::OK).stream(Heartbeat::default())));
    connection.feed(&get("/"));
    for _ in 0..35 {
        connection.pass(Duration::from_secs(1));
    }
    assert!(
        connection
            .text()
            .ends_with("\r\n\r\n1\r\n.\r\n1\r\n.\r\n1\r\n.\r\n")
    );
}

#[test]
fn a_source_that_makes_little_at_a_time_lets_others_have_their_turn() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut connection = open(move |_: &Request<'_>, response: Responder<'_>| {
        let count = Arc::clone(&count);
        let source = move |body: &mut BodyWriter<'_, '_>| {
            body.push(b"x");
            if count.fetch_add(1, Ordering::Relaxed) < 1000 {
                Produced::More
            } else {
                Produced::End
            }
        };
        Ok(response.start(Status::OK).stream(source))
    });
    connection.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(asked.load(Ordering::Relaxed) <= 256, "in one go");
    connection.serve_notifications(100);
    assert_eq!(asked.load(Ordering::Relaxed), 1001);
    assert!(connection.text().ends_with("0\r\n\r\n"));
}
