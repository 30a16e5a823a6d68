//! A scripted server, and a loop that runs a client until it has nothing to do.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windlass::event_loop::EventLoop;
use windlass::pool::{PoolConfig, WorkerPool};
use windlass_http::client::{
    ClientConfig, ClientError, ClientErrorKind, ClientResponse, HttpClient, ResponseFault,
};

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What became of the requests, in the order in which they ended.
#[derive(Default)]
pub struct State {
    pub results: Vec<Result<ClientResponse, ClientError>>,
    pub log: Vec<String>,
}

pub type Loop<'l> = EventLoop<'l, State>;
pub type Client<'l> = HttpClient<'l, State>;

pub fn pool() -> WorkerPool {
    WorkerPool::new(PoolConfig::default()).expect("a thread")
}

/// Has `start` use a client, and runs the loop until it is empty.
pub fn run(
    config: ClientConfig,
    start: impl FnOnce(&Client<'static>, &mut Loop<'static>),
) -> State {
    let mut event_loop = Loop::new().expect("open");
    let client = HttpClient::new(config, pool());
    start(&client, &mut event_loop);
    let mut state = State::default();
    event_loop.run(&mut state).expect("run");
    assert_eq!(client.pending_count(), 0);
    state
}

/// Fetches one URL.
pub fn get(config: ClientConfig, url: &str) -> Result<ClientResponse, ClientError> {
    let state = run(config, |client, event_loop| ask(client, event_loop, url));
    state.results.into_iter().next().expect("a result")
}

/// Asks for `url` and keeps the result.
pub fn ask(
    client: &Client<'static>,
    cx: &mut windlass::event_loop::Reactor<'static, State>,
    url: &str,
) {
    client
        .get(cx, url, |state, _cx, result| state.results.push(result))
        .expect("sent");
}

pub fn fault(result: Result<ClientResponse, ClientError>) -> ResponseFault {
    match result.expect_err("no response").kind() {
        ClientErrorKind::Response(fault) => *fault,
        other => panic!("another error: {other:?}"),
    }
}

/// The server's side of one connection.
pub struct Connection {
    pub stream: TcpStream,
    buf: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("option");
        stream.set_write_timeout(limit).expect("option");
        Self {
            stream,
            buf: Vec::new(),
        }
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 4096];
        let count = self.stream.read(&mut piece).expect("the client sends");
        self.buf.extend_from_slice(&piece[..count]);
        count > 0
    }

    /// Reads up to the end of a head; empty if the client closed.
    pub fn head(&mut self) -> String {
        self.until(b"\r\n\r\n")
    }

    /// Reads up to `end`, with it.
    pub fn until(&mut self, end: &[u8]) -> String {
        // What was looked through is not again: bodies are long.
        let mut searched = 0;
        loop {
            let found = self.buf[searched..]
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                let rest = self.buf.split_off(searched + at + end.len());
                let taken = std::mem::replace(&mut self.buf, rest);
                return String::from_utf8(taken).expect("text");
            }
            searched = self.buf.len().saturating_sub(end.len() - 1);
            if !self.fill() {
                assert!(self.buf.is_empty(), "cut: {}", self.buf.escape_ascii());
                return String::new();
            }
        }
    }

    pub fn send(&mut self, bytes: &str) {
        self.stream
            .write_all(bytes.as_bytes())
            .expect("the client reads");
    }

    /// Reads a head, and answers it.
    pub fn answer(&mut self, bytes: &str) -> String {
        let head = self.head();
        self.send(bytes);
        head
    }

    /// Waits until the client closes.
    pub fn wait_for_end(&mut self) {
        while self
            .stream
            .read(&mut [0; 4096])
            .is_ok_and(|count| count > 0)
        {}
    }

    /// Closes with a reset.
    pub fn reset(self) {
        windlass_sys::net::set_linger_zero(std::os::fd::AsFd::as_fd(&self.stream)).expect("option");
    }
}

/// A server whose connections, in the order in which they come, are handled by `script` one after
/// the other, each with its number. It ends after `count`.
pub struct Server {
    pub addr: SocketAddr,
    thread: JoinHandle<()>,
}

impl Server {
    pub fn start(count: usize, mut script: impl FnMut(usize, Connection) + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let addr = listener.local_addr().expect("bound");
        let thread = thread::spawn(move || {
            for number in 0..count {
                let (stream, _) = listener.accept().expect("accept");
                script(number, Connection::new(stream));
            }
        });
        Self { addr, thread }
    }

    /// A server that answers one request with these bytes, and closes.
    pub fn once(answer: &'static str) -> Self {
        Self::start(1, move |_, mut connection| {
            connection.answer(answer);
        })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Waits until all connections were handled.
    pub fn join(self) {
        self.thread.join().expect("the script holds");
    }
}

/// A server of `windlass`, in a thread.
pub struct OwnServer {
    pub addr: SocketAddr,
    stop: Box<dyn FnOnce()>,
    thread: JoinHandle<windlass::models::ServerReport>,
}

impl OwnServer {
    pub fn start(handler: impl windlass_http::Handler) -> Self {
        use std::sync::Arc;
        use windlass::models::SingleLoop;
        use windlass_http::{HttpConfig, HttpService};

        let service = Arc::new(HttpService::new(handler, HttpConfig::default()));
        let (send, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut server = SingleLoop::builder(service)
                .listen(addr)
                .build()
                .expect("build");
            let started = (server.local_addrs()[0], server.stop_handle());
            send.send(started).expect("the test waits");
            server.run().expect("run")
        });
        let (addr, stop) = started.recv().expect("it starts");
        Self {
            addr,
            stop: Box::new(move || stop.stop().expect("it runs")),
            thread,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub fn stop(self) -> windlass::models::ServerReport {
        (self.stop)();
        self.thread.join().expect("no panic")
    }
}
