//! One connection of the load generator: what it sends, and how answers are checked.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use windlass::EventId;
use windlass::session::{Front, Input, Output};
use windlass_http::client::{
    ClientConnection, ClientNext, ClientProgress, ClientRequest, Flow, PreparedRequest,
    RequestError, ResponseHead, ResponseLimits, ResponseSink, Reuse,
};
use windlass_sys::net::{self, More};

use crate::compare::args::LoadArguments;
use crate::compare::congestion;
use crate::compare::workload::{
    COMPUTE_PATH, ECHO_BYTES, HELLO_BODY, SLOW_BUFFER_BYTES, SLOW_LEN, SLOW_PATH, Workload,
};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a connection is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its requests are measured.
    Active,
    /// Asks once and is silent then.
    Idle,
    SlowReader,
    SlowWriter,
}

impl Role {
    /// The roles of all connections, the active ones first.
    pub(super) fn all(arguments: &LoadArguments) -> Vec<Self> {
        let active = arguments.connections as usize;
        let mut roles = vec![Self::Active; active];
        match arguments.workload {
            Workload::Idle => {
                roles.extend(std::iter::repeat_n(Self::Idle, arguments.idle as usize));
            }
            Workload::Slow => {
                let each = (active / 8).max(1);
                roles.extend(std::iter::repeat_n(Self::SlowReader, each));
                roles.extend(std::iter::repeat_n(Self::SlowWriter, each));
            }
            _ => {}
        }
        roles
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Compute,
    Plain,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// From when its latency counts.
    pub(super) due_ns: u64,
    pub(super) class: Class,
}

/// The requests, prepared once, and how long their answers are.
pub(super) struct Requests {
    plain: (PreparedRequest, u64),
    compute: (PreparedRequest, u64),
    /// What slow writers ask for.
    small: (PreparedRequest, u64),
    /// What slow readers ask for.
    large: (PreparedRequest, u64),
}

impl Requests {
    pub(super) fn new(arguments: &LoadArguments) -> Result<Self, RequestError> {
        let prepare = |(path, len): (&str, u64)| {
            let url = format!("http://{}{path}", arguments.addr);
            Ok((ClientRequest::get(&url)?.prepare(), len))
        };
        let hello_len = HELLO_BODY.len() as u64;
        Ok(Self {
            plain: prepare(arguments.workload.path())?,
            compute: prepare((COMPUTE_PATH, hello_len))?,
            small: prepare(("/", hello_len))?,
            large: prepare((SLOW_PATH, SLOW_LEN))?,
        })
    }

    fn of(&self, role: Role, class: Class) -> &(PreparedRequest, u64) {
        match (role, class) {
            (_, Class::Compute) => &self.compute,
            (Role::Active, Class::Plain) => &self.plain,
            (Role::SlowReader, Class::Plain) => &self.large,
            (Role::Idle | Role::SlowWriter, Class::Plain) => &self.small,
        }
    }
}

/// One connection.
pub(super) struct Connection {
    pub(super) socket: Rc<OwnedFd>,
    pub(super) event: EventId,
    pub(super) role: Role,
    /// Whether the loop watches for it to be writable.
    pub(super) waits_to_write: bool,
    sent: Option<Sent>,
    output: Output,
    protocol: Protocol,
}

enum Protocol {
    Echo(EchoCheck),
    Http(Box<HttpCheck>),
}

/// What came of some input.
pub(super) enum Answer {
    /// The connection can't go on.
    Broken(String),
    /// With what is wrong with it, if something is.
    Complete(Sent, Result<(), String>),
    Incomplete,
}

impl Connection {
    pub(super) fn new(socket: Rc<OwnedFd>, event: EventId, role: Role, is_echo: bool) -> Self {
        Self {
            socket,
            event,
            role,
            waits_to_write: false,
            sent: None,
            output: Output::default(),
            protocol: match is_echo {
                true => Protocol::Echo(EchoCheck::default()),
                false => Protocol::Http(Box::new(HttpCheck::new())),
            },
        }
    }

    /// Whether no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_none()
    }

    /// The request under way, given up.
    pub(super) fn take_sent(&mut self) -> Option<Sent> {
        self.sent.take()
    }

    /// Queues a request.
    pub(super) fn prepare(&mut self, requests: &Requests, sent: Sent) {
        self.sent = Some(sent);
        match &mut self.protocol {
            Protocol::Echo(echo) => self.output.push(echo.next()),
            Protocol::Http(http) => {
                let (request, len) = requests.of(self.role, sent.class);
                http.expect(*len);
                http.client.send(request, &mut self.output);
            }
        }
    }

    /// Sends what is queued; answers whether that was all.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while let Some(Front::Bytes(bytes)) = self.output.front() {
            match net::send(self.socket.as_fd(), bytes, More::Flush)? {
                Some(count) => self.output.advance(count as u64),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends `bytes_max` bytes of what is queued, at most.
    pub(super) fn dribble(&mut self, bytes_max: usize) -> io::Result<()> {
        if let Some(Front::Bytes(bytes)) = self.output.front() {
            let piece = &bytes[..bytes.len().min(bytes_max)];
            if let Some(count) = net::send(self.socket.as_fd(), piece, More::Flush)? {
                self.output.advance(count as u64);
            }
        }
        Ok(())
    }

    /// Takes what was received.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Answer {
        let verdict = match &mut self.protocol {
            Protocol::Echo(echo) => echo.feed(bytes),
            Protocol::Http(http) => http.feed(bytes),
        };
        let verdict = match verdict {
            Ok(None) => return Answer::Incomplete,
            Ok(Some(verdict)) => verdict,
            Err(what) => return Answer::Broken(what),
        };
        match self.sent.take() {
            Some(sent) => Answer::Complete(sent, verdict),
            None => Answer::Broken("an answer that nobody asked for".into()),
        }
    }
}

/// What a complete answer is: good, or what is wrong with it. None yet: `None`. `Err`: the connection
/// is of no use any more.
type Verdict = Result<Option<Result<(), String>>, String>;

/// Checks that what comes back is what was sent.
struct EchoCheck {
    count: u64,
    message: [u8; ECHO_BYTES],
    echoed: usize,
}

impl Default for EchoCheck {
    fn default() -> Self {
        Self {
            count: 0,
            message: [0; ECHO_BYTES],
            echoed: 0,
        }
    }
}

impl EchoCheck {
    /// The next message, unlike those before.
    fn next(&mut self) -> &[u8] {
        self.count += 1;
        self.echoed = 0;
        for (at, byte) in self.message.iter_mut().enumerate() {
            // The low byte is what makes them differ.
            *byte = (self.count.rotate_right(8 * (at as u32 % 8)) as u8).wrapping_add(at as u8);
        }
        &self.message
    }

    fn feed(&mut self, bytes: &[u8]) -> Verdict {
        let rest = &self.message[self.echoed..];
        if !rest.starts_with(bytes) {
            return Err("echoed bytes differ".into());
        }
        self.echoed += bytes.len();
        Ok((self.echoed == ECHO_BYTES).then_some(Ok(())))
    }
}

/// Checks the status and the length of answers.
struct HttpCheck {
    client: ClientConnection,
    seen: Seen,
    expected_bytes: u64,
    /// Input that was not consumed: the begin of a head.
    input: Vec<u8>,
}

#[derive(Default)]
struct Seen {
    status: u16,
    bytes: u64,
}

impl ResponseSink for Seen {
    fn head(&mut self, head: &ResponseHead<'_>) -> Flow {
        self.status = head.status().code();
        Flow::Continue
    }

    fn body(&mut self, piece: &[u8]) -> Flow {
        self.bytes += piece.len() as u64;
        Flow::Continue
    }
}

impl HttpCheck {
    fn new() -> Self {
        Self {
            client: ClientConnection::new(ResponseLimits::default()),
            seen: Seen::default(),
            expected_bytes: 0,
            input: Vec::new(),
        }
    }

    fn expect(&mut self, bytes: u64) {
        self.seen = Seen::default();
        self.expected_bytes = bytes;
    }

    fn feed(&mut self, bytes: &[u8]) -> Verdict {
        if self.input.is_empty() {
            let progress = self.advance(bytes)?;
            self.go_on(&bytes[progress.consumed..], progress.next)
        } else {
            let mut gathered = std::mem::take(&mut self.input);
            gathered.extend_from_slice(bytes);
            let progress = self.advance(&gathered)?;
            self.go_on(&gathered[progress.consumed..], progress.next)
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<ClientProgress, String> {
        let input = Input {
            bytes,
            ended: false,
        };
        let advanced = self.client.advance(input, &mut self.seen);
        advanced.map_err(|fault| format!("answer: {fault}"))
    }

    /// `rest` is what was not consumed.
    fn go_on(&mut self, rest: &[u8], next: ClientNext) -> Verdict {
        match next {
            ClientNext::Done(Reuse::Keep) => Ok(Some(self.judge())),
            ClientNext::Done(Reuse::Close) => Err("an answer that is the last".into()),
            ClientNext::Read => {
                self.input.extend_from_slice(rest);
                Ok(None)
            }
            ClientNext::Paused | ClientNext::Tunnel => Err("an answer of another kind".into()),
        }
    }

    fn judge(&self) -> Result<(), String> {
        if self.seen.status != 200 {
            Err(format!("status {}", self.seen.status))
        } else if self.seen.bytes != self.expected_bytes {
            Err("length of the answer".into())
        } else {
            Ok(())
        }
    }
}

/// Connects, within a time limit.
pub(super) fn connect(addr: &SocketAddr, role: Role) -> io::Result<Rc<OwnedFd>> {
    let socket: OwnedFd = match role {
        // A small buffer has to be asked for before, so that the window is as small.
        Role::SlowReader => {
            let socket = rustix::net::socket_with(
                match addr {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                },
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                Some(ipproto::TCP),
            )?;
            sockopt::set_socket_recv_buffer_size(&socket, SLOW_BUFFER_BYTES)?;
            rustix::net::connect(&socket, addr)?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            socket
        }
        Role::Active | Role::Idle | Role::SlowWriter => {
            let stream = TcpStream::connect_timeout(addr, CONNECT_LIMIT)?;
            stream.set_nonblocking(true)?;
            stream.into()
        }
    };
    net::set_nodelay(socket.as_fd())?;
    congestion::prefer(&socket);
    Ok(Rc::new(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(expected: u64) -> HttpCheck {
        let request = ClientRequest::get("http://h/").expect("valid").prepare();
        let mut check = HttpCheck::new();
        check.expect(expected);
        check.client.send(&request, &mut Output::default());
        check
    }

    #[test]
    fn answers_are_checked_however_they_are_cut() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 1..answer.len() {
            let mut check = http(5);
            assert_eq!(check.feed(&answer[..cut]), Ok(None), "{cut}");
            assert_eq!(check.feed(&answer[cut..]), Ok(Some(Ok(()))), "{cut}");
        }
    }

    #[test]
    fn a_wrong_status_or_length_is_found() {
        let length = http(6).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(length, Ok(Some(Err("length of the answer".into()))));
        let status = http(5).feed(b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(status, Ok(Some(Err("status 503".into()))));
        assert!(http(5).feed(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[test]
    fn an_echo_must_be_the_same_bytes() {
        let mut echo = EchoCheck::default();
        let first = echo.next().to_vec();
        assert_eq!(echo.feed(&first[..10]), Ok(None));
        assert_eq!(echo.feed(&first[10..]), Ok(Some(Ok(()))));
        let second = echo.next().to_vec();
        assert_ne!(first, second);
        assert!(echo.feed(&first).is_err());
    }
}
