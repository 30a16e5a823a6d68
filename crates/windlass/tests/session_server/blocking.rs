//! Where sessions and jobs are called, what blocks whom, and what is settled, in the models whose
//! threads may block.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass::models::{
    BindError, Dealing, Dispatch, HalfSyncDispatch, HalfSyncHalfAsync, Hybrid, Jobs, Limits,
    Server, ServerBuilder, ServerReport, SingleLoop, StopHandle, ThreadHandle, ThreadPerConnection,
};
use windlass::session::{
    Input, Job, JobResult, Next, Now, Peer, Progress, Service, Session, SessionContext,
};

use crate::harness::{Client, PATIENCE};

/// What the sessions of a server share with the test.
#[derive(Debug, Default)]
struct Shared {
    locals: AtomicUsize,
    calls: AtomicUsize,
    /// Calls that were settled.
    settled: AtomicUsize,
    /// Calls that wait at the gate, and passed it.
    blocked: AtomicUsize,
    gate_open: std::sync::Mutex<bool>,
    changed: std::sync::Condvar,
}

impl Shared {
    fn open_gate(&self) {
        *self.gate_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Blocks the thread until the gate is open.
    fn pass_gate(&self) {
        let is_open = self.gate_open.lock().unwrap();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let passed = self
            .changed
            .wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open);
        drop(passed.unwrap());
    }

    fn wait_until_blocked(&self, count: usize) {
        wait_until(|| self.blocked.load(Ordering::SeqCst) >= count);
    }
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain");
        thread::yield_now();
    }
}

#[derive(Debug, Default)]
struct NamingService(Arc<Shared>);

/// Answers each line with the name of a thread.
#[derive(Debug)]
struct NamingSession {
    shared: Arc<Shared>,
    deadline: Option<windlass::Instant>,
    stopping: bool,
}

impl Service for NamingService {
    /// Calls that are not settled.
    type Local = usize;
    type Session = NamingSession;

    fn local(&self) -> usize {
        self.0.locals.fetch_add(1, Ordering::SeqCst);
        0
    }

    fn open(&self, _: &mut usize, _peer: &Peer, _now: Now) -> NamingSession {
        NamingSession {
            shared: Arc::clone(&self.0),
            deadline: None,
            stopping: false,
        }
    }

    fn settle(&self, local: &mut usize, _now: Now) {
        let count = std::mem::take(local);
        self.0.settled.fetch_add(count, Ordering::SeqCst);
    }
}

fn name() -> String {
    thread::current().name().unwrap_or("main").to_owned()
}

impl NamingSession {
    fn line(&mut self, cx: &mut SessionContext<'_, usize>, line: &[u8]) -> Option<Next> {
        match line {
            // Which thread calls.
            b"who" => {}
            // The same, after the thread was blocked.
            b"block" => self.shared.pass_gate(),
            // With a deadline that is over when it passes.
            b"block-late" => {
                self.deadline = Some(cx.now.monotonic + Duration::from_millis(1));
                self.shared.pass_gate();
            }
            b"job" => return Some(Next::Job(Job::new(name))),
            _ => cx.output.push(b"what? "),
        }
        cx.output.push(name().as_bytes());
        cx.output.push(b"\n");
        None
    }
}

impl Session for NamingSession {
    type Local = usize;

    fn advance(&mut self, cx: &mut SessionContext<'_, usize>, input: Input<'_>) -> Progress {
        *cx.local += 1;
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        let mut consumed = 0;
        while let Some(end) = input.bytes[consumed..].iter().position(|&b| b == b'\n') {
            let line = &input.bytes[consumed..consumed + end];
            consumed += end + 1;
            if let Some(next) = self.line(cx, line) {
                return Progress { consumed, next };
            }
        }
        let next = if input.ended { Next::Close } else { Next::Read };
        Progress { consumed, next }
    }

    fn complete(&mut self, cx: &mut SessionContext<'_, usize>, result: JobResult) -> Next {
        let name = result.downcast::<String>().unwrap();
        cx.output.push(name.as_bytes());
        cx.output.push(b"\n");
        Next::Read
    }

    fn deadline(&self) -> Option<windlass::Instant> {
        self.deadline
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, usize>) -> Next {
        self.deadline = None;
        cx.output.push(b"expired\n");
        Next::Read
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, usize>) -> Next {
        assert!(!self.stopping, "told to stop twice");
        self.stopping = true;
        cx.output.push(b"stopped\n");
        Next::Close
    }
}

/// A running server, whose own thread is called `server`.
struct Running {
    addr: std::net::SocketAddr,
    stop: StopHandle,
    threads: Vec<ThreadHandle<NamingService>>,
    shared: Arc<Shared>,
    server: JoinHandle<ServerReport>,
}

impl Running {
    fn start<M: Send + 'static, S: Server<NamingService> + 'static>(
        builder: impl FnOnce(Arc<NamingService>) -> ServerBuilder<NamingService, M>,
        build: fn(ServerBuilder<NamingService, M>) -> Result<S, BindError>,
    ) -> Self {
        let service = NamingService::default();
        let shared = Arc::clone(&service.0);
        let builder = builder(Arc::new(service)).listen(([127, 0, 0, 1], 0).into());
        let (tell, told) = mpsc::channel();
        let serve = move || {
            let mut server = build(builder).unwrap();
            let addr = server.local_addrs()[0];
            tell.send((addr, server.stop_handle(), server.threads()))
                .unwrap();
            server.run().unwrap()
        };
        let named = thread::Builder::new().name("server".into());
        let server = named.spawn(serve).unwrap();
        let (addr, stop, threads) = told.recv_timeout(PATIENCE).unwrap();
        Self {
            addr,
            stop,
            threads,
            shared,
            server,
        }
    }

    fn half_sync(dispatch: HalfSyncDispatch, limits: Limits) -> Self {
        let builder = move |service| {
            HalfSyncHalfAsync::builder(service)
                .workers(NonZeroUsize::new(3).unwrap())
                .dispatch(dispatch)
                .limits(limits)
        };
        Self::start(builder, |builder| builder.build())
    }

    fn connect(&self) -> Client {
        Client::connect(self.addr)
    }

    fn join(self) -> ServerReport {
        self.server.join().unwrap()
    }

    fn stop_and_join(self) -> ServerReport {
        self.stop.stop().unwrap();
        self.join()
    }
}

const SHARED: HalfSyncDispatch = HalfSyncDispatch::Requests(Dispatch::SharedQueue);
const ROUND_ROBIN: HalfSyncDispatch = HalfSyncDispatch::Requests(Dispatch::RoundRobin);

#[test]
fn half_sync_calls_sessions_and_does_jobs_in_workers() {
    for dispatch in [SHARED, ROUND_ROBIN] {
        let server = Running::half_sync(dispatch, Limits::default());
        let mut client = server.connect();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..9 {
            seen.insert(client.ask("who"));
        }
        let names: Vec<_> = seen.iter().map(String::as_str).collect();
        assert!(
            names.iter().all(|name| name.starts_with("worker-")),
            "{names:?}"
        );
        if dispatch == ROUND_ROBIN {
            assert_eq!(names, ["worker-0", "worker-1", "worker-2"]);
            // One that does not end must not hold up what comes behind it.
            assert!(client.ask("job").starts_with("pool-"));
        } else {
            assert!(client.ask("job").starts_with("worker-"));
        }
        drop(client);
        server.stop_and_join();
    }
}

#[test]
fn half_sync_with_own_loops_serves_nothing_in_the_thread_that_accepts() {
    for dealing in [Dealing::RoundRobin, Dealing::LeastLoaded] {
        let dispatch = HalfSyncDispatch::OwnLoops(dealing);
        let server = Running::half_sync(dispatch, Limits::default());
        let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
        let mut names: Vec<_> = clients.iter_mut().map(|client| client.ask("who")).collect();
        names.sort();
        assert_eq!(
            names,
            ["loop-1", "loop-1", "loop-2", "loop-2", "loop-3", "loop-3"]
        );
        drop(clients);
        server.stop_and_join();
    }
}

#[test]
fn a_session_that_blocks_its_worker_holds_up_nobody_else() {
    let server = Running::half_sync(SHARED, Limits::default());
    let mut blocks = server.connect();
    blocks.send("block\n");
    server.shared.wait_until_blocked(1);
    let mut others: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for _ in 0..10 {
        for other in &mut others {
            assert!(other.ask("who").starts_with("worker-"));
        }
    }
    server.shared.open_gate();
    assert!(blocks.line().starts_with("worker-"));
    drop((blocks, others));
    server.stop_and_join();
}

#[test]
fn a_deadline_and_a_stop_wait_for_a_session_that_is_away() {
    let server = Running::half_sync(SHARED, Limits::default());
    let (mut late, mut stopped) = (server.connect(), server.connect());
    late.send("block-late\n");
    stopped.send("block\n");
    server.shared.wait_until_blocked(2);
    let mut idle = server.connect();
    assert!(idle.ask("who").starts_with("worker-"));
    server.stop.stop().unwrap();
    // By then all are told, but for those that are away.
    assert_eq!(idle.rest(), b"stopped\n");
    server.shared.open_gate();
    let answer = String::from_utf8(stopped.rest()).unwrap();
    assert!(
        answer.starts_with("worker-") && answer.ends_with("\nstopped\n"),
        "{answer}"
    );
    // Whichever comes first, both do, once.
    let answer = String::from_utf8(late.rest()).unwrap();
    assert!(
        answer.starts_with("worker-") && answer.contains("\nstopped\n"),
        "{answer}"
    );
    drop((late, stopped, idle));
    assert_eq!(server.join().cut, 0);
}

#[test]
fn a_deadline_that_passed_while_its_session_was_away_is_told_then() {
    let server = Running::half_sync(SHARED, Limits::default());
    let mut late = server.connect();
    late.send("block-late\n");
    server.shared.wait_until_blocked(1);
    server.shared.open_gate();
    assert!(late.line().starts_with("worker-"));
    assert_eq!(late.line(), "expired");
    assert!(late.ask("who").starts_with("worker-"));
    drop(late);
    server.stop_and_join();
}

#[test]
fn a_call_that_does_not_end_keeps_no_server_that_is_cut() {
    let limits = Limits {
        stop_deadline: Duration::from_millis(10),
        ..Limits::default()
    };
    let half_sync = Running::half_sync(SHARED, limits);
    let builder = move |service| ThreadPerConnection::builder(service).limits(limits);
    let threads = Running::start(builder, |builder| builder.build());
    for server in [half_sync, threads] {
        let shared = Arc::clone(&server.shared);
        let mut client = server.connect();
        client.send("block\n");
        shared.wait_until_blocked(1);
        assert_eq!(server.stop_and_join().cut, 1);
        // Its peer does not wait for it either.
        assert!(client.rest_or_reset().0.is_empty());
        shared.open_gate();
    }
}

#[test]
fn what_workers_answered_is_settled_when_the_server_ends() {
    let half_sync = Running::half_sync(SHARED, Limits::default());
    let round_robin = Running::half_sync(ROUND_ROBIN, Limits::default());
    let threads = Running::start(ThreadPerConnection::builder, |builder| builder.build());
    for server in [half_sync, round_robin, threads] {
        let shared = Arc::clone(&server.shared);
        let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
        for _ in 0..10 {
            for client in &mut clients {
                client.send("who\n");
            }
            for client in &mut clients {
                client.line();
            }
        }
        // Also while it runs: a worker settles before it waits.
        wait_until(|| shared.settled.load(Ordering::SeqCst) >= 200);
        for client in &mut clients {
            client.send("who\n");
            client.line();
        }
        drop(clients);
        server.stop_and_join();
        let calls = shared.calls.load(Ordering::SeqCst);
        assert_eq!(shared.settled.load(Ordering::SeqCst), calls);
    }
}

#[test]
fn threads_of_connections_share_locals_and_may_block() {
    let builder = |service| {
        ThreadPerConnection::builder(service)
            .calls_max(NonZeroUsize::new(3).unwrap())
            .stack_bytes(128 * 1024)
    };
    let server = Running::start(builder, |builder| builder.build());
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    let mut blocks = server.connect();
    blocks.send("block\n");
    server.shared.wait_until_blocked(1);
    for client in &mut clients {
        assert_eq!(client.ask("who"), "connection");
        assert_eq!(client.ask("job"), "connection");
    }
    server.shared.open_gate();
    assert_eq!(blocks.line(), "connection");
    // Three, and the acceptor's.
    assert!(server.shared.locals.load(Ordering::SeqCst) <= 4);
    drop((clients, blocks));
    server.stop_and_join();
}

/// A stack that does not fit into the address space stands for a limit of threads.
#[test]
fn accepting_pauses_without_threads() {
    let builder = |service| {
        let builder = ThreadPerConnection::builder(service);
        builder.stack_bytes(1 << 47)
    };
    let server = Running::start(builder, |builder| builder.build());
    let mut client = server.connect();
    let begun = Instant::now();
    client.send("who\n");
    let pauses = || {
        let (tell, told) = mpsc::channel();
        let posted = server.threads[0].post(move |acceptor| {
            tell.send(acceptor.report().accept_pauses).unwrap();
        });
        posted.unwrap();
        told.recv_timeout(PATIENCE).unwrap()
    };
    wait_until(|| pauses() >= 4);
    // Of 10, 20 and 40 ms.
    assert!(begun.elapsed() >= Duration::from_millis(70));
    server.stop_and_join();
    assert!(client.rest_or_reset().0.is_empty());
}

#[test]
fn jobs_are_done_where_the_model_says() {
    let in_loop = |service| SingleLoop::builder(service).jobs(Jobs::InLoop);
    let server = Running::start(in_loop, |builder| builder.build());
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.ask("job"), "server");
        assert_eq!(client.ask("who"), "server");
    }
    drop(client);
    server.stop_and_join();

    let hybrid = |service| {
        Hybrid::builder(service)
            .loops(NonZeroUsize::new(2).unwrap())
            .workers(NonZeroUsize::MIN)
            .queue_max(1)
    };
    let server = Running::start(hybrid, |builder| builder.build());
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    // More at once than the pool takes.
    for client in &mut clients {
        client.send("job\njob\njob\n");
    }
    for client in &mut clients {
        for _ in 0..3 {
            assert_eq!(client.line(), "pool-1");
        }
        let name = client.ask("who");
        assert!(name == "server" || name == "loop-1", "{name}");
    }
    drop(clients);
    server.stop_and_join();
}
