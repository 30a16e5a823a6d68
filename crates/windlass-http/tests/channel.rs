//! Bodies that other threads send through a channel: order, ends, back-pressure.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use common::Connection;
use common::server::Server;
use windlass_http::{
    BodySender, HttpConfig, HttpService, Request, Responder, Status, TrySendError, body_channel,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
const HTTP_1_0: &str = "GET / HTTP/1.0\r\n\r\n";

/// Answers with the body of a channel each; the senders come out at the other end.
fn service(
    capacity_bytes: usize,
) -> (
    HttpService<impl windlass_http::Handler>,
    Receiver<BodySender>,
) {
    let (senders, made) = mpsc::channel();
    let senders = Mutex::new(senders);
    let handler = move |_: &Request<'_>, response: Responder<'_>| {
        let (sender, body) = body_channel(capacity_bytes);
        senders
            .lock()
            .expect("no panic")
            .send(sender)
            .expect("listening");
        Ok(response.start(Status::OK).stream(body))
    };
    (HttpService::new(handler, HttpConfig::default()), made)
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn pieces_arrive_in_order_and_wake_the_connection_only_when_it_waits() {
    let (service, made) = service(100);
    let mut connection = Connection::open(&service);
    connection.feed(GET.as_bytes());
    let sender = made.recv().expect("a sender");
    assert!(!connection.serve_notification());
    sender.try_send(bytes("one")).expect("room");
    sender.try_send(bytes("two")).expect("room");
    assert!(connection.serve_notification() && !connection.serve_notification());
    assert!(connection.text().ends_with("\r\n\r\n6\r\nonetwo\r\n"));
    sender.try_send(Bytes::new()).expect("open");
    assert!(!connection.serve_notification(), "nothing was sent");
    sender.finish_with(&[("Sum", "2")]).expect("valid");
    assert!(connection.serve_notification());
    assert!(connection.text().ends_with("two\r\n0\r\nSum: 2\r\n\r\n"));
    assert!(!connection.closed, "the connection is kept");
    assert!(sender.is_closed());
    assert_eq!(
        sender.try_send(bytes("late")),
        Err(TrySendError::Closed(bytes("late")))
    );
    connection.feed(GET.as_bytes());
    made.recv().expect("the next request is served").finish();
}

#[test]
fn trailers_that_are_not_valid_do_not_end_the_body() {
    let (service, made) = service(100);
    let mut connection = Connection::open(&service);
    connection.feed(GET.as_bytes());
    let sender = made.recv().expect("a sender");
    for (name, value) in [("a b", "v"), ("a", "v\r\nb: c"), ("Content-Length", "1")] {
        assert!(sender.finish_with(&[("ok", "v"), (name, value)]).is_err());
    }
    assert!(!sender.is_closed() && !connection.serve_notification());
    sender.finish();
    assert!(connection.serve_notification() && !connection.closed);
}

#[test]
fn a_sender_that_aborts_or_is_dropped_resets_the_connection() {
    for abort in [BodySender::abort as fn(&BodySender), |_| {}] {
        let (service, made) = service(100);
        let mut connection = Connection::open(&service);
        connection.feed(GET.as_bytes());
        let sender = made.recv().expect("a sender");
        sender.try_send(bytes("part")).expect("room");
        abort(&sender);
        drop(sender);
        assert!(connection.serve_notification() && connection.closed);
        assert!(!connection.text().ends_with("0\r\n\r\n"));
    }
}

#[test]
fn a_finished_body_is_whole_though_its_sender_is_dropped_at_once() {
    for (request, end) in [
        (GET, "5\r\nwhole\r\n0\r\n\r\n"),
        (HTTP_1_0, "\r\n\r\nwhole"),
    ] {
        let (service, made) = service(100);
        let mut connection = Connection::open(&service);
        connection.feed(request.as_bytes());
        let sender = made.recv().expect("a sender");
        sender.try_send(bytes("whole")).expect("room");
        sender.finish();
        drop(sender);
        assert!(connection.serve_notification());
        assert!(connection.text().ends_with(end), "{}", connection.text());
        assert_eq!(connection.closed, request == HTTP_1_0);
    }
}

#[test]
fn the_sender_learns_that_nobody_wants_the_body() {
    let told = Arc::new(AtomicU64::new(0));
    let (service, made) = service(100);
    let mut connection = Connection::open(&service);
    connection.feed(HEAD.as_bytes());
    assert!(
        made.recv().expect("a sender").is_closed(),
        "HEAD has no body"
    );
    connection.feed(GET.as_bytes());
    let sender = made.recv().expect("a sender");
    let callback = Arc::clone(&told);
    sender.on_change(move || {
        callback.fetch_add(1, Ordering::Relaxed);
    });
    drop(connection);
    assert!(sender.is_closed());
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(sender.send(bytes("x")).is_err());
}

#[test]
fn the_sender_learns_that_the_server_stops() {
    let (service, made) = service(100);
    let mut connection = Connection::open(&service);
    connection.feed(GET.as_bytes());
    let sender = Arc::new(made.recv().expect("a sender"));
    let weak = Arc::downgrade(&sender);
    sender.on_change(move || {
        if let Some(sender) = weak.upgrade()
            && sender.is_stopping()
        {
            sender.finish();
        }
    });
    connection.stop();
    connection.serve_notification();
    assert!(connection.closed);
    assert!(connection.text().ends_with("0\r\n\r\n"));
}

#[test]
fn a_channel_is_full_until_the_connection_takes_from_it() {
    let (service, made) = service(10);
    let mut connection = Connection::open(&service);
    connection.feed(GET.as_bytes());
    let sender = made.recv().expect("a sender");
    assert_eq!(sender.free_bytes(), 10);
    sender.try_send(bytes("12345678")).expect("room");
    assert_eq!(sender.free_bytes(), 2);
    let refused = sender.try_send(bytes("abc"));
    assert_eq!(refused, Err(TrySendError::Full(bytes("abc"))));
    let (told, news) = mpsc::channel();
    // At the end it is told once more, when nobody listens.
    sender.on_change(move || told.send(()).unwrap_or_default());
    connection.serve_notification();
    news.try_recv().expect("told of room");
    sender
        .try_send(refused.expect_err("full").into_inner())
        .expect("room");
}

/// Sends without end, as far as there is room; counts what it sent. Ends when the client is gone.
fn produce(sender: &BodySender, produced: &AtomicU64, quiet: &mpsc::Sender<()>) {
    let piece = Bytes::from(vec![b'x'; 10_000]);
    let (told, news) = mpsc::channel();
    sender.on_change(move || {
        // The producer has ended.
        let _ = told.send(());
    });
    loop {
        match sender.try_send(piece.clone()) {
            Ok(()) => {
                produced.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            Err(TrySendError::Full(_)) => {
                // Nobody takes any more for a while: the client's side is full.
                while let Err(RecvTimeoutError::Timeout) =
                    news.recv_timeout(Duration::from_millis(300))
                {
                    // The test has seen enough.
                    let _ = quiet.send(());
                }
            }
            _ => return,
        }
    }
}

#[test]
fn pf37_slow_readers_hold_up_their_producers_in_bounded_memory_until_they_read_on() {
    const CLIENTS: u64 = 10;
    /// The channel, the connection's output, and what the kernel buffers at both ends.
    const HELD_BYTES_MAX: u64 = 16 * 1024 * 1024;
    let (service, made) = service(64 * 1024);
    let server = Server::start(service);
    let produced = Arc::new(AtomicU64::new(0));
    let (quiet, quieted) = mpsc::channel();
    let mut clients = Vec::new();
    let mut producers = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(server.address).expect("connect");
        client.write_all(GET.as_bytes()).expect("write");
        clients.push(client);
        let sender = made.recv().expect("a sender");
        let (produced, quiet) = (Arc::clone(&produced), quiet.clone());
        producers.push(thread::spawn(move || produce(&sender, &produced, &quiet)));
    }
    for _ in 0..CLIENTS {
        quieted.recv().expect("a producer that waits");
    }
    let held = produced.load(Ordering::Relaxed);
    assert!(held <= CLIENTS * HELD_BYTES_MAX, "{held} bytes are held");
    // One reads on: it gets far more than was held for it.
    let mut buf = vec![0; 64 * 1024];
    let mut read = 0;
    while read < 3 * HELD_BYTES_MAX {
        read += clients[0].read(&mut buf).expect("read") as u64;
    }
    drop(clients);
    for producer in producers {
        producer.join().expect("it ends when its client is gone");
    }
    server.stop();
}

#[test]
fn blocked_producers_in_many_threads_lose_no_wake_up() {
    const PIECES: usize = 20_000;
    let (service, made) = service(64);
    let server = Server::start(service);
    let mut client = TcpStream::connect(server.address).expect("connect");
    client.write_all(HTTP_1_0.as_bytes()).expect("write");
    let sender = Arc::new(made.recv().expect("a sender"));
    let producers: Vec<_> = (0..2)
        .map(|_| {
            let sender = Arc::clone(&sender);
            thread::spawn(move || {
                for _ in 0..PIECES {
                    sender.send(Bytes::from_static(b"a piece")).expect("open");
                }
            })
        })
        .collect();
    let end = thread::spawn(move || {
        for producer in producers {
            producer.join().expect("no panic");
        }
        sender.finish();
    });
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("read");
    end.join().expect("no panic");
    let body = answer
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    assert_eq!(answer.len() - body, 2 * PIECES * b"a piece".len());
    server.stop();
}
