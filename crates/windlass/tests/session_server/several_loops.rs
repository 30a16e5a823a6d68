//! What is promised of a server's loops beside its connections: several of them, their handles,
//! their listeners.

use std::num::NonZeroUsize;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use windlass::models::{
    Accepting, BindError, ConnectionPhase, CutConnection, Dealing, Limits, LoopHandle, MultiLoop,
    MultiLoopBuilder, ServerReport, ServerState, SingleLoop, StopHandle, UnixOptions,
};
use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};

use crate::harness::{Client, PATIENCE, guarded};
use crate::sessions::LineService;

const ANY: &str = "127.0.0.1:0";

fn two_loops<V: Service>(service: V) -> MultiLoopBuilder<V> {
    let loops = NonZeroUsize::new(2).unwrap();
    MultiLoop::builder(Arc::new(service)).loops(loops)
}

/// A server in a thread, which starts to run when it is told to.
struct Running<V: Service> {
    addr: Option<std::net::SocketAddr>,
    handles: Vec<LoopHandle<V>>,
    stop: StopHandle,
    ended: mpsc::Receiver<thread::Result<Ended>>,
}

struct Ended {
    report: ServerReport,
    cuts: Vec<CutConnection>,
}

impl<V: Service> Running<V> {
    fn start(builder: MultiLoopBuilder<V>) -> Self {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut server = builder.build().unwrap();
            let addr = server.local_addrs().first().copied();
            tell.send((addr, server.handles(), server.stop_handle()))
                .unwrap();
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let report = server.run().unwrap();
                let cuts = server.cut_connections();
                Ended { report, cuts }
            }));
            drop(server);
            let _ = end.send(ran);
        });
        let (addr, handles, stop) = told.recv_timeout(PATIENCE).unwrap();
        Self {
            addr,
            handles,
            stop,
            ended,
        }
    }

    /// Asks each loop in its thread.
    fn ask<T: Send + 'static>(&self, ask: fn(&mut ServerState<V>) -> T) -> Vec<T> {
        let (tell, told) = mpsc::channel();
        for handle in &self.handles {
            let tell = tell.clone();
            handle
                .post(move |state, _| tell.send(ask(state)).unwrap())
                .unwrap();
        }
        let answers = self.handles.iter();
        answers
            .map(|_| told.recv_timeout(PATIENCE).unwrap())
            .collect()
    }

    fn join(self) -> thread::Result<Ended> {
        self.ended.recv_timeout(PATIENCE).unwrap()
    }
}

fn addr_of_any() -> std::net::SocketAddr {
    ANY.parse().unwrap()
}

#[test]
fn an_address_is_divided_between_the_loops() {
    guarded("an_address_is_divided_between_the_loops", || {
        let server = Running::start(two_loops(LineService::default()).listen(addr_of_any()));
        let addr = server.addr.unwrap();
        let mut clients: Vec<_> = (0..64).map(|_| Client::connect(addr)).collect();
        for client in &mut clients {
            assert_eq!(client.ask("echo x"), "x");
        }
        let open = server.ask(|state| state.open_connections());
        assert_eq!(open.iter().sum::<usize>(), 64);
        assert!(open.iter().all(|&count| count > 0), "{open:?}");
        let accepted = server.ask(|state| state.report().accepted);
        assert_eq!(accepted.iter().sum::<u64>(), 64);
        server.stop.stop().unwrap();
        for client in &mut clients {
            assert!(client.rest().is_empty());
        }
        drop(clients);
        let ended = server.join().unwrap();
        assert_eq!((ended.report.accepted, ended.report.cut), (64, 0));
        assert!(ended.cuts.is_empty());
    });
}

#[test]
fn the_limit_of_connections_is_the_servers() {
    guarded("the_limit_of_connections_is_the_servers", || {
        let limits = Limits {
            connections_max: 8,
            ..Limits::default()
        };
        let service = LineService::default();
        let probe = Arc::clone(&service.probe);
        let builder = two_loops(service).listen(addr_of_any()).limits(limits);
        let server = Running::start(builder);
        let addr = server.addr.unwrap();
        let mut clients: Vec<_> = (0..64).map(|_| Client::connect(addr)).collect();
        for client in &mut clients {
            client.send("echo x\n");
        }
        probe.wait("it is full", |seen| seen.opened == 8);
        let open = server.ask(|state| state.open_connections());
        assert_eq!(open.iter().sum::<usize>(), 8);
        // Whichever loop has room by that, all have their turn.
        let served: Vec<_> = clients
            .into_iter()
            .map(|mut client| thread::spawn(move || assert_eq!(client.line(), "x")))
            .collect();
        for one in served {
            one.join().unwrap();
        }
        let seen = probe.wait("all are gone", |seen| seen.dropped == 64);
        assert_eq!(seen.opened, 64);
        server.stop.stop().unwrap();
        let report = server.join().unwrap().report;
        assert_eq!((report.accepted, report.accept_pauses), (64, 0));
    });
}

#[test]
fn a_panic_in_any_loop_ends_the_server_with_it() {
    for at in 0..2 {
        guarded("a_panic_in_any_loop_ends_the_server_with_it", move || {
            let server = Running::start(two_loops(LineService::default()).listen(addr_of_any()));
            let mut client = Client::connect(server.addr.unwrap());
            assert_eq!(client.ask("echo x"), "x");
            server.handles[at]
                .post(|_, _| panic!("as asked, in a loop"))
                .unwrap();
            let Err(panic) = server.join() else {
                panic!("the panic is lost")
            };
            let text = panic.downcast::<&str>().unwrap();
            assert_eq!(*text, "as asked, in a loop");
            assert!(client.rest_or_reset().0.is_empty());
        });
    }
}

#[test]
fn a_loop_that_a_handler_ends_ends_the_server() {
    for at in 0..2 {
        guarded("a_loop_that_a_handler_ends_ends_the_server", move || {
            let server = Running::start(two_loops(LineService::default()).listen(addr_of_any()));
            let mut client = Client::connect(server.addr.unwrap());
            assert_eq!(client.ask("echo x"), "x");
            server.handles[at].post(|_, cx| cx.stop()).unwrap();
            assert_eq!(server.join().unwrap().report.accepted, 1);
            assert!(client.rest_or_reset().0.is_empty());
        });
    }
}

#[test]
fn a_server_that_is_not_run_leaves_nothing() {
    guarded("a_server_that_is_not_run_leaves_nothing", || {
        let server = two_loops(LineService::default())
            .listen(addr_of_any())
            .build()
            .unwrap();
        let addr = server.local_addrs()[0];
        let handles = server.handles();
        handles[1].post(|_, _| panic!("never called")).unwrap();
        let error = two_loops(LineService::default()).listen(addr).build();
        assert!(matches!(error, Err(BindError::Listen { addr: at, .. }) if at == addr));
        drop(server);
        assert!(handles.iter().all(|handle| handle.post(|_, _| {}).is_err()));
        two_loops(LineService::default())
            .listen(addr)
            .build()
            .unwrap();
    });
}

#[test]
fn a_stop_before_the_run_ends_it_at_once() {
    guarded("a_stop_before_the_run_ends_it_at_once", || {
        let mut server = two_loops(LineService::default())
            .listen(addr_of_any())
            .build()
            .unwrap();
        server.stop_handle().stop().unwrap();
        assert_eq!(server.run().unwrap(), ServerReport::default());
        assert_eq!(server.run().unwrap(), ServerReport::default());
        assert!(server.stop_handle().stop().is_ok(), "it is not gone yet");
        let handle = server.stop_handle();
        drop(server);
        assert!(handle.stop().is_err());
    });
}

#[test]
fn what_a_stop_cuts_is_told() {
    guarded("what_a_stop_cuts_is_told", || {
        let service = LineService::default();
        let probe = Arc::clone(&service.probe);
        let server = Running::start(two_loops(service).listen(addr_of_any()));
        let mut works = Client::connect(server.addr.unwrap());
        works.send("gated-shout x\n");
        probe.wait("the job has begun", |seen| seen.jobs_begun == 1);
        let mut blocked = Client::connect(server.addr.unwrap());
        // Queued at once, and more than the kernel takes.
        blocked.send("big 33554432\n");
        blocked.bytes(8);
        server.stop.stop().unwrap();
        server.stop.stop().unwrap();
        let mut ended = server.join().unwrap();
        assert_eq!(ended.report.cut, 2);
        ended.cuts.sort_by_key(|cut| cut.queued_bytes);
        let [first, second] = &ended.cuts[..] else {
            panic!("{:?}", ended.cuts)
        };
        let addr = |client: &Client| Some(client.socket().local_addr().unwrap());
        assert_eq!(first.phase, ConnectionPhase::WaitingForJob);
        assert_eq!((first.peer.remote, first.queued_bytes), (addr(&works), 0));
        assert_eq!(second.phase, ConnectionPhase::Answering);
        assert_eq!(second.peer.remote, addr(&blocked));
        assert!(second.queued_bytes > 0 && second.age < PATIENCE);
        probe.open_gate();
    });
}

/// Answers a line with the number of its service, and how many its `Local` has seen.
struct NumberedService {
    number: usize,
    settled: Option<Arc<AtomicUsize>>,
}

struct NumberedSession(usize);

impl Service for NumberedService {
    type Local = usize;
    type Session = NumberedSession;

    fn local(&self) -> usize {
        self.number * 100
    }

    fn open(&self, _: &mut usize, _peer: &Peer, _now: Now) -> NumberedSession {
        NumberedSession(self.number)
    }

    fn settles(&self) -> bool {
        self.settled.is_some()
    }

    fn settle(&self, local: &mut usize, _now: Now) {
        let settled = self.settled.as_ref().unwrap();
        settled.fetch_max(*local, Ordering::Relaxed);
    }
}

impl Session for NumberedSession {
    type Local = usize;

    fn advance(&mut self, cx: &mut SessionContext<'_, usize>, input: Input<'_>) -> Progress {
        for _ in input.bytes.iter().filter(|&&byte| byte == b'\n') {
            *cx.local += 1;
            let answer = format!("{} {}\n", self.0, cx.local);
            cx.output.push(answer.as_bytes());
        }
        let next = if input.ended { Next::Close } else { Next::Read };
        Progress {
            consumed: input.bytes.len(),
            next,
        }
    }
}

/// From one that does not settle to one that does, and back.
#[test]
fn a_service_is_replaced_under_open_sessions() {
    guarded("a_service_is_replaced_under_open_sessions", || {
        let plain = |number| NumberedService {
            number,
            settled: None,
        };
        let settled = Arc::new(AtomicUsize::new(0));
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let addr = addr_of_any();
            let builder = SingleLoop::builder(Arc::new(plain(1))).listen(addr);
            let mut server = builder.build().unwrap();
            let addr = server.local_addrs()[0];
            tell.send((addr, server.handles(), server.stop_handle()))
                .unwrap();
            end.send(server.run().unwrap()).unwrap();
        });
        let (addr, handles, stop) = told.recv_timeout(PATIENCE).unwrap();
        let replace = |service: NumberedService| {
            let service = Arc::new(service);
            let (done, is_done) = mpsc::channel();
            handles[0]
                .post(move |state, cx| {
                    state.replace_service(cx, service);
                    done.send(()).unwrap();
                })
                .unwrap();
            is_done.recv_timeout(PATIENCE).unwrap();
        };
        let mut first = Client::connect(addr);
        assert_eq!(first.ask(""), "1 101");
        replace(NumberedService {
            number: 2,
            settled: Some(Arc::clone(&settled)),
        });
        let mut second = Client::connect(addr);
        assert_eq!(second.ask(""), "2 201");
        // It goes on as it is, with the new shared part.
        assert_eq!(first.ask(""), "1 202");
        replace(plain(3));
        assert_eq!(second.ask(""), "2 301");
        assert_eq!(settled.load(Ordering::Relaxed), 202);
        // The new one's is not asked to settle: it would panic, which is counted.
        stop.stop().unwrap();
        drop((first, second));
        let report = ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!((report.accepted, report.panics), (2, 0));
    });
}

/// More room lets those in that wait, less cuts nobody.
#[test]
fn limits_are_changed_while_the_server_runs() {
    guarded("limits_are_changed_while_the_server_runs", || {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let few = |connections_max| Limits {
            connections_max,
            ..Limits::default()
        };
        thread::spawn(move || {
            let service = NumberedService {
                number: 1,
                settled: None,
            };
            let builder = SingleLoop::builder(Arc::new(service)).limits(few(1));
            let mut server = builder.listen(addr_of_any()).build().unwrap();
            let addr = server.local_addrs()[0];
            tell.send((addr, server.handles(), server.stop_handle()))
                .unwrap();
            end.send(server.run().unwrap()).unwrap();
        });
        let (addr, handles, stop) = told.recv_timeout(PATIENCE).unwrap();
        let set = |limits: Limits| {
            let (done, is_done) = mpsc::channel();
            handles[0]
                .post(move |state, _| {
                    state.set_limits(limits);
                    done.send((*state.limits(), state.open_connections()))
                        .unwrap();
                })
                .unwrap();
            is_done.recv_timeout(PATIENCE).unwrap()
        };
        let mut first = Client::connect(addr);
        assert_eq!(first.ask(""), "1 101");
        let mut second = Client::connect(addr);
        second.send("\n");
        let (limits, open) = set(Limits {
            input_bytes_max: 1 << 20,
            linger_timeout: Duration::from_millis(1),
            ..few(2)
        });
        assert_eq!((limits.input_bytes_max, open), (1 << 20, 1));
        assert_eq!(limits.linger_timeout, Duration::from_millis(1));
        assert_eq!(second.line(), "1 102");
        let (limits, open) = set(few(1));
        assert_eq!((limits.connections_max, open), (1, 2));
        assert_eq!(limits.input_bytes_max, 1 << 20, "it does not get smaller");
        let mut third = Client::connect(addr);
        third.send("\n");
        assert_eq!(
            (first.ask(""), second.ask("")),
            ("1 103".into(), "1 104".into())
        );
        drop((first, second));
        assert_eq!(third.line(), "1 105");
        stop.stop().unwrap();
        drop(third);
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap().accepted, 3);
    });
}

/// A path of a test's own.
fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()))
}

fn ask_unix(path: &PathBuf, line: &str) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = BufReader::new(UnixStream::connect(path).unwrap());
    stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    stream.get_mut().write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    answer
}

#[test]
fn a_unix_path_is_served_by_all_loops_and_removed_at_the_stop() {
    guarded("a_unix_path_is_served_by_all_loops", || {
        let path = socket_path("served");
        // As a server leaves it that was killed.
        drop(UnixListener::bind(&path).unwrap());
        let builder = two_loops(LineService::default());
        let builder = builder.listen_unix(&path, UnixOptions::default());
        let server = Running::start(builder);
        assert_eq!(server.addr, None);
        for _ in 0..100 {
            assert_eq!(ask_unix(&path, "echo x\n"), "x\n");
        }
        let again = two_loops(LineService::default()).listen_unix(&path, UnixOptions::default());
        let error = again.build().unwrap_err();
        assert!(matches!(&error, BindError::ListenUnix { path: at, .. } if *at == path));
        assert_eq!(ask_unix(&path, "echo x\n"), "x\n", "the first goes on");
        // One of them was the second server, which looked whether the first lives.
        server.stop.stop().unwrap();
        assert_eq!(server.join().unwrap().report.accepted, 102);
        assert!(!path.exists());
    });
}

#[test]
fn a_socket_file_that_is_handed_on_stays() {
    guarded("a_socket_file_that_is_handed_on_stays", || {
        let path = socket_path("kept");
        let builder = two_loops(LineService::default());
        let server = Running::start(builder.listen_unix(&path, UnixOptions::default()));
        server.ask(|state| state.keep_socket_files());
        server.stop.stop().unwrap();
        server.join().unwrap();
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    });
}

/// Handed on to servers of as many loops, of fewer and of more.
#[test]
fn listeners_are_handed_on_and_divided_again() {
    guarded("listeners_are_handed_on_and_divided_again", || {
        let mut server = Running::start(two_loops(LineService::default()).listen(addr_of_any()));
        let addr = server.addr.unwrap();
        for loops in [2, 1, 3, 2] {
            let listeners: Vec<_> = server
                .ask(|state| state.duplicate_listeners().unwrap())
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(listeners.len(), 2);
            let mut builder = two_loops(LineService::default());
            builder = builder.loops(NonZeroUsize::new(loops).unwrap());
            for listener in listeners {
                builder = builder.listener(listener);
            }
            let next = Running::start(builder);
            assert_eq!(next.addr, Some(addr));
            server.stop.stop().unwrap();
            server.join().unwrap();
            server = next;
            let mut clients: Vec<_> = (0..64).map(|_| Client::connect(addr)).collect();
            for client in &mut clients {
                assert_eq!(client.ask("echo x"), "x");
            }
            let open = server.ask(|state| state.open_connections());
            assert_eq!((open.len(), open.iter().sum()), (loops, 64));
            // Two that share a socket may leave it to one of them.
            let idle = open.iter().filter(|&&count| count == 0).count();
            assert!(idle <= loops.saturating_sub(2), "{open:?}");
        }
        server.stop.stop().unwrap();
        server.join().unwrap();
    });
}

#[test]
fn one_acceptor_deals_connections_out_evenly() {
    for dealing in [Dealing::LeastLoaded, Dealing::RoundRobin] {
        guarded("one_acceptor_deals_connections_out_evenly", move || {
            let service = LineService::default();
            let path = socket_path(&format!("dealt-{dealing:?}"));
            let builder = two_loops(service)
                .accepting(Accepting::Acceptor(dealing))
                .listen_unix(&path, UnixOptions::default())
                .listen(addr_of_any());
            let server = Running::start(builder);
            let connect = || {
                let mut client = Client::connect(server.addr.unwrap());
                assert_eq!(client.ask("echo x"), "x");
                client
            };
            let mut clients: Vec<_> = (0..64).map(|_| connect()).collect();
            assert_eq!(server.ask(|state| state.open_connections()), [32, 32]);
            if dealing == Dealing::LeastLoaded {
                clients.drain(..10);
                clients.truncate(50);
                let open = || server.ask(|state| state.open_connections());
                while open().iter().sum::<usize>() > 50 {
                    thread::yield_now();
                }
                clients.extend((0..14).map(|_| connect()));
                assert_eq!(server.ask(|state| state.open_connections()), [32, 32]);
            }
            assert_eq!(ask_unix(&path, "echo x\n"), "x\n");
            server.stop.stop().unwrap();
            for client in &mut clients {
                assert!(client.rest().is_empty());
            }
            drop(clients);
            assert_eq!(server.join().unwrap().report.cut, 0);
        });
    }
}
