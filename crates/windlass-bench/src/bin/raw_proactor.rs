//! A fixed answer to each blank line, by the proactor and nothing above it: the floor of what a
//! server over it costs. `raw_proactor --port PORT`; a request begins with `GET `.
//!
//! A connection is one event: a multishot receive into buffers of a pool, and one send at a time of
//! a vector that comes back with its completion. With `--once` each receive is started again, with
//! a buffer of the connection.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use windlass::event_loop::{
    CompletionOptions, Context, EventHandler, EventLoop, LoopConfig, Signal,
};
use windlass::proactor::{
    Completion, DriverChoice, OpId, Operation, Outcome, PoolId, ProactorConfig, Repeat, SharedFd,
};
use windlass::{Disposition, Happened};
use windlass_bench::{arg_flag, arg_num};
use windlass_sys::net::{self, ListenOptions};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\r\n\
    Hello! This body is 64 bytes long, the same from every peer...\r\n";

struct Server {
    /// `None`: each connection has a buffer of its own.
    pool: Option<PoolId>,
}

type Cx<'c> = Context<'c, 'static, Server>;

struct Connection {
    socket: SharedFd,
    /// The start of a request that is not whole yet.
    carry: Vec<u8>,
    owed: usize,
    sending: Option<OpId>,
}

impl Connection {
    fn completed(&mut self, cx: &mut Cx<'_>, completion: Completion) -> bool {
        match (completion.result, completion.operation) {
            (Ok(Outcome::Buffer(buffer)), _) => self.received(&buffer),
            (Ok(Outcome::Bytes(1..)), Some(Operation::Receive { socket, mut buffer })) => {
                let is_good = self.received(&buffer);
                buffer.clear();
                let event = cx.event();
                is_good
                    && cx
                        .start_for(event, Operation::Receive { socket, buffer })
                        .is_ok()
            }
            // One that was waited for.
            (Ok(Outcome::Bytes(_)), Some(Operation::Send { .. })) | (Ok(_), None) => true,
            _ => false,
        }
    }

    fn received(&mut self, bytes: &[u8]) -> bool {
        if self.carry.is_empty() {
            return self.take(bytes);
        }
        self.carry.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.carry);
        self.take(&all)
    }

    /// Counts the requests in `input`.
    fn take(&mut self, mut input: &[u8]) -> bool {
        while let Some(at) = find(input) {
            if !input.starts_with(b"GET ") {
                return false;
            }
            self.owed += 1;
            input = &input[at + 4..];
        }
        self.carry.extend_from_slice(input);
        true
    }

    fn send(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.owed == 0 {
            return true;
        }
        if let Some(sending) = self.sending
            && cx.wake_for(sending)
        {
            // These go when the answers before have gone.
            return true;
        }
        let mut bytes = cx.take_buffer();
        for _ in 0..std::mem::take(&mut self.owed) {
            bytes.extend_from_slice(ANSWER);
        }
        let event = cx.event();
        let send = Operation::Send {
            socket: Arc::clone(&self.socket),
            payload: bytes.into(),
        };
        self.sending = cx.start_quietly_for(event, send).ok();
        self.sending.is_some()
    }
}

fn find(input: &[u8]) -> Option<usize> {
    memchr::memmem::find(input, b"\r\n\r\n")
}

impl EventHandler<'static, Server> for Connection {
    fn handle_event(&mut self, _: &mut Server, cx: &mut Cx<'_>, _: Happened) -> Disposition {
        let event = cx.event();
        while let Some(completion) = cx.next_completion(event) {
            if !self.completed(cx, completion) {
                return Disposition::Remove;
            }
        }
        if !self.send(cx) {
            return Disposition::Remove;
        }
        Disposition::Keep
    }
}

fn accept(server: &Server, cx: &mut Cx<'_>, socket: OwnedFd) -> Result<(), Box<dyn Error>> {
    net::set_nodelay(socket.as_fd())?;
    let socket: SharedFd = Arc::new(socket);
    let connection = Connection {
        socket: Arc::clone(&socket),
        carry: Vec::new(),
        owed: 0,
        sending: None,
    };
    let event = cx
        .completion_event(Box::new(connection), CompletionOptions::default())
        .map_err(|error| error.to_string())?;
    let receive = match server.pool {
        Some(pool) => Operation::ReceiveMultishot { socket, pool },
        None => Operation::Receive {
            socket,
            buffer: Vec::with_capacity(4096),
        },
    };
    cx.start_for(event, receive)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let _ = windlass_sys::limits::raise_descriptor_limit(65_536);
    let port = u16::try_from(arg_num("--port", 8080))?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = net::listen(&addr, ListenOptions::default())?;
    let mut event_loop = EventLoop::with_config(LoopConfig {
        proactor: ProactorConfig {
            driver: DriverChoice::Automatic,
            ..ProactorConfig::default()
        },
        ..LoopConfig::default()
    })?;
    let pool = if arg_flag("--once") {
        None
    } else {
        Some(event_loop.provide_buffers(4096, 4096)?)
    };
    for signal in [Signal::INT, Signal::TERM] {
        event_loop.on_signal(signal, |_, cx, _| {
            cx.stop();
            Disposition::Keep
        })?;
    }
    let accepting = Operation::Accept {
        listener: Arc::new(listener),
        repeat: Repeat::Multishot,
    };
    event_loop.start(accepting, |server: &mut Server, cx, completion| {
        if let Ok(Outcome::Accepted(socket)) = completion.result {
            // Without room for another its peer sees a close.
            let _ = accept(server, cx, socket);
        }
    })?;
    event_loop.run(&mut Server { pool })?;
    Ok(())
}
