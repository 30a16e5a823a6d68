//! HTTP under each concurrency model, chosen by name: what a client sees is the same, and each thread
//! of a running server can be reached.

#![expect(clippy::print_stderr, reason = "a failure is told with its model")]

mod common;
#[path = "common/live.rs"]
mod live;

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use common::AllMethods;
use live::{Client, PATIENCE};
use windlass::models::{Limits, ModelKind, ServerReport, ServerThread, StopHandle, ThreadHandle};
use windlass::session::Service;
use windlass_http::{
    Answered, Handler, HttpConfig, HttpService, Request, Responder, Response, ResponseError,
    Status, body_channel,
};

const BIG: usize = 10_000_000;
const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Runs a test over each model.
fn on_each_model(test: impl Fn(ModelKind)) {
    for kind in ModelKind::ALL {
        eprintln!("model {kind}");
        test(kind);
    }
}

/// A running server.
struct Running<V: Service> {
    addr: std::net::SocketAddr,
    stop: StopHandle,
    threads: Vec<ThreadHandle<V>>,
    server: JoinHandle<ServerReport>,
}

impl<V: Service> Running<V> {
    fn start(kind: ModelKind, service: V) -> Self {
        let (tell, told) = mpsc::channel();
        let server = thread::spawn(move || {
            let mut server = kind
                .builder(Arc::new(service))
                .listen(([127, 0, 0, 1], 0).into())
                .limits(Limits {
                    stop_deadline: PATIENCE,
                    ..Limits::default()
                })
                .threads(THREADS)
                .build()
                .expect("build");
            assert_eq!(server.kind(), kind);
            let addr = server.local_addrs()[0];
            let handles = (addr, server.stop_handle(), server.threads());
            tell.send(handles).expect("the test waits");
            let report = server.run().expect("run");
            assert!(server.cut_connections().is_empty());
            report
        });
        let (addr, stop, threads) = told.recv().expect("it starts");
        Self {
            addr,
            stop,
            threads,
            server,
        }
    }

    fn connect(&self) -> Client {
        Client::new(std::net::TcpStream::connect(self.addr).expect("connect"))
    }

    /// Asks each thread, all of which may be idle.
    fn ask<T: Send + 'static>(&self, ask: fn(&mut dyn ServerThread<V>) -> T) -> Vec<T> {
        let ask = |handle: &ThreadHandle<V>| {
            let (tell, told) = mpsc::channel();
            let posted = handle.post(move |thread| {
                // The test waits.
                let _ = tell.send(ask(thread));
            });
            posted.expect("it runs");
            told.recv_timeout(PATIENCE).expect("it answers")
        };
        self.threads.iter().map(ask).collect()
    }

    fn stop(self) -> ServerReport {
        self.stop.stop().expect("it runs");
        self.server.join().expect("no panic")
    }
}

/// Opened by the test, waited for by a job.
#[derive(Clone, Debug, Default)]
struct Gate(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Gate {
    fn open(&self) {
        self.0.0.lock().expect("not poisoned").0 = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().expect("not poisoned");
        state.1 += 1;
        self.0.1.notify_all();
        let passed = self
            .0
            .1
            .wait_timeout_while(state, PATIENCE, |(is_open, _)| !*is_open);
        drop(passed.expect("not poisoned"));
    }

    /// Waits until so many wait at it.
    fn wait_for(&self, count: usize) {
        let state = self.0.0.lock().expect("not poisoned");
        let waited = self
            .0
            .1
            .wait_timeout_while(state, PATIENCE, |(_, at)| *at < count);
        assert!(!waited.expect("not poisoned").1.timed_out());
    }
}

/// Answers with the path, a job's result, a large body, a body of another thread, a panic.
fn site(gate: &Gate) -> HttpService<impl Handler> {
    let gate = gate.clone();
    let big = Bytes::from(vec![b'b'; BIG]);
    let handler =
        move |request: &Request<'_>, response: Responder<'_>| -> Result<Answered, ResponseError> {
            let gate = gate.clone();
            Ok(match request.path() {
                "/job" => {
                    let text = request.query().unwrap_or_default().to_uppercase();
                    response.job(move || Response::new(Status::OK).body(text))
                }
                "/gated" => response.job(move || {
                    gate.pass();
                    Response::new(Status::OK).body("passed")
                }),
                "/bad-job" => response.job(|| panic!("as asked, in a job")),
                "/big" => response.start(Status::OK).shared(big.clone()),
                "/channel" => {
                    let (sender, body) = body_channel(1024);
                    thread::spawn(move || {
                        for number in 0..100 {
                            let piece = format!("{number}\n");
                            // The client may be gone.
                            if sender.send(piece.into()).is_err() {
                                return;
                            }
                        }
                        sender.finish();
                    });
                    response.start(Status::OK).stream(body)
                }
                "/panic" => panic!("as asked"),
                path => response.start(Status::OK).body(path),
            })
        };
    HttpService::new(AllMethods(handler), HttpConfig::default())
}

#[test]
fn requests_of_all_kinds_are_answered_in_order_on_a_kept_connection() {
    on_each_model(|kind| {
        let server = Running::start(kind, site(&Gate::default()));
        let mut client = server.connect();
        let mut pipelined = String::new();
        for at in 0..50 {
            let path = if at % 3 == 0 { "/job?" } else { "/page" };
            pipelined.push_str(&format!("GET {path}x{at} HTTP/1.1\r\nHost: h\r\n\r\n"));
        }
        client.send(pipelined.as_bytes());
        for at in 0..50 {
            let wanted = if at % 3 == 0 {
                format!("X{at}")
            } else {
                format!("/pagex{at}")
            };
            let (status, _, body) = client.answer();
            assert_eq!(
                (status, String::from_utf8_lossy(&body).as_ref()),
                (200, &*wanted)
            );
        }
        let (status, _, body) = client.get("/big").answer();
        assert!(status == 200 && body.len() == BIG && body.iter().all(|&byte| byte == b'b'));
        client.send(b"HEAD /big HTTP/1.1\r\nHost: h\r\n\r\nGET /after HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            std::io::Read::read_exact(&mut client.0, &mut byte).expect("a head");
            head.push(byte[0]);
        }
        assert_eq!(client.answer().2, b"/after");
        assert_eq!(client.get("/bad-job").answer().0, 500);
        client.send(b"GET /channel HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let rest = String::from_utf8(client.read_all()).expect("ASCII");
        let numbers = (0..100).filter(|number| rest.contains(&format!("\n{number}\n")));
        assert!(numbers.count() > 0 && rest.contains("99\n") && rest.ends_with("0\r\n\r\n"));
        drop(client);
        let report = server.stop();
        assert_eq!(
            (report.accepted, report.failed, report.cut),
            (1, 0, 0),
            "{report}"
        );
    });
}

#[test]
fn many_clients_are_served_at_once_and_a_panic_ends_one_of_them() {
    on_each_model(|kind| {
        let server = Running::start(kind, site(&Gate::default()));
        let mut clients: Vec<Client> = (0..64).map(|_| server.connect()).collect();
        for round in 0..20 {
            for (at, client) in clients.iter_mut().enumerate() {
                let path = if at % 2 == 0 { "/job?" } else { "/" };
                client.get(&format!("{path}r{round}c{at}"));
            }
            for (at, client) in clients.iter_mut().enumerate() {
                let wanted = if at % 2 == 0 {
                    format!("R{round}C{at}")
                } else {
                    format!("/r{round}c{at}")
                };
                assert_eq!(client.answer().2, wanted.as_bytes());
            }
        }
        let mut unlucky = server.connect();
        assert!(unlucky.get("/panic").read_all().is_empty());
        for client in &mut clients {
            assert_eq!(client.get("/still-there").answer().0, 200);
        }
        drop((clients, unlucky));
        let report = server.stop();
        assert_eq!((report.accepted, report.panics), (65, 1), "{report}");
    });
}

#[test]
fn a_stop_finishes_what_is_under_way() {
    on_each_model(|kind| {
        let gate = Gate::default();
        let server = Running::start(kind, site(&gate));
        let mut idle = server.connect();
        assert_eq!(idle.get("/").answer().0, 200);
        let mut works = server.connect();
        works.get("/gated");
        gate.wait_for(1);
        let mut reads_late = server.connect();
        reads_late.get("/big");
        let mut first = [0; 5];
        std::io::Read::read_exact(&mut reads_late.0, &mut first).expect("it begins");
        server.stop.stop().expect("it runs");
        assert!(idle.read_all().is_empty());
        assert!(std::net::TcpStream::connect(server.addr).is_err());
        gate.open();
        let answer = String::from_utf8(works.read_all()).expect("ASCII");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("passed"),
            "{answer}"
        );
        assert!(reads_late.read_all().len() > BIG);
        drop((idle, works, reads_late));
        let report = server.server.join().expect("no panic");
        assert_eq!((report.accepted, report.cut), (3, 0), "{report}");
    });
}

#[test]
fn each_thread_tells_what_it_did_and_is_given_another_service() {
    on_each_model(|kind| {
        let server = Running::start(kind, told("old"));
        let mut open: Vec<Client> = (0..10).map(|_| server.connect()).collect();
        for client in &mut open {
            for _ in 0..5 {
                assert_eq!(client.get("/").answer().2, b"old");
            }
        }
        let answered: u64 = server
            .ask(|thread| {
                thread
                    .local()
                    .answers()
                    .map(|(_, count)| count)
                    .sum::<u64>()
            })
            .into_iter()
            .sum();
        assert_eq!(answered, 50);
        let open_connections: usize = server.ask(|thread| thread.open_connections()).iter().sum();
        assert_eq!(open_connections, 10);
        let report: ServerReport = server.ask(|thread| thread.report()).into_iter().sum();
        assert_eq!((report.accepted, report.panics), (10, 0));
        let listeners =
            server.ask(|thread| thread.duplicate_listeners().expect("descriptors").len());
        assert!(listeners.iter().sum::<usize>() > 0);
        // To each thread the same one.
        let new = Arc::new(told("new"));
        let (tell, done) = mpsc::channel();
        for handle in &server.threads {
            let (new, tell) = (Arc::clone(&new), tell.clone());
            let posted = handle.post(move |thread| {
                thread.replace_service(new);
                tell.send(()).expect("the test waits");
            });
            posted.expect("it runs");
        }
        for _ in &server.threads {
            done.recv_timeout(PATIENCE).expect("each does it");
        }
        // Its shared part has the handler, and open sessions are handed that.
        for client in &mut open {
            assert_eq!(client.get("/").answer().2, b"new");
        }
        let mut later: Vec<Client> = (0..10).map(|_| server.connect()).collect();
        for client in &mut later {
            assert_eq!(client.get("/").answer().2, b"new");
        }
        drop((open, later));
        server.stop();
    });
}

/// Answers with a word.
fn told(word: &'static str) -> HttpService<Word> {
    HttpService::new(Word(word), HttpConfig::default())
}

struct Word(&'static str);

impl Handler for Word {
    type Local = ();

    fn local(&self) {}

    fn handle(
        &self,
        (): &mut (),
        _: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        Ok(response.start(Status::OK).body(self.0))
    }
}
