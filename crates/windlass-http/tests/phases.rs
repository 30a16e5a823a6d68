//! The end of a connection in each phase: by the client, by a time-out, by a stop.

mod common;
#[path = "common/reader.rs"]
mod reader;

use std::time::Duration;

use common::{Connection, open};
use reader::{Ending, read_answers};
use windlass::Instant;
use windlass::session::{Input, Next, Progress, Service, Session, SessionContext};
use windlass_http::{
    Answered, BodySink, BodyWriter, Produced, Request, Responder, Response, ResponseError, Status,
};

const GET: &[u8] = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

/// A sink that takes anything.
#[derive(Debug)]
struct Any;

impl BodySink for Any {
    fn data(&mut self, _: &[u8]) -> Result<(), Response> {
        Ok(())
    }
}

fn waiting(_: &mut BodyWriter<'_, '_>) -> Produced {
    Produced::Pending
}

fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    match request.path() {
        "/collect" => {
            Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))))
        }
        "/beside" => Ok(response.upload(Any).start(Status::OK).body("early")),
        "/beside-stream" => Ok(response.upload(Any).start(Status::OK).stream(waiting)),
        "/job" => Ok(response.job(|| Response::new(Status::OK).body("job"))),
        "/upgrade" => response.upgrade("test", &[], Other::default()),
        path => Ok(response.start(Status::OK).body(path)),
    }
}

fn post(path: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab").into_bytes()
}

/// What was answered so far, and whether the last says that the connection ends.
fn answered<S: Service>(connection: &Connection<S>) -> (Vec<u16>, bool) {
    let answers = read_answers(&connection.sent, Ending::Aborted);
    let closes = answers.last().is_some_and(|answer| answer.closes);
    (answers.iter().map(|answer| answer.status).collect(), closes)
}

#[test]
fn pf31_stop_lets_a_body_come_and_be_answered_with_a_close_notice() {
    let mut connection = open(handle);
    connection.feed(&post("/collect")).stop();
    assert!(!connection.closed);
    connection.feed(b"cd").feed(GET);
    assert_eq!(answered(&connection), (vec![200], true));
    assert!(connection.closed);
}

#[test]
fn pf31_stop_lets_a_body_beside_an_answer_come_and_then_closes() {
    let mut connection = open(handle);
    connection.feed(&post("/beside")).stop();
    assert!(!connection.closed);
    connection.feed(b"cd").feed(GET);
    assert_eq!(answered(&connection), (vec![200], false));
    assert!(connection.closed);
}

#[test]
fn pf31_stop_while_a_body_is_dropped_closes_in_order_and_not_as_if_idle() {
    let mut connection = open(handle);
    connection.feed(&post("/"));
    assert_eq!(
        (answered(&connection).0, connection.flushes),
        (vec![200], 0)
    );
    connection.stop();
    // By way of the output, so that the driver does not take the connection for idle.
    assert_eq!(
        (connection.flushes, connection.closed, connection.aborted),
        (1, true, false)
    );
}

#[test]
fn pf34_end_of_input_in_each_phase_ends_the_connection() {
    for (path, statuses, aborted) in [
        ("/collect", vec![], false),
        ("/beside", vec![200], false),
        ("/", vec![200], false),
    ] {
        let mut connection = open(handle);
        connection.feed(&post(path)).end();
        assert_eq!(answered(&connection).0, statuses, "{path}");
        assert_eq!(
            (connection.closed, connection.aborted),
            (true, aborted),
            "{path}"
        );
    }
}

#[test]
fn pf33_body_that_stops_coming_ends_the_connection_in_each_phase() {
    for (path, statuses, aborted) in [
        ("/collect", vec![408], false),
        ("/beside", vec![200], false),
        ("/", vec![200], false),
        ("/beside-stream", vec![200], true),
    ] {
        let mut connection = open(handle);
        connection.feed(&post(path)).pass(Duration::from_secs(59));
        assert!(!connection.closed, "{path}");
        connection.pass(Duration::from_secs(1));
        assert_eq!(answered(&connection).0, statuses, "{path}");
        assert_eq!(
            (connection.closed, connection.aborted),
            (true, aborted),
            "{path}"
        );
    }
}

#[test]
fn time_out_of_nothing_while_a_job_runs() {
    let mut connection = open(handle);
    connection.hold_jobs = true;
    connection
        .feed(b"GET /job HTTP/1.1\r\nHost: h\r\n\r\n")
        .pass(Duration::from_secs(10_000));
    connection.run_held_job();
    assert_eq!(answered(&connection).0, [200]);
    connection.pass(Duration::from_secs(74));
    assert!(!connection.closed, "idle time begins behind the answer");
    connection.pass(Duration::from_secs(1));
    assert!(connection.closed);
}

/// Another protocol, which notes what it is told.
#[derive(Debug, Default)]
struct Other {
    deadline: Option<Instant>,
}

impl Session for Other {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        cx.output.push(input.bytes);
        if input.ended {
            cx.output.push(b"[ended]");
        }
        self.deadline = Some(cx.now.monotonic + Duration::from_secs(5));
        Progress {
            consumed: input.bytes.len(),
            next: if input.ended { Next::Close } else { Next::Read },
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        cx.output.push(b"[expired]");
        self.deadline = None;
        Next::Read
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        cx.output.push(b"[stopped]");
        Next::Close
    }
}

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: x, Upgrade\r\nUpgrade: test\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";

#[test]
fn upgraded_session_gets_what_was_sent_behind_the_request_and_all_that_follows() {
    for step in [1, 1000] {
        let mut connection = open(handle);
        let input = format!("{UPGRADE}GET / HTTP/1.1\r\n");
        for piece in input.as_bytes().chunks(step) {
            connection.feed(piece);
        }
        connection.feed(b"more").end();
        assert_eq!(
            connection.text(),
            format!("{SWITCHED}GET / HTTP/1.1\r\nmore[ended]")
        );
        assert!(connection.closed);
    }
}

#[test]
fn upgraded_session_keeps_its_own_deadlines_and_is_told_of_the_stop() {
    let mut connection = open(handle);
    connection.feed(UPGRADE.as_bytes());
    let due = connection.now.monotonic + Duration::from_secs(5);
    assert_eq!(connection.session.deadline(), Some(due));
    connection.pass(Duration::from_secs(5)).stop();
    assert_eq!(connection.text(), format!("{SWITCHED}[expired][stopped]"));
}

#[test]
fn upgrade_that_was_not_offered_is_500() {
    for request in [
        "GET /upgrade HTTP/1.1\r\nHost: h\r\nUpgrade: test\r\n\r\n",
        "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\n",
        "GET /upgrade HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n",
        "POST /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: test\r\n\
         Content-Length: 1\r\n\r\na",
    ] {
        let mut connection = open(handle);
        connection.feed(request.as_bytes());
        assert_eq!(answered(&connection).0, [500], "{request}");
    }
}

#[test]
fn interim_answers_go_ahead_to_http11_only_and_are_checked() {
    let interim = |_: &Request<'_>, mut response: Responder<'_>| {
        for code in [99, 100, 101, 200] {
            assert_eq!(response.interim(code, &[]), Err(ResponseError::NotInterim));
        }
        assert!(response.interim(103, &[("Content-Length", "1")]).is_err());
        assert!(response.interim(103, &[("A", "b\r\n")]).is_err());
        response.interim(103, &[("Link", "</a>")])?;
        response.interim(102, &[])?;
        Ok(response.start(Status::OK).body("final"))
    };
    let mut connection = open(interim);
    connection.feed(GET);
    let answer = &read_answers(&connection.sent, Ending::Closed)[0];
    assert_eq!(
        (answer.interim.as_slice(), answer.status),
        (&[103, 102][..], 200)
    );
    let mut connection = open(interim);
    connection.feed(b"GET / HTTP/1.0\r\n\r\n");
    assert!(connection.text().starts_with("HTTP/1.1 200 OK\r\n"));
}
