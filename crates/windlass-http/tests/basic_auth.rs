//! Name and password in front of a handler.

#![cfg(feature = "basic-auth")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Connection, TestHandler, answers};
use windlass::session::{JobFailed, Service};
use windlass_http::middleware::{BasicAuth, Filtered, FixedHeaders, Users};
use windlass_http::{AccessLog, HttpConfig, HttpService, LogFormat, UserNames};

type Guarded = HttpService<Filtered<(FixedHeaders, BasicAuth), TestHandler>>;

/// Of "secret", at the least cost.
const ENTRY: &str = "ann:$2y$04$eCsh8nJfEyLV9cVO3t70eObOkj7IeseVsLHAP2Trs1w/UqVca8Wmq\n";

fn service(config: HttpConfig) -> Guarded {
    let users = Users::parse(ENTRY).expect("a good entry");
    let auth = BasicAuth::new(users, "the \"realm\"").expect("valid");
    let mut headers = FixedHeaders::default();
    headers.add("X-A", "1").expect("valid");
    HttpService::new(
        Filtered::new((headers, auth), TestHandler::default()),
        config,
    )
}

fn get(target: &str, credentials: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: {credentials}\r\n\r\n")
}

/// "ann:secret"
const RIGHT: &str = "Basic YW5uOnNlY3JldA==";
/// "ann:Secret"
const WRONG: &str = "Basic YW5uOlNlY3JldA==";
/// "bob:secret"
const UNKNOWN: &str = "Basic Ym9iOnNlY3JldA==";

#[test]
fn the_right_password_is_verified_once_and_wrong_ones_each_time() {
    let service = service(HttpConfig::default());
    let mut connection = Connection::open(&service);
    connection.hold_jobs = true;
    let mut ask = |credentials: &str| {
        let before = connection.sent.len();
        connection.feed(get("/fixed", credentials).as_bytes());
        let verified = connection.held.is_some();
        if verified {
            assert_eq!(connection.sent.len(), before, "answered before it is known");
            connection.run_held_job();
        }
        let mut answers = answers(&connection.sent[before..]);
        assert_eq!(answers.len(), 1);
        (answers.remove(0), verified)
    };
    for _ in 0..2 {
        for credentials in [WRONG, UNKNOWN] {
            let (answer, verified) = ask(credentials);
            assert!(answer.status == 401 && verified, "{credentials}");
            let challenge = "Basic realm=\"the \\\"realm\\\"\", charset=\"UTF-8\"";
            assert_eq!(answer.header("www-authenticate"), Some(challenge));
            assert_eq!(answer.header("x-a"), Some("1"));
        }
    }
    for verified in [true, false, false] {
        let (answer, was_verified) = ask(RIGHT);
        assert_eq!((answer.status, was_verified), (200, verified));
        assert_eq!(answer.head.matches("X-A").count(), 1);
    }
    // Schemes are the same in any case.
    assert_eq!(ask("bAsIc YW5uOnNlY3JldA==").0.status, 200);
}

#[test]
fn beyond_so_many_that_wait_to_be_verified_others_are_put_off_until_one_is_gone() {
    let service = service(HttpConfig::default());
    let mut waiting = Vec::new();
    for _ in 0..128 {
        let mut connection = Connection::open(&service);
        connection.hold_jobs = true;
        connection.feed(get("/fixed", WRONG).as_bytes());
        assert!(connection.held.is_some());
        waiting.push(connection);
    }
    let mut late = Connection::open(&service);
    late.hold_jobs = true;
    let mut ask = || {
        late.feed(get("/fixed", RIGHT).as_bytes());
        if late.held.is_some() {
            late.run_held_job();
        }
        answers(&late.sent).pop().expect("an answer")
    };
    let answer = ask();
    let put_off = (answer.status, answer.header("retry-after"));
    assert_eq!(put_off, (503, Some("5")));
    // Its job goes with a connection that is cut.
    waiting.pop();
    assert_eq!(ask().status, 200);
    // Who is known has nothing to wait for.
    waiting[0].run_held_job();
    let mut another = Connection::open(&service);
    another.hold_jobs = true;
    another.feed(get("/fixed", WRONG).as_bytes());
    assert!(another.held.is_some());
    assert_eq!(ask().status, 200);
}

#[test]
fn without_credentials_nothing_is_verified() {
    let long = format!("Basic {}", "YW5u".repeat(2000));
    for credentials in [
        "",
        "Basic",
        "Basic !",
        "Basic YW5u",
        "Bearer YW5uOnNlY3JldA==",
        &long,
    ] {
        let service = service(HttpConfig::default());
        let mut connection = Connection::open(&service);
        connection.hold_jobs = true;
        connection.feed(get("/fixed", credentials).as_bytes());
        assert!(connection.held.is_none());
        assert_eq!(connection.statuses(), [401], "{credentials}");
    }
    // Two are as none: which of them counted?
    let service = service(HttpConfig::default());
    let mut connection = Connection::open(&service);
    let two = get("/fixed", &format!("{RIGHT}\r\nAuthorization: {RIGHT}"));
    connection.feed(two.as_bytes());
    assert_eq!(connection.statuses(), [401]);
}

#[test]
fn pipelined_requests_wait_for_the_verification_and_keep_their_order() {
    let service = service(HttpConfig::default());
    let mut connection = Connection::open(&service);
    connection.hold_jobs = true;
    let all = [
        get("/a", RIGHT),
        get("/b", RIGHT),
        get("/c", WRONG),
        get("/d", RIGHT),
    ]
    .concat();
    connection.feed(all.as_bytes()).end();
    assert!(connection.sent.is_empty());
    connection.run_held_job();
    assert_eq!(connection.statuses(), [200, 200]);
    connection.run_held_job();
    assert_eq!(connection.statuses(), [200, 200, 401, 200]);
    let bodies: Vec<_> = answers(&connection.sent)
        .into_iter()
        .map(|a| a.body)
        .collect();
    assert_eq!((&bodies[0][..], &bodies[3][..]), (&b"/a"[..], &b"/d"[..]));
    assert!(connection.closed);
}

#[test]
fn a_body_behind_the_head_is_still_framed_after_the_verification() {
    let service = service(HttpConfig::default());
    let mut connection = Connection::open(&service);
    let post = format!(
        "POST /p HTTP/1.1\r\nHost: h\r\nAuthorization: {RIGHT}\r\nContent-Length: 5\r\n\r\nGET /{}",
        get("/q", RIGHT)
    );
    for byte in post.bytes() {
        connection.feed(&[byte]);
    }
    assert_eq!(connection.statuses(), [200, 200]);
}

#[test]
fn a_verification_that_never_runs_is_500_and_the_end() {
    for result in [JobFailed::Cancelled, JobFailed::Panicked(Box::new("oh"))] {
        let service = service(HttpConfig::default());
        let mut connection = Connection::open(&service);
        connection.hold_jobs = true;
        let two = [get("/a", RIGHT), get("/b", RIGHT)].concat();
        connection.feed(two.as_bytes());
        connection.held = None;
        connection.complete(Box::new(result));
        assert_eq!(connection.statuses(), [500]);
        assert!(connection.closed);
    }
}

#[test]
fn a_stop_during_the_verification_lets_the_answer_be_given() {
    let service = service(HttpConfig::default());
    let mut connection = Connection::open(&service);
    connection.hold_jobs = true;
    connection.feed(get("/a", RIGHT).as_bytes()).stop();
    assert!(!connection.closed);
    connection.run_held_job();
    let answer = &answers(&connection.sent)[0];
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(connection.closed);
}

#[test]
fn the_log_names_who_was_let_in() {
    let sink = Arc::new(Mutex::new(Vec::new()));
    let mut config = HttpConfig::default();
    let log = AccessLog::new(sink.clone(), LogFormat::Common).user_names(UserNames::Basic);
    config.access_log = Some(log);
    let service = service(config);
    let mut connection = Connection::open(&service);
    for credentials in [RIGHT, WRONG] {
        connection.feed(get("/fixed", credentials).as_bytes());
    }
    connection.feed(get("/job", RIGHT).as_bytes());
    service.settle(&mut connection.local, connection.now);
    let lines = String::from_utf8(sink.lock().expect("a lock").clone()).expect("ASCII");
    let users: Vec<_> = lines.lines().map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(users, [Some("ann"), Some("-"), Some("ann")], "{lines}");
}
