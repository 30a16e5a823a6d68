//! When a connection ends: time-outs, half-close, graceful stop, jobs.

mod common;

use std::time::Duration;

use common::{Connection, TestHandler, answers, test_service};
use windlass::session::Session;
use windlass_http::{HttpConfig, HttpService};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn pf33_silent_connection_is_closed_after_the_header_timeout() {
    let mut connection = Connection::open(&test_service());
    connection.pass(secs(29));
    assert!(!connection.closed);
    connection.pass(secs(1));
    assert!(connection.closed && connection.sent.is_empty());
}

#[test]
fn pf33_trickled_head_does_not_put_the_deadline_off() {
    let mut connection = Connection::open(&test_service());
    connection.feed(GET);
    connection.pass(secs(60));
    let mut passed = 0;
    while !connection.closed {
        connection.feed(b"G").pass(secs(1));
        passed += 1;
    }
    assert_eq!(passed, 30);
    assert_eq!(connection.statuses(), [200, 408]);
    assert!(connection.text().contains("Connection: close"));
}

#[test]
fn pf33_idle_connection_is_closed_without_an_answer() {
    let mut connection = Connection::open(&test_service());
    connection.feed(GET).pass(secs(74));
    assert!(!connection.closed);
    connection.feed(GET).pass(secs(74));
    assert!(!connection.closed);
    connection.pass(secs(1));
    assert!(connection.closed);
    assert_eq!(connection.statuses(), [200, 200]);
}

#[test]
fn pf33_body_must_keep_a_least_rate() {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
    let mut slow = Connection::open(&test_service());
    slow.feed(head);
    let mut passed = 0;
    while !slow.closed {
        slow.feed(b"a").pass(secs(1));
        passed += 1;
    }
    assert_eq!(passed, 60);

    let mut steady = Connection::open(&test_service());
    steady.feed(head);
    for _ in 0..200 {
        steady.feed(&[b'a'; 5000]).pass(secs(1));
        assert!(!steady.closed);
    }
    steady.feed(GET);
    assert_eq!(steady.statuses(), [200, 200]);
}

#[test]
fn pf33_each_timeout_can_be_switched_off() {
    let mut config = HttpConfig::default();
    config.timeouts.header = None;
    config.timeouts.idle = None;
    config.timeouts.body = None;
    let mut connection =
        Connection::open(&HttpService::new(common::TestHandler::default(), config));
    assert_eq!(connection.session.deadline(), None);
    connection.feed(b"POST / HTTP/1.1\r\n");
    assert_eq!(connection.session.deadline(), None);
    connection.feed(b"Host: h\r\nContent-Length: 2\r\n\r\na");
    assert_eq!(connection.session.deadline(), None);
    connection.feed(b"b");
    assert_eq!(connection.session.deadline(), None);
}

#[test]
fn pf34_complete_requests_before_a_half_close_are_answered() {
    let mut connection = Connection::open(&test_service());
    connection
        .feed(GET)
        .feed(b"GET /job?late HTTP/1.1\r\nHost: h\r\n\r\n")
        .end();
    let found = answers(&connection.sent);
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].body, b"late");
    assert!(connection.closed);
}

#[test]
fn pf34_job_that_runs_at_half_close_is_answered() {
    let mut connection = Connection::open(&test_service());
    connection.hold_jobs = true;
    connection
        .feed(b"GET /job?late HTTP/1.1\r\nHost: h\r\n\r\n")
        .end();
    assert!(!connection.closed && connection.sent.is_empty());
    connection.run_held_job();
    assert_eq!(answers(&connection.sent)[0].body, b"late");
    assert!(connection.closed);
}

#[test]
fn pf34_partial_request_before_a_half_close_ends_the_connection() {
    for partial in [
        &b""[..],
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"\r",
    ] {
        let mut connection = Connection::open(&test_service());
        connection.feed(partial).end();
        assert!(connection.closed && connection.sent.is_empty());
    }
    let mut connection = Connection::open(&test_service());
    connection
        .feed(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc")
        .end();
    assert!(connection.closed);
    assert_eq!(connection.statuses(), [200]);
}

#[test]
fn pf31_stop_closes_idle_connections_at_once() {
    for input in [GET.to_vec(), [GET, b"GET / HT"].concat()] {
        let mut connection = Connection::open(&test_service());
        connection.feed(&input).stop();
        assert!(connection.closed);
    }
}

#[test]
fn pf31_stop_closes_connections_without_a_request_at_once() {
    for input in [&b""[..], b"GET / HT"] {
        let mut connection = Connection::open(&test_service());
        connection.feed(input).stop();
        assert!(connection.closed && connection.sent.is_empty());
    }
}

#[test]
fn stop_waits_for_the_first_request_of_a_new_connection_if_asked_to() {
    let moment = Duration::from_millis(500);
    let mut config = HttpConfig::default();
    config.timeouts.first_request_at_stop = moment;
    let service = HttpService::new(TestHandler::default(), config);
    for (input, statuses) in [(&b""[..], &[][..]), (b"GET / HT", &[408])] {
        let mut new = Connection::open(&service);
        new.pass(moment / 2).feed(input).stop();
        assert!(!new.closed, "its first request may be on its way");
        new.pass(moment / 2);
        assert!(new.closed);
        assert_eq!(new.statuses(), statuses);
        let mut old = Connection::open(&service);
        old.pass(moment).feed(input).stop();
        assert!(old.closed);
    }
    let mut connection = Connection::open(&service);
    connection.feed(&GET[..10]).stop().feed(&GET[10..]);
    let found = answers(&connection.sent);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].header("connection"), Some("close"));
    assert!(connection.closed);
}

#[test]
fn pf31_stop_lets_a_running_job_finish_with_a_close_notice() {
    let mut connection = Connection::open(&test_service());
    connection.hold_jobs = true;
    connection
        .feed(b"GET /job?x HTTP/1.1\r\nHost: h\r\n\r\n")
        .feed(GET)
        .stop();
    assert!(!connection.closed);
    connection.run_held_job();
    let found = answers(&connection.sent);
    assert_eq!(found.len(), 1, "no new request is started");
    assert_eq!(found[0].header("connection"), Some("close"));
    assert!(connection.closed);
}

#[test]
fn requests_behind_a_job_wait_for_it() {
    let mut connection = Connection::open(&test_service());
    connection.hold_jobs = true;
    connection
        .feed(b"GET /job?first HTTP/1.1\r\nHost: h\r\n\r\nGET /second HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(connection.sent.is_empty());
    assert_eq!(connection.session.deadline(), None, "a job has no deadline");
    connection.run_held_job();
    let bodies: Vec<_> = answers(&connection.sent)
        .into_iter()
        .map(|a| a.body)
        .collect();
    assert_eq!(bodies, [&b"first"[..], b"/second"]);
}

#[test]
fn job_whose_result_is_no_response_becomes_500() {
    let mut connection = Connection::open(&test_service());
    connection.hold_jobs = true;
    connection.feed(b"GET /job?x HTTP/1.1\r\nHost: h\r\n\r\n");
    connection.held = None;
    connection.complete(Box::new("panicked"));
    assert_eq!(connection.statuses(), [500]);
}

#[test]
fn nothing_is_read_after_the_end() {
    let mut connection = Connection::open(&test_service());
    connection.feed(b"GET / HTTP/1.0\r\n\r\n").feed(GET);
    assert_eq!(connection.statuses(), [200]);
}
