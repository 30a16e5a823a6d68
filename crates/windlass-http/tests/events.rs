//! Server-sent events: form, signs of life, ends, clients that lag.

mod common;

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use common::Connection;
use windlass_http::{
    Broadcast, Event, EventError, EventSendError, EventSender, EventsConfig, Handler, HttpConfig,
    HttpService, Lag, Request, Responder, Status,
};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nLast-Event-ID: 41\r\n\r\n";

/// Answers with a stream of events each; senders, and the last id of each client, come out at the
/// other end.
fn service(config: EventsConfig) -> (HttpService<impl Handler>, Receiver<(EventSender, String)>) {
    let (senders, made) = mpsc::channel();
    let senders = Mutex::new(senders);
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        let last = request.last_event_id().unwrap_or_default().to_owned();
        let (answered, sender) = response.start(Status::OK).events(config);
        let senders = senders.lock().expect("no panic");
        senders.send((sender, last)).expect("listening");
        Ok(answered)
    };
    (HttpService::new(handler, HttpConfig::default()), made)
}

/// What has come of the body since the last call.
fn news<S: windlass::session::Service>(connection: &mut Connection<S>) -> String {
    connection.serve_notification();
    let text = connection.text();
    connection.sent.clear();
    let body = text.split_once("\r\n\r\n").map_or(&*text, |(head, body)| {
        if head.starts_with("HTTP/1.1") {
            body
        } else {
            &text
        }
    });
    let lines: Vec<_> = body.split("\r\n").skip(1).step_by(2).collect();
    lines.concat()
}

#[test]
fn a_stream_has_its_headers_and_begins_with_the_retry_time() {
    let mut config = EventsConfig::default();
    config.retry = Some(Duration::from_millis(2500));
    let (service, made) = service(config);
    let mut connection = Connection::open(&service);
    connection.feed(GET);
    let (sender, last) = made.recv().expect("a sender");
    assert_eq!(last, "41");
    let head = connection.text();
    assert!(
        head.contains("\r\nContent-Type: text/event-stream\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nCache-Control: no-cache\r\n"), "{head}");
    assert_eq!(news(&mut connection), "retry: 2500\n\n");
    sender.send(&Event::new("a\nb").id("42")).expect("room");
    assert_eq!(news(&mut connection), "id: 42\ndata: a\ndata: b\n\n");
    let forged = Event::new("").event("x\ndata: y");
    let refused = sender.send(&forged);
    assert_eq!(refused, Err(EventSendError::Invalid(EventError::Event)));
    assert_eq!(news(&mut connection), "");
}

#[test]
fn a_comment_is_sent_when_nothing_else_was_for_a_while() {
    let (service, made) = service(EventsConfig::default());
    let mut connection = Connection::open(&service);
    connection.feed(GET);
    let (sender, _) = made.recv().expect("a sender");
    connection.pass(Duration::from_secs(14));
    sender.send(&Event::new("x")).expect("room");
    assert_eq!(news(&mut connection), "data: x\n\n");
    connection.pass(Duration::from_secs(14));
    assert_eq!(news(&mut connection), "", "there was an event meanwhile");
    for _ in 0..3 {
        connection.pass(Duration::from_secs(1));
        assert_eq!(news(&mut connection), ":\n\n");
        connection.pass(Duration::from_secs(14));
        assert_eq!(news(&mut connection), "");
    }
}

#[test]
fn without_a_heartbeat_nothing_is_sent() {
    let mut config = EventsConfig::default();
    config.heartbeat = None;
    let (service, made) = service(config);
    let mut connection = Connection::open(&service);
    connection.feed(GET);
    let _sender = made.recv().expect("a sender");
    connection.pass(Duration::from_secs(100_000));
    assert_eq!(news(&mut connection), "");
    assert!(!connection.closed);
}

#[test]
fn the_stream_ends_with_its_sender_its_client_and_its_server() {
    // Each ends it; answers whether the body is whole.
    type End<S> = fn(&mut Connection<S>, EventSender);
    fn ends<S: windlass::session::Service>() -> [(End<S>, bool, &'static str); 3] {
        [
            (|_, sender| drop(sender), false, "sender"),
            (|connection, _| _ = connection.end(), true, "client"),
            (|connection, _| _ = connection.stop(), true, "server"),
        ]
    }
    let (service, made) = service(EventsConfig::default());
    for (end, closes, who) in ends() {
        let mut connection = Connection::open(&service);
        connection.feed(GET);
        let (sender, _) = made.recv().expect("a sender");
        sender.send(&Event::new("last")).expect("room");
        if who != "client" {
            assert!(!connection.text().contains("last"), "it was not called yet");
        }
        end(&mut connection, sender);
        connection.serve_notification();
        assert!(connection.text().ends_with("\r\n0\r\n\r\n"), "{who}");
        assert_eq!(connection.text().contains("last"), who != "client", "{who}");
        assert_eq!(connection.closed, closes, "{who}");
    }
}

#[test]
fn a_client_that_lags_is_reset_or_goes_without() {
    for (lag, closes) in [(Lag::Disconnect, true), (Lag::Skip, false)] {
        let mut config = EventsConfig::default();
        config.queue_bytes = 30;
        config.lag = lag;
        let (service, made) = service(config);
        let mut connection = Connection::open(&service);
        connection.feed(GET);
        let (sender, _) = made.recv().expect("a sender");
        sender.send(&Event::new("0123456789")).expect("room");
        let lagging = sender.send(&Event::new("0123456789"));
        assert_eq!(lagging, Err(EventSendError::Lagging));
        assert_eq!(sender.is_closed(), closes);
        connection.serve_notification();
        assert_eq!(connection.closed, closes);
        if !closes {
            sender.send(&Event::new("more")).expect("room again");
        }
    }
}

#[test]
fn a_broadcast_reaches_all_and_forgets_who_is_gone() {
    let mut config = EventsConfig::default();
    config.queue_bytes = 100;
    let (service, made) = service(config);
    let news_of_all = Broadcast::default();
    let mut connections: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = Connection::open(&service);
            connection.feed(GET);
            news_of_all.add(made.recv().expect("a sender").0);
            connection
        })
        .collect();
    assert_eq!(news_of_all.send(&Event::new("all")), Ok(4));
    for connection in &mut connections {
        assert_eq!(news(connection), "data: all\n\n");
    }
    drop(connections.pop());
    assert_eq!(news_of_all.client_count(), 3);
    let long = "x".repeat(60);
    assert_eq!(news_of_all.send(&Event::new(&long)), Ok(3));
    connections[1].serve_notification();
    connections[2].serve_notification();
    assert_eq!(
        news_of_all.send(&Event::new(&long)),
        Ok(2),
        "the first lags"
    );
    assert_eq!(news_of_all.client_count(), 2);
    assert!(connections[0].serve_notification() && connections[0].closed);
    assert_eq!(
        news_of_all.send(&Event::new("").id("\n")),
        Err(EventError::Id)
    );
    news_of_all.finish();
    assert_eq!(news_of_all.client_count(), 0);
    for connection in &mut connections[1..] {
        connection.serve_notification();
        assert!(connection.text().ends_with("\r\n0\r\n\r\n") && !connection.closed);
    }
}

#[test]
fn head_has_the_headers_and_its_sender_is_closed() {
    let (service, made) = service(EventsConfig::default());
    let mut connection = Connection::open(&service);
    connection.feed(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    let (sender, _) = made.recv().expect("a sender");
    assert!(sender.is_closed());
    assert_eq!(sender.send(&Event::new("")), Err(EventSendError::Closed));
    assert!(
        connection
            .text()
            .ends_with("Transfer-Encoding: chunked\r\n\r\n")
    );
    assert!(!connection.closed);
}
