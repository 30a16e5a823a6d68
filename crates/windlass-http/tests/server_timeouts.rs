//! PF-33: each time-out protects a server on real sockets. Its defaults are tested with a clock of
//! the test's in `lifetime.rs` and `phases.rs`.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::Write;
use std::time::{Duration, Instant};

use live::{Client, PATIENCE, Server};
use windlass::models::Limits;
use windlass_http::{Answered, HttpConfig, Request, Responder, ResponseError, Status};

const SHORT: Duration = Duration::from_millis(300);

fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    match request.path() {
        "/collect" => {
            Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))))
        }
        "/big" => Ok(response
            .start(Status::OK)
            .shared(vec![b'b'; 20_000_000].into())),
        path => Ok(response.start(Status::OK).body(path)),
    }
}

/// One time-out is short; the others are longer than a test takes.
fn start(change: impl FnOnce(&mut HttpConfig, &mut Limits)) -> Server {
    let mut config = HttpConfig::default();
    let mut limits = Limits::default();
    config.timeouts.header = Some(2 * PATIENCE);
    config.timeouts.idle = Some(2 * PATIENCE);
    config.timeouts.body = Some(2 * PATIENCE);
    limits.write_stall_timeout = Some(2 * PATIENCE);
    change(&mut config, &mut limits);
    Server::start(handle, config, limits, None)
}

/// Reads to the end, which must come after the time-out and soon.
fn ends_after(client: &mut Client, since: Instant) -> Vec<u8> {
    let sent = client.read_all();
    let took = since.elapsed();
    assert!(took >= SHORT && took < PATIENCE / 2, "{took:?}");
    sent
}

#[test]
fn pf33_silent_connection_is_closed() {
    let server = start(|config, _| config.timeouts.header = Some(SHORT));
    let since = Instant::now();
    assert!(ends_after(&mut server.connect(), since).is_empty());
    server.stop();
}

#[test]
fn pf33_head_that_trickles_in_is_408() {
    let server = start(|config, _| config.timeouts.header = Some(SHORT));
    let since = Instant::now();
    let mut client = server.connect();
    let mut sender = client.0.try_clone().expect("clone");
    let trickle = std::thread::spawn(move || {
        while sender.write_all(b"G").is_ok() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let (status, head, _) = client.answer();
    assert!(since.elapsed() >= SHORT);
    assert_eq!(status, 408);
    assert!(head.contains("Connection: close"));
    client
        .0
        .shutdown(std::net::Shutdown::Both)
        .expect("shut down");
    trickle.join().expect("no panic");
    server.stop();
}

#[test]
fn pf33_idle_connection_is_closed() {
    let server = start(|config, _| config.timeouts.idle = Some(SHORT));
    let mut client = server.connect();
    client.get("/a");
    client.answer();
    let since = Instant::now();
    // The loop's clock may be a turn old.
    assert!(client.read_all().is_empty());
    assert!(since.elapsed() < PATIENCE / 2);
    server.stop();
}

#[test]
fn pf33_body_that_stops_is_408_if_it_is_wanted_and_the_end_if_not() {
    let server = start(|config, _| config.timeouts.body = Some(SHORT));
    for (path, statuses) in [("/collect", vec![408]), ("/a", vec![200])] {
        let since = Instant::now();
        let mut client = server.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
        client.send(head.as_bytes());
        let sent = ends_after(&mut client, since);
        let found: Vec<_> = common::answers(&sent).iter().map(|a| a.status).collect();
        assert_eq!(found, statuses, "{path}");
    }
    server.stop();
}

#[test]
fn pf33_client_that_stops_reading_is_cut() {
    let server = start(|_, limits| limits.write_stall_timeout = Some(SHORT));
    let mut client = server.connect();
    client.get("/big");
    let serve_another = || {
        let mut other = server.connect();
        other.get("/a");
        assert_eq!(other.answer().2, b"/a");
    };
    // After this one, the first is stuck; all others are served meanwhile.
    serve_another();
    let since = Instant::now();
    while since.elapsed() < 2 * SHORT {
        serve_another();
    }
    // Its time was over before this one came.
    serve_another();
    let report = server.stop();
    assert_eq!((report.write_stalls, report.cut), (1, 0));
}
