//! A server on one loop in a thread of its own, and blocking clients.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use windlass::models::{Limits, ServerReport, SingleLoop};
use windlass_http::{Answered, HttpConfig, HttpService, Request, Responder, ResponseError};

use crate::common::AllMethods;

/// Longer than anything takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub struct Server {
    pub addr: SocketAddr,
    stop: Box<dyn Fn() + Send>,
    thread: JoinHandle<ServerReport>,
}

impl Server {
    /// Serves with `handle`. A socket's buffers are `buffer_bytes` long, if that is given.
    pub fn start<F>(
        handle: F,
        config: HttpConfig,
        limits: Limits,
        buffer_bytes: Option<usize>,
    ) -> Self
    where
        F: Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError>
            + Send
            + Sync
            + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        if let Some(bytes) = buffer_bytes {
            set_buffers(&listener, bytes);
        }
        let addr = listener.local_addr().expect("an address");
        let service = Arc::new(HttpService::new(AllMethods(handle), config));
        let (send, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let builder = SingleLoop::builder(service)
                .limits(limits)
                .listener(listener);
            let mut server = builder.build().expect("build");
            send.send(server.stop_handle()).expect("the test waits");
            server.run().expect("run")
        });
        let stop = started.recv().expect("it starts");
        Self {
            addr,
            stop: Box::new(move || stop.stop().expect("it runs")),
            thread,
        }
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.addr).expect("connect"))
    }

    /// Begins a graceful stop.
    pub fn begin_stop(&self) {
        (self.stop)();
    }

    /// Waits for the end of a stop that was begun.
    pub fn join(self) -> ServerReport {
        self.thread.join().expect("no panic")
    }

    pub fn stop(self) -> ServerReport {
        self.begin_stop();
        self.join()
    }
}

pub fn set_buffers(socket: &impl std::os::fd::AsFd, bytes: usize) {
    sockopt::set_socket_send_buffer_size(socket, bytes).expect("set");
    sockopt::set_socket_recv_buffer_size(socket, bytes).expect("set");
}

/// A blocking client.
pub struct Client(pub TcpStream);

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        Self(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.write_all(bytes).expect("send");
        self
    }

    pub fn get(&mut self, target: &str) -> &mut Self {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())
    }

    pub fn end(&mut self) -> &mut Self {
        self.0.shutdown(Shutdown::Write).expect("shut down");
        self
    }

    /// All that comes up to the end of the connection.
    pub fn read_all(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        self.0.read_to_end(&mut sent).expect("no reset");
        sent
    }

    /// One answer with a length: its status, head and body.
    pub fn answer(&mut self) -> (u16, String, Vec<u8>) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("ASCII");
        let status = head[9..12].parse().expect("a status");
        let len = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |len| len.parse().expect("a length"));
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).expect("a body");
        (status, head, body)
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}
