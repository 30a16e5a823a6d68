//! Drivers to be tested, a loop over one, and what the claims share.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse};
use windlass::event_loop::{EventLoop, LoopConfig};
use windlass::proactor::{
    Completion, DriverChoice, OpId, Operation, Outcome, PoolId, Position, ProactorConfig,
    RingOptions, SharedFd,
};
use windlass_sys::fd::{Blocking, set_blocking};
use windlass_sys::uring::{Modes, Ring};

/// Makes the configuration of a loop over a driver.
pub(crate) type Make = fn() -> LoopConfig;

pub(crate) fn io_uring() -> Option<Make> {
    has_ring(RingOptions::default()).then_some(|| config(Backend::Uring, RingOptions::default()))
}

pub(crate) fn plain_io_uring() -> Option<Make> {
    has_ring(PLAIN).then_some(|| config(Backend::Uring, PLAIN))
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
pub(crate) fn emulated() -> Option<Make> {
    Some(|| config(Backend::Epoll, RingOptions::default()))
}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
pub(crate) fn emulated_over_poll() -> Option<Make> {
    Some(|| config(Backend::Poll, RingOptions::default()))
}

const PLAIN: RingOptions = RingOptions {
    submission_entries: 8,
    completion_entries: 16,
    modes: Modes::Plain,
};

fn has_ring(options: RingOptions) -> bool {
    match Ring::open(options) {
        Ok(_) => true,
        Err(reason) if std::env::var_os("WINDLASS_TEST_NO_URING").is_some() => {
            println!("skipped: {reason}");
            false
        }
        Err(reason) => panic!("{reason} (WINDLASS_TEST_NO_URING leaves it out)"),
    }
}

fn config(backend: Backend, ring: RingOptions) -> LoopConfig {
    let driver = match backend {
        Backend::Uring => DriverChoice::Uring,
        _ => DriverChoice::Emulated,
    };
    LoopConfig {
        backend: BackendConfig {
            force: Some(backend),
            environment: EnvironmentUse::Ignore,
            ..BackendConfig::default()
        },
        proactor: ProactorConfig { driver, ring },
        ..LoopConfig::default()
    }
}

/// What handlers leave behind.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) done: VecDeque<Completion>,
    pub(crate) ticks: u32,
}

/// A loop over a driver.
pub(crate) struct Subject {
    pub(crate) event_loop: EventLoop<'static, World>,
    pub(crate) world: World,
}

impl Subject {
    pub(crate) fn new(make: Make) -> Self {
        Self::with(make())
    }

    pub(crate) fn with(config: LoopConfig) -> Self {
        Self {
            event_loop: EventLoop::with_config(config).expect("open"),
            world: World::default(),
        }
    }

    /// Starts an operation; its completions are gathered.
    pub(crate) fn start(&mut self, operation: Operation) -> OpId {
        self.event_loop
            .start(operation, |world: &mut World, _, completion| {
                world.done.push_back(completion);
            })
            .expect("start")
    }

    /// Runs until there is a completion of any operation.
    pub(crate) fn next(&mut self) -> Completion {
        loop {
            if let Some(completion) = self.world.done.pop_front() {
                return completion;
            }
            self.turn();
        }
    }

    /// Runs until there is a completion of `id`; others are kept.
    pub(crate) fn next_of(&mut self, id: OpId) -> Completion {
        loop {
            let at = self.world.done.iter().position(|one| one.id == id);
            if let Some(completion) = at.and_then(|at| self.world.done.remove(at)) {
                return completion;
            }
            self.turn();
        }
    }

    /// Does one operation.
    pub(crate) fn complete(&mut self, operation: Operation) -> Completion {
        let id = self.start(operation);
        self.next_of(id)
    }

    /// The error that an operation ends with.
    pub(crate) fn error(&mut self, operation: Operation) -> i32 {
        let completion = self.complete(operation);
        assert!(!completion.has_more());
        match completion.result {
            Err(error) => error.raw_os_error().expect("a system error"),
            Ok(outcome) => panic!("{outcome:?}"),
        }
    }

    /// One pass of the loop, which waits if nothing is there.
    pub(crate) fn turn(&mut self) {
        self.event_loop.run_once(&mut self.world).expect("run");
    }

    /// Some passes that do not wait: what can be done at once is done.
    pub(crate) fn settle(&mut self) {
        for _ in 0..4 {
            self.event_loop
                .run_nonblocking(&mut self.world)
                .expect("run");
        }
    }

    /// Runs for `time`, and checks that nothing completes.
    pub(crate) fn stays_quiet(&mut self, time: Duration) {
        let before = self.world.done.len();
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let ticks = self.world.ticks;
            self.event_loop
                .after(Duration::from_millis(1), |world, _| world.ticks += 1)
                .expect("a timer");
            while self.world.ticks == ticks {
                self.turn();
            }
        }
        assert_eq!(self.world.done.len(), before, "{:?}", self.world.done);
    }

    pub(crate) fn pool(&mut self, count: u16, size_bytes: u32) -> PoolId {
        self.event_loop
            .provide_buffers(count, size_bytes)
            .expect("a pool")
    }
}

pub(crate) fn bytes(completion: &Completion) -> usize {
    match &completion.result {
        Ok(Outcome::Bytes(count)) => *count,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_done(completion: &Completion) -> bool {
    matches!(completion.result, Ok(Outcome::Done))
}

/// The same open file, as a file.
pub(crate) fn as_file(shared: &SharedFd) -> Arc<std::fs::File> {
    Arc::new(shared.try_clone().expect("descriptors are left").into())
}

pub(crate) fn shared(fd: impl Into<OwnedFd>) -> SharedFd {
    Arc::new(fd.into())
}

/// Whether a descriptor of ours blocks; each way must do.
pub(crate) const BOTH: [Blocking; 2] = [Blocking::Blocking, Blocking::Nonblocking];

/// A pair of Unix sockets; ours blocks or not.
pub(crate) fn pair(mode: Blocking) -> (SharedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    set_blocking(ours.as_fd(), mode).expect("set");
    (shared(ours), theirs)
}

/// A TCP connection; ours blocks or not.
pub(crate) fn connection(mode: Blocking) -> (SharedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let theirs = TcpStream::connect(listener.local_addr().expect("name")).expect("connect");
    let (ours, _) = listener.accept().expect("accept");
    set_blocking(ours.as_fd(), mode).expect("set");
    (shared(ours), theirs)
}

pub(crate) fn pipe(mode: Blocking) -> (OwnedFd, OwnedFd) {
    let (reader, writer) = io::pipe().expect("pipe");
    set_blocking(reader.as_fd(), mode).expect("set");
    set_blocking(writer.as_fd(), mode).expect("set");
    (reader.into(), writer.into())
}

pub(crate) fn receive(socket: &SharedFd, room: usize) -> Operation {
    Operation::Receive {
        socket: Arc::clone(socket),
        buffer: Vec::with_capacity(room),
    }
}

pub(crate) fn send(socket: &SharedFd, content: &[u8]) -> Operation {
    Operation::Send {
        socket: Arc::clone(socket),
        payload: content.to_vec().into(),
    }
}

pub(crate) fn read(fd: &SharedFd, room: usize) -> Operation {
    Operation::Read {
        fd: Arc::clone(fd),
        buffer: Vec::with_capacity(room),
        position: Position::Current,
    }
}

pub(crate) fn write(fd: &SharedFd, content: &[u8]) -> Operation {
    Operation::Write {
        fd: Arc::clone(fd),
        payload: content.to_vec().into(),
        position: Position::Current,
    }
}

pub(crate) fn timeout(after: Duration) -> Operation {
    Operation::Timeout { after }
}

/// Content that tells where each byte belongs.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A directory of a test's own.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("windlass-proactor-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("make a directory");
        Self(path)
    }

    /// A file with `content`.
    pub(crate) fn file(&self, content: &[u8]) -> SharedFd {
        let path = self.0.join("file");
        std::fs::write(&path, content).expect("write");
        shared(std::fs::File::open(&path).expect("open"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many operations the long tests make.
pub(crate) fn long_count() -> u64 {
    std::env::var("WINDLASS_TEST_OPERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000)
}

/// Numbers that look random; the same for each seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
