//! PF-31: what a graceful stop does to each kind of connection, over real sockets.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use live::{Client, Server};
use windlass::models::Limits;
use windlass_http::{
    Answered, BodyWriter, HttpConfig, Produced, Request, Responder, Response, ResponseError, Status,
};

/// Opened by the test, waited for by a job.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("not poisoned") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut is_open = self.0.0.lock().expect("not poisoned");
        while !*is_open {
            is_open = self.0.1.wait(is_open).expect("not poisoned");
        }
    }
}

const BIG: usize = 10_000_000;

fn handler(
    gate: Gate,
) -> impl Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync {
    let big = bytes::Bytes::from(vec![b'b'; BIG]);
    move |request, response| {
        let gate = gate.clone();
        Ok(match request.path() {
            "/job" => response.job(move || {
                gate.pass();
                Response::new(Status::OK).body("job")
            }),
            "/stream" => {
                let mut begun = false;
                response
                    .start(Status::OK)
                    .stream(move |body: &mut BodyWriter<'_, '_>| {
                        if !std::mem::replace(&mut begun, true) {
                            body.push(b"begun");
                        }
                        if body.is_stopping() {
                            body.push(b"stopping");
                            return Produced::End;
                        }
                        Produced::Pending
                    })
            }
            "/big" => response.start(Status::OK).shared(big.clone()),
            path => response.start(Status::OK).body(path),
        })
    }
}

fn start(gate: &Gate, limits: Limits) -> Server {
    Server::start(handler(gate.clone()), HttpConfig::default(), limits, None)
}

/// Reads up to and with `text`.
fn read_until(client: &mut Client, text: &str) {
    let mut found = Vec::new();
    let mut byte = [0];
    while !found.ends_with(text.as_bytes()) {
        client.0.read_exact(&mut byte).expect("more");
        found.push(byte[0]);
    }
}

#[test]
fn pf31_stop_closes_who_waits_at_once_and_lets_who_is_answered_finish() {
    let gate = Gate::default();
    let server = start(&gate, Limits::default());
    let mut fresh = server.connect();
    let mut idle = server.connect();
    idle.get("/a");
    idle.answer();
    let mut half_sent = server.connect();
    half_sent.send(b"GET / HTTP/1.1\r\nHo");
    let mut streaming = server.connect();
    streaming.get("/stream");
    read_until(&mut streaming, "begun\r\n");
    let mut blocked = server.connect();
    blocked.get("/big");
    read_until(&mut blocked, "\r\n\r\n");
    let mut running = server.connect();
    running.get("/job").get("/next");
    // Answered when all that was sent before has arrived at the loop.
    let mut last = server.connect();
    last.get("/last");
    last.answer();

    server.begin_stop();
    for waiting in [&mut fresh, &mut idle, &mut half_sent, &mut last] {
        assert!(waiting.read_all().is_empty());
    }
    assert!(
        std::net::TcpStream::connect(server.addr).is_err(),
        "the listener is closed"
    );
    read_until(&mut streaming, "8\r\nstopping\r\n0\r\n\r\n");
    assert!(streaming.read_all().is_empty());
    assert_eq!(blocked.read_all().len(), BIG);
    gate.open();
    let sent = running.read_all();
    let answers = common::answers(&sent);
    assert_eq!(answers.len(), 1, "no new request is begun");
    assert_eq!(answers[0].header("connection"), Some("close"));
    // They close too, which is waited for.
    drop((streaming, blocked, running));
    let report = server.join();
    assert_eq!((report.accepted, report.cut, report.failed), (7, 0, 0));
}

#[test]
fn pf31_stop_gives_up_at_its_deadline_and_says_how_many_were_cut() {
    let gate = Gate::default();
    let limits = Limits {
        stop_deadline: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = start(&gate, limits);
    let mut running = server.connect();
    running.get("/job");
    let mut blocked = server.connect();
    blocked.get("/big");
    read_until(&mut blocked, "\r\n\r\n");
    let mut idle = server.connect();
    idle.get("/a");
    idle.answer();
    let begun = Instant::now();
    server.begin_stop();
    let report = server.join();
    assert_eq!(report.cut, 2);
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(200) && took < live::PATIENCE / 2,
        "{took:?}"
    );
    gate.open();
}

#[test]
fn pf31_stop_while_a_body_is_dropped_loses_no_answer() {
    let gate = Gate::default();
    let server = start(&gate, Limits::default());
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc");
    }
    // Answered when all that was sent before has arrived at the loop.
    let mut last = server.connect();
    last.get("/last");
    last.answer();
    server.begin_stop();
    assert!(last.read_all().is_empty());
    for client in &mut clients {
        // More of the body comes to a connection that was stopped.
        client.0.write_all(&[b'a'; 10_000]).expect("it is taken");
        let answers = common::answers(&client.end().read_all());
        assert_eq!((answers.len(), answers[0].status), (1, 200));
    }
    drop(clients);
    let report = server.join();
    assert_eq!((report.cut, report.failed), (0, 0));
}
