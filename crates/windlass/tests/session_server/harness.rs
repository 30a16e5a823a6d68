//! A model under test as a server in a thread, and plain clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use windlass::models::{
    Accepting, BindError, Dealing, Limits, MultiLoop, ServerBuilder, ServerReport, SingleLoop,
    StopHandle,
};
use windlass::pool::WorkerPool;
use windlass::session::Service;
use windlass_sys::net::{self, ListenOptions};

/// What takes so long hangs: generous, as machines are loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// A test that takes so long hangs.
const HANG_LIMIT: Duration = Duration::from_secs(180);

/// A concurrency model that serves sessions.
pub(crate) trait Model {
    /// The module of its tests.
    const NAME: &str;
    /// The back ends that it runs on.
    const BACKENDS: &[&str] = &["epoll", "poll", "select"];

    /// Starts to serve `service`, accepting from `listeners`, in threads of its own.
    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started;
}

/// How a server is started.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) pool: Option<WorkerPool>,
}

/// What a model gives to the harness.
pub(crate) struct Started {
    /// Begins a graceful stop; called again, cuts.
    pub(crate) stop: Box<dyn Fn() + Send>,
    /// Gives the report when the server has ended.
    pub(crate) report: Receiver<ServerReport>,
}

/// The single loop.
#[derive(Debug)]
pub(crate) struct Single;

impl Model for Single {
    const NAME: &str = "single_loop";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        serve_in_thread(move |tell| {
            let mut builder = SingleLoop::builder(service).limits(options.limits);
            for listener in listeners {
                builder = builder.listener(listener);
            }
            if let Some(pool) = options.pool {
                builder = builder.pool(pool);
            }
            let mut server = builder.build().expect("build");
            tell(server.stop_handle());
            server.run().expect("run")
        })
    }
}

/// Two loops.
#[derive(Debug)]
pub(crate) struct Multi;

impl Model for Multi {
    const NAME: &str = "multi_loop";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        start_two_loops(service, listeners, options, Accepting::ReusePort)
    }
}

/// Two loops of which the first accepts for both.
#[derive(Debug)]
pub(crate) struct Dealt;

impl Model for Dealt {
    const NAME: &str = "one_acceptor";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let accepting = Accepting::Acceptor(Dealing::RoundRobin);
        start_two_loops(service, listeners, options, accepting)
    }
}

fn start_two_loops<V: Service>(
    service: Arc<V>,
    listeners: Vec<OwnedFd>,
    options: Options,
    accepting: Accepting,
) -> Started {
    serve_in_thread(move |tell| {
        let mut builder = MultiLoop::builder(service)
            .loops(NonZeroUsize::new(2).expect("not zero"))
            .accepting(accepting)
            .limits(options.limits);
        for listener in listeners {
            builder = builder.listener(listener);
        }
        if let Some(pool) = options.pool {
            builder = builder.pool(pool);
        }
        let mut server = builder.build().expect("build");
        tell(server.stop_handle());
        server.run().expect("run")
    })
}

/// Starts a server of any model in a thread.
pub(crate) fn start<V: Service, M: Send + 'static, S: windlass::models::Server<V> + 'static>(
    builder: ServerBuilder<V, M>,
    listeners: Vec<OwnedFd>,
    options: Options,
    build: fn(ServerBuilder<V, M>) -> Result<S, BindError>,
) -> Started {
    serve_in_thread(move |tell| {
        let mut builder = builder.limits(options.limits);
        for listener in listeners {
            builder = builder.listener(listener);
        }
        if let Some(pool) = options.pool {
            builder = builder.pool(pool);
        }
        let mut server = build(builder).expect("build");
        tell(server.stop_handle());
        server.run().expect("run")
    })
}

/// Runs `serve`, which tells how it is stopped, in a thread.
fn serve_in_thread(
    serve: impl FnOnce(&dyn Fn(StopHandle)) -> ServerReport + Send + 'static,
) -> Started {
    let (send_stop, stop) = mpsc::channel();
    let (send_report, report) = mpsc::channel();
    thread::spawn(move || {
        let report = serve(&|handle| send_stop.send(handle).expect("the starter waits"));
        // The test may have ended without it.
        let _ = send_report.send(report);
    });
    let handle = stop.recv_timeout(PATIENCE).expect("the server starts");
    let stop = Box::new(move || {
        // Ended already.
        let _ = handle.stop();
    });
    Started { stop, report }
}

/// A listener whose backlog takes all clients of a test.
fn listen() -> (OwnedFd, SocketAddr) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = net::listen(&any, ListenOptions::default()).expect("listen");
    let addr = net::local_addr(listener.as_fd())
        .expect("address")
        .expect("an Internet address");
    (listener, addr)
}

/// A running server.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    started: Started,
}

impl Server {
    pub(crate) fn start<M: Model, V: Service>(service: V, options: Options) -> Self {
        let (listener, addr) = listen();
        let started = M::start(Arc::new(service), vec![listener], options);
        Self { addr, started }
    }

    /// Also listens on a second address.
    pub(crate) fn start_on_two<M: Model, V: Service>(service: V) -> (Self, SocketAddr) {
        let (first, addr) = listen();
        let (second, second_addr) = listen();
        let started = M::start(Arc::new(service), vec![first, second], Options::default());
        (Self { addr, started }, second_addr)
    }

    /// Listens on a Unix socket; the address is not to be used.
    pub(crate) fn start_on_unix<M: Model, V: Service>(service: V, listener: UnixListener) -> Self {
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        let started = M::start(Arc::new(service), vec![listener.into()], Options::default());
        Self { addr, started }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addr)
    }

    pub(crate) fn stop(&self) {
        (self.started.stop)();
    }

    /// Waits for the end that was asked for.
    pub(crate) fn join(self) -> ServerReport {
        self.started
            .report
            .recv_timeout(PATIENCE)
            .expect("the server ends")
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(
            self.started.report.try_recv(),
            Err(mpsc::TryRecvError::Empty)
        )
    }

    pub(crate) fn stop_and_join(self) -> ServerReport {
        self.stop();
        self.join()
    }
}

/// A blocking client of the line protocol.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream
            .get_mut()
            .write_all(bytes.as_ref())
            .expect("send");
        self
    }

    /// Closes the sending side.
    pub(crate) fn end(&mut self) -> &mut Self {
        self.socket().shutdown(Shutdown::Write).expect("shutdown");
        self
    }

    /// Reads a line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read a line");
        assert!(line.ends_with('\n'), "the connection ended after {line:?}");
        line.pop();
        line
    }

    /// Sends a line and reads the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n"));
        self.line()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("read");
        bytes
    }

    /// Reads to the orderly end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream
            .read_to_end(&mut bytes)
            .expect("read to the end");
        bytes
    }

    /// Reads to the end, whether it is orderly or a reset; answers which.
    pub(crate) fn rest_or_reset(&mut self) -> (Vec<u8>, End) {
        let mut bytes = Vec::new();
        let end = match self.stream.read_to_end(&mut bytes) {
            Ok(_) => End::Orderly,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("read: {error}"),
        };
        (bytes, end)
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Orderly,
    Reset,
}

/// Runs a test; a hang ends the process with the test's name.
pub(crate) fn guarded(name: &str, test: impl FnOnce()) {
    silence_panics_on_purpose();
    let (done, is_done) = mpsc::channel::<()>();
    let name = name.to_owned();
    let guard = thread::spawn(move || {
        if is_done.recv_timeout(HANG_LIMIT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
    guard.join().expect("guard");
}

/// Says nothing of the hundreds of panics that the tests ask for: they hide those that nobody asked
/// for, and their backtraces take longer than all else in a test.
fn silence_panics_on_purpose() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str();
            if !text.is_some_and(|text| text.starts_with("as asked")) {
                report(panic);
            }
        }));
    });
}

/// Tells a test that it is the child.
const CHILD: &str = "WINDLASS_TEST_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs this program again for one test, with a limit of descriptors.
pub(crate) fn spawn_self<M: Model>(claim: &str, descriptors: u32) -> ChildGuard {
    spawn_self_with::<M>(claim, descriptors, &[])
}

/// The same, with `variables` in its environment.
pub(crate) fn spawn_self_with<M: Model>(
    claim: &str,
    descriptors: u32,
    variables: &[(&str, &str)],
) -> ChildGuard {
    let test = format!("{}::{claim}", M::NAME);
    let program = std::env::current_exe().expect("this program");
    let child = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\""))
        .arg(program)
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start this program again");
    ChildGuard(child)
}

/// A child that does not outlive its test.
#[derive(Debug)]
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // It has ended, if all went well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
