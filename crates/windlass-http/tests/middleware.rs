//! Filters in front of a handler: headers, cross-origin sharing, health checks.

mod common;

use std::sync::{Arc, Mutex};

use common::{Answer, Connection, TestHandler, answers};
use windlass::session::Service;
use windlass_http::middleware::{Cors, Filter, Filtered, FixedHeaders, Health, HealthState};
use windlass_http::{AccessLog, HttpConfig, HttpService, LogFormat};

fn behind<F: Filter>(filter: F) -> HttpService<Filtered<F, TestHandler>> {
    let handler = Filtered::new(filter, TestHandler::default());
    HttpService::new(handler, HttpConfig::default())
}

fn ask<S: Service>(service: &S, request: &str) -> Answer {
    let mut connection = Connection::open(service);
    connection.feed(format!("{request}\r\nHost: h\r\n\r\n").as_bytes());
    answers(&connection.sent).remove(0)
}

#[test]
fn fixed_headers_are_on_each_answer_that_a_handler_could_give() {
    let mut headers = FixedHeaders::default();
    headers.add("X-A", "1").expect("valid");
    headers.add("X-B", "2").expect("valid");
    assert!(headers.add("Date", "now").is_err());
    let service = behind(headers);
    for (request, status) in [
        ("GET /fixed HTTP/1.1", 200),
        ("GET /job?x HTTP/1.1", 200),
        ("GET /other HTTP/1.1", 200),
        ("GET /status?404 HTTP/1.1", 404),
        ("GET /bad-header HTTP/1.1", 500),
        ("PUT / HTTP/1.1", 405),
        ("OPTIONS * HTTP/1.1", 204),
    ] {
        let answer = ask(&service, request);
        assert_eq!(answer.status, status, "{request}");
        assert_eq!(answer.header("x-a"), Some("1"), "{request}");
        assert_eq!(answer.header("x-b"), Some("2"), "{request}");
    }
    let refused = ask(&service, "PUT / HTTP/1.1");
    assert_eq!(refused.header("allow"), Some("GET, HEAD, POST"));
}

#[test]
fn headers_of_one_answer_are_not_on_the_next() {
    let service = behind(Cors::new(["https://a.example"]).expect("valid"));
    let mut connection = Connection::open(&service);
    connection.feed(
        b"GET /fixed HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n\
          GET /job HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n\
          GET /fixed HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let answers = answers(&connection.sent);
    let allowed = |at: usize| answers[at].header("access-control-allow-origin");
    assert_eq!(allowed(0), Some("https://a.example"));
    assert_eq!(allowed(1), Some("https://a.example"));
    assert_eq!(allowed(2), None);
}

#[test]
fn listed_origins_may_read_and_others_may_not() {
    let service = behind(Cors::new(["https://a.example", "http://b:8080"]).expect("valid"));
    for (origin, allowed) in [
        ("https://a.example", Some("https://a.example")),
        ("http://b:8080", Some("http://b:8080")),
        ("http://a.example", None),
        ("https://a.example.evil", None),
        ("null", None),
    ] {
        let answer = ask(&service, &format!("GET / HTTP/1.1\r\nOrigin: {origin}"));
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("access-control-allow-origin"),
            allowed,
            "{origin}"
        );
        assert_eq!(answer.header("vary"), Some("Origin"));
        assert_eq!(
            answer.header("access-control-expose-headers").is_some(),
            allowed.is_some()
        );
    }
}

#[test]
fn with_a_star_every_origin_may_read_and_caches_need_not_tell_them_apart() {
    let service = behind(Cors::new(["https://a.example", "*"]).expect("valid"));
    let answer = ask(&service, "GET / HTTP/1.1\r\nOrigin: null");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("vary"), None);
    let plain = ask(&service, "GET / HTTP/1.1");
    assert_eq!(plain.header("access-control-allow-origin"), None);
}

#[test]
fn a_preflight_is_answered_and_other_options_are_not() {
    let service = behind(Cors::new(["https://a.example"]).expect("valid"));
    let asking = "OPTIONS /x HTTP/1.1\r\nAccess-Control-Request-Method: POST\r\n\
                  Access-Control-Request-Headers: x-one, x-two";
    let answer = ask(&service, &format!("{asking}\r\nOrigin: https://a.example"));
    assert_eq!(answer.status, 204);
    let is = |name, value| assert_eq!(answer.header(name), Some(value));
    is("access-control-allow-origin", "https://a.example");
    is("access-control-allow-methods", "GET, HEAD, POST");
    is("access-control-allow-headers", "x-one, x-two");
    is("access-control-max-age", "600");
    assert_eq!(answer.header("access-control-allow-credentials"), None);

    let other = ask(&service, &format!("{asking}\r\nOrigin: https://b.example"));
    assert_eq!(other.status, 204);
    for name in ["origin", "methods", "headers"] {
        assert_eq!(other.header(&format!("access-control-allow-{name}")), None);
    }
    let no_preflight = ask(&service, "OPTIONS /x HTTP/1.1\r\nOrigin: https://a.example");
    assert_eq!(no_preflight.status, 405);
}

#[test]
fn a_health_check_is_answered_without_a_line_in_the_log_and_fails_when_stopping() {
    let state = HealthState::default();
    let sink = Arc::new(Mutex::new(Vec::new()));
    let mut config = HttpConfig::default();
    config.access_log = Some(AccessLog::new(sink.clone(), LogFormat::Common));
    let filter = Some(Health::new("/healthz", state.clone()));
    let service = HttpService::new(Filtered::new(filter, TestHandler::default()), config);
    let mut connection = Connection::open(&service);
    connection.feed(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n");
    state.set_stopping();
    connection.feed(
        b"GET /healthz?x HTTP/1.1\r\nHost: h\r\n\r\n\
          POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n\
          GET /healthz/ HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    let answers = answers(&connection.sent);
    let is = |at: usize, status, body: &[u8]| {
        assert_eq!((answers[at].status, &answers[at].body[..]), (status, body));
    };
    is(0, 200, b"ok\n");
    is(1, 503, b"stopping\n");
    is(2, 200, b"/healthz");
    is(3, 200, b"/healthz/");
    service.settle(&mut connection.local, connection.now);
    let lines = String::from_utf8(sink.lock().expect("a lock").clone()).expect("ASCII");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(!lines.contains("GET /healthz HTTP"));
    assert_eq!(
        connection.local.answers().collect::<Vec<_>>(),
        [(200, 3), (503, 1)]
    );
}

#[test]
fn filters_are_asked_in_order_and_the_first_answer_counts() {
    let mut first = FixedHeaders::default();
    first.add("X-First", "1").expect("valid");
    let mut last = FixedHeaders::default();
    last.add("X-Last", "1").expect("valid");
    let health = Health::new("/healthz", HealthState::default());
    let service = behind((first, None::<Cors>, Some(health), last));
    let checked = ask(&service, "GET /healthz HTTP/1.1");
    assert_eq!(checked.header("x-first"), Some("1"));
    assert_eq!(checked.header("x-last"), None);
    let passed = ask(&service, "GET /fixed HTTP/1.1");
    assert_eq!(passed.header("x-last"), Some("1"));
}
