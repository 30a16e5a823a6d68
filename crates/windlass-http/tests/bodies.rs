//! Bodies of requests that a handler takes: whole, piece by piece, beside the answer.

mod common;
#[path = "common/reader.rs"]
mod reader;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::open;
use reader::{Ending, FinalAnswer, read_answers};
use windlass::session::Notifier;
use windlass_http::{
    Answered, BodySink, Notify, Request, Responder, Response, ResponseError, Status, Trailers,
};

const GET: &[u8] = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n{body}").into_bytes()
}

fn read(sent: &[u8]) -> Vec<FinalAnswer> {
    read_answers(sent, Ending::Closed)
}

/// Sends the body back.
fn echo(_: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))))
}

/// Counts what it takes, and whether the end came.
#[derive(Clone, Debug, Default)]
struct Count {
    bytes: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl BodySink for Count {
    fn data(&mut self, piece: &[u8]) -> Result<(), Response> {
        self.bytes.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(())
    }

    fn end(&mut self, _: &Trailers) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[test]
fn collected_body_is_given_whole_however_it_is_framed_and_cut() {
    for step in [1, 7, 1000] {
        let mut connection = open(echo);
        let mut input = post("Content-Length: 5", "hello");
        input.extend(post(
            "Transfer-Encoding: chunked",
            "3;x=y\r\nwor\r\n2\r\nld\r\n0\r\nA: b\r\n\r\n",
        ));
        input.extend_from_slice(GET);
        for piece in input.chunks(step) {
            connection.feed(piece);
        }
        let bodies: Vec<_> = read(&connection.sent).into_iter().map(|a| a.body).collect();
        assert_eq!(bodies, [&b"hello"[..], b"world", b""], "cut at {step}");
        assert!(!connection.closed);
    }
}

#[test]
fn pf29_trailers_are_given_apart_from_the_headers() {
    let mut connection = open(|request, response| {
        assert_eq!(request.header("authorization"), None);
        Ok(response.receive(Count::default(), |_, trailers, response| {
            let found = trailers.get("authorization").unwrap_or_default().to_vec();
            Ok(response.start(Status::OK).body(found))
        }))
    });
    connection.feed(&post(
        "Transfer-Encoding: chunked",
        "1\r\na\r\n0\r\nAuthorization: me\r\nHost: evil\r\n\r\n",
    ));
    assert_eq!(read(&connection.sent)[0].body, b"me");
}

#[test]
fn pf29_trailer_section_that_is_too_long_or_malformed_is_400_and_the_end() {
    let long = format!("A: {}\r\n", "b".repeat(20_000));
    let many = "A: b\r\n".repeat(4000);
    for trailers in [
        long.as_str(),
        many.as_str(),
        "A : b\r\n",
        "A: b\n",
        " A: b\r\n",
    ] {
        let mut connection = open(echo);
        let body = format!("1\r\na\r\n0\r\n{trailers}\r\n");
        connection
            .feed(&post("Transfer-Encoding: chunked", &body))
            .feed(GET);
        assert_eq!(connection.statuses(), [400]);
        assert!(connection.closed);
    }
}

#[test]
fn continue_is_sent_once_and_the_connection_goes_on_when_the_body_was_read() {
    let mut connection = open(|_, response| {
        let other = Count::default();
        Ok(response
            .upload(Count::default())
            .receive(other, |sink, _, response| {
                let text = sink.bytes.load(Ordering::Relaxed).to_string();
                Ok(response.start(Status::OK).body(text))
            }))
    });
    connection.feed(&post("Content-Length: 2\r\nExpect: 100-Continue", ""));
    assert_eq!(connection.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    connection.feed(b"ab");
    let answer = &read(&connection.sent)[0];
    assert_eq!(
        (answer.interim.as_slice(), answer.body.as_slice()),
        (&[100][..], &b"2"[..])
    );
    assert!(!connection.closed && !answer.closes);
}

#[test]
fn continue_is_not_sent_to_http10_nor_for_a_body_that_is_refused() {
    let mut connection = open(echo);
    connection.feed(b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab");
    let answer = &read(&connection.sent)[0];
    assert_eq!(
        (answer.interim.len(), answer.body.as_slice()),
        (0, &b"ab"[..])
    );

    let mut connection = open(echo);
    connection.feed(&post("Content-Length: 9999999\r\nExpect: 100-continue", ""));
    let answer = &read(&connection.sent)[0];
    assert_eq!((answer.status, answer.interim.len()), (413, 0));
    assert!(connection.closed);
}

#[test]
fn continue_that_was_promised_to_a_failing_handler_ends_the_connection() {
    let mut connection = open(|_, response| {
        let _unused = response.upload(Count::default());
        Err(ResponseError::HeaderName)
    });
    connection
        .feed(&post("Content-Length: 2\r\nExpect: 100-continue", ""))
        .feed(GET);
    let answers = read(&connection.sent);
    assert_eq!((answers[0].status, answers.len()), (500, 1));
    assert!(connection.closed && answers[0].closes);
}

#[test]
fn body_that_is_announced_too_long_is_413_and_the_end_whatever_the_handler_answers() {
    type Handle = fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError>;
    let handlers: [Handle; 5] = [
        |_, response| {
            Ok(response
                .body_limit(4)
                .collect(|_, _| unreachable!("it is refused")))
        },
        |_, response| {
            let head = response
                .body_limit(4)
                .upload(Count::default())
                .start(Status::OK);
            Ok(head.body("done"))
        },
        |_, response| {
            let response = response.body_limit(4).upload(Count::default());
            Ok(response.job(|| Response::new(Status::OK)))
        },
        |_, response| {
            let head = response
                .body_limit(4)
                .upload(Count::default())
                .start(Status::OK);
            Ok(head
                .stream(|_: &mut windlass_http::BodyWriter<'_, '_>| windlass_http::Produced::End))
        },
        |_, response| {
            let _unused = response.body_limit(4).upload(Count::default());
            Err(ResponseError::HeaderName)
        },
    ];
    for handle in handlers {
        let mut connection = open(handle);
        connection
            .feed(&post("Content-Length: 5", "hello"))
            .feed(GET);
        let answers = read(&connection.sent);
        assert_eq!((answers[0].status, answers.len()), (413, 1));
        assert!(connection.closed && answers[0].closes);
    }
}

#[test]
fn body_that_is_found_too_long_is_413_and_the_end() {
    let mut connection = open(|_, response| {
        Ok(response
            .body_limit(4)
            .collect(|_, _| unreachable!("it is refused")))
    });
    connection.feed(&post(
        "Transfer-Encoding: chunked",
        "3\r\nabc\r\n3\r\nabc\r\n0\r\n\r\n",
    ));
    connection.feed(GET);
    assert_eq!(connection.statuses(), [413]);
    assert!(connection.closed);
}

#[test]
fn pf27_announced_chunk_size_reserves_nothing_and_is_413_within_the_limit() {
    for size in [
        "7fffffff",
        "ffffffff",
        "7fffffffffffffff",
        "8000000000000000",
    ] {
        let mut connection = open(|_, response| {
            Ok(response
                .body_limit(9)
                .collect(|_, _| unreachable!("it is refused")))
        });
        connection.feed(&post("Transfer-Encoding: chunked", &format!("{size}\r\n")));
        assert!(!connection.closed, "nothing has come yet");
        connection.feed(b"0123456789");
        assert_eq!(connection.statuses(), [413], "{size}");
    }
}

#[test]
fn answers_of_the_session_have_the_headers_of_a_wrapping_handler() {
    let mut connection = open(|_, mut response| {
        response.with_header("X-Wrapped", "1")?;
        Ok(response
            .body_limit(4)
            .collect(|_, _| unreachable!("it is refused")))
    });
    connection.feed(&post("Content-Length: 5", ""));
    let answer = &read(&connection.sent)[0];
    assert_eq!((answer.status, answer.field("x-wrapped")), (413, Some("1")));
}

#[derive(Debug)]
struct RefusesX;

impl BodySink for RefusesX {
    fn data(&mut self, piece: &[u8]) -> Result<(), Response> {
        if piece.contains(&b'X') {
            return Err(Response::text(Status::UNPROCESSABLE_CONTENT, "an X"));
        }
        Ok(())
    }
}

#[test]
fn sink_that_refuses_is_answered_its_way_even_in_front_of_the_limit_in_any_cut() {
    for step in [1, 1000] {
        let mut connection = open(|_, response| {
            Ok(response
                .body_limit(4)
                .receive(RefusesX, |_, _, _| unreachable!("it is refused")))
        });
        let input = post("Transfer-Encoding: chunked", "8\r\nabXdefgh\r\n0\r\n\r\n");
        for piece in input.chunks(step) {
            connection.feed(piece);
        }
        connection.feed(GET);
        let answers = read(&connection.sent);
        assert_eq!(
            (answers[0].status, answers.len()),
            (422, 1),
            "cut at {step}"
        );
        assert!(connection.closed && answers[0].closes);
    }
}

#[test]
fn sink_beside_an_answer_that_was_given_can_only_end_the_connection() {
    let mut connection =
        open(|_, response| Ok(response.upload(RefusesX).start(Status::OK).body("early")));
    connection.feed(&post("Content-Length: 9", "a"));
    assert_eq!(connection.statuses(), [200]);
    assert!(!connection.closed);
    connection.feed(b"X").feed(GET);
    assert_eq!(connection.statuses(), [200]);
    assert!(connection.closed);
}

#[test]
fn upload_goes_on_behind_the_answer_and_the_next_request_behind_it() {
    let sink = Count::default();
    let (bytes, ended) = (Arc::clone(&sink.bytes), Arc::clone(&sink.ended));
    let mut connection = open(move |_, response| {
        Ok(response
            .upload(sink.clone())
            .start(Status::OK)
            .body("early"))
    });
    connection.feed(&post("Content-Length: 4", "ab"));
    assert_eq!(
        (bytes.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)),
        (2, false)
    );
    connection.feed(b"cd").feed(GET);
    assert_eq!(
        (bytes.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)),
        (4, true)
    );
    assert_eq!(connection.statuses(), [200, 200]);
    assert!(!connection.closed);
}

#[test]
fn upload_beside_a_job_is_taken_once_the_job_has_answered() {
    let sink = Count::default();
    let ended = Arc::clone(&sink.ended);
    let mut connection = open(move |_, response| {
        Ok(response
            .upload(sink.clone())
            .job(|| Response::new(Status::OK).body("job")))
    });
    connection.hold_jobs = true;
    connection
        .feed(&post("Content-Length: 4", "abcd"))
        .feed(GET);
    assert!(connection.sent.is_empty() && !ended.load(Ordering::Relaxed));
    connection.run_held_job();
    assert!(ended.load(Ordering::Relaxed));
    assert!(connection.held.is_some(), "the next request");
}

#[test]
fn pf34_end_of_input_within_a_body_ends_the_connection_and_the_sink_is_not_told_the_end() {
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let sink = Count::default();
        let ended = Arc::clone(&sink.ended);
        let mut connection = open(move |_, response| {
            Ok(response.receive(sink.clone(), |_, _, _| unreachable!("it is not whole")))
        });
        connection.feed(&post(framing, "3\r\n")).end();
        assert!(connection.closed && connection.sent.is_empty());
        assert!(!ended.load(Ordering::Relaxed));
        assert_eq!(
            Arc::strong_count(&ended),
            2,
            "the handler's, and not the dropped sink's"
        );
    }
}

#[test]
fn handler_that_fails_behind_a_body_is_500_and_the_connection_goes_on() {
    let mut connection = open(|request, response| match request.path() {
        "/" => Ok(response.collect(|_, response| {
            let _unused = response;
            Err(ResponseError::HeaderName)
        })),
        _ => Ok(response.start(Status::OK).empty()),
    });
    connection.feed(&post("Content-Length: 2", "ab")).feed(GET);
    assert_eq!(connection.statuses(), [500, 200]);
}

/// Is ready when it is told to be.
#[derive(Debug)]
struct Gate {
    open: Arc<AtomicBool>,
    notifier: Arc<Mutex<Option<Notifier>>>,
}

impl BodySink for Gate {
    fn is_ready(&mut self, notify: &mut Notify<'_, '_>) -> bool {
        *self.notifier.lock().expect("not poisoned") = Some(notify.notifier());
        self.open.load(Ordering::Relaxed)
    }

    fn data(&mut self, _: &[u8]) -> Result<(), Response> {
        Ok(())
    }
}

#[test]
fn pf33_time_for_which_a_sink_is_not_ready_does_not_count_against_the_client() {
    let (open_gate, notifier) = (Arc::default(), Arc::default());
    let (gate, slot): (Arc<AtomicBool>, Arc<Mutex<Option<Notifier>>>) =
        (Arc::clone(&open_gate), Arc::clone(&notifier));
    let mut connection = open(move |_, response| {
        let sink = Gate {
            open: Arc::clone(&gate),
            notifier: Arc::clone(&slot),
        };
        Ok(response.receive(sink, |_, _, response| {
            Ok(response.start(Status::OK).empty())
        }))
    });
    let secs = std::time::Duration::from_secs;
    connection
        .feed(&post("Content-Length: 4", "ab"))
        .pass(secs(300));
    assert!(!connection.closed && connection.pending_bytes() == 2);
    open_gate.store(true, Ordering::Relaxed);
    notifier
        .lock()
        .expect("not poisoned")
        .take()
        .expect("taken")
        .notify();
    assert!(connection.serve_notification());
    connection.pass(secs(59));
    assert!(!connection.closed, "it has its whole time");
    connection.pass(secs(1));
    assert_eq!(connection.statuses(), [408]);
    assert!(connection.closed);
}

#[test]
fn pf33_slow_body_that_a_handler_wants_is_408() {
    let mut connection = open(echo);
    connection.feed(&post("Content-Length: 100000", ""));
    let mut passed = 0;
    while !connection.closed {
        connection
            .feed(b"a")
            .pass(std::time::Duration::from_secs(1));
        passed += 1;
    }
    assert_eq!((passed, connection.statuses()), (60, vec![408]));
    assert!(connection.text().contains("Connection: close"));
}
