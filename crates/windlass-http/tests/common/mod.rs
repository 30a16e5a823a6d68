//! A driver in memory: feeds bytes to a session in any cut, runs jobs at once, keeps the output.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod server;

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use windlass::session::{
    Front, Input, Next, Notifier, Now, Output, OutputLimits, Peer, Service, Session,
    SessionContext, Wakeups,
};
use windlass_http::{
    Answered, FixedResponse, Handler, HttpConfig, HttpService, Method, Methods, Request, Responder,
    Response, ResponseError, Status,
};

/// One connection and its driver.
pub struct Connection<S: Service> {
    pub session: S::Session,
    pub local: S::Local,
    pub output: Output,
    pub now: Now,
    /// Made when the session asks for it.
    pub notifier: Option<Notifier>,
    /// Input that the session has not consumed.
    pending: Vec<u8>,
    ended: bool,
    /// What was sent.
    pub sent: Vec<u8>,
    /// The session asked to close, or to abort.
    pub closed: bool,
    /// The session asked to abort: what was queued is lost.
    pub aborted: bool,
    /// The most output that was queued after a call.
    pub queued_bytes_max: u64,
    /// How many bytes the session has consumed.
    pub consumed: usize,
    pub flushes: usize,
    /// Output stays queued if it is set, as with a peer that does not read.
    pub hold_output: bool,
    /// Jobs are kept here instead of being run if it is set.
    pub hold_jobs: bool,
    pub held: Option<windlass::session::Job>,
}

impl<S: Service> Connection<S> {
    pub fn open(service: &S) -> Self {
        let now = Now {
            unix_ms: 784_111_777_000,
            ..Now::default()
        };
        let mut local = service.local();
        let peer = Peer::new(Some(([192, 0, 2, 1], 4711).into()));
        let session = service.open(&mut local, &peer, now);
        Self {
            session,
            local,
            output: Output::new(OutputLimits {
                high_bytes: 64 * 1024,
                low_bytes: 16 * 1024,
            }),
            now,
            notifier: None,
            pending: Vec::new(),
            ended: false,
            sent: Vec::new(),
            closed: false,
            aborted: false,
            queued_bytes_max: 0,
            consumed: 0,
            flushes: 0,
            hold_output: false,
            hold_jobs: false,
            held: None,
        }
    }

    /// Gives `bytes` to the session.
    pub fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        if !self.closed {
            // Another turn.
            self.now.monotonic = self.now.monotonic + Duration::from_nanos(1);
            self.pending.extend_from_slice(bytes);
            self.run();
        }
        self
    }

    /// Ends the input.
    pub fn end(&mut self) -> &mut Self {
        self.ended = true;
        self.run();
        self
    }

    pub fn pass(&mut self, time: Duration) -> &mut Self {
        self.now.monotonic = self.now.monotonic + time;
        self.now.unix_ms += time.as_millis() as u64;
        if self
            .session
            .deadline()
            .is_some_and(|deadline| deadline <= self.now.monotonic)
        {
            let next = self.call(|session, cx| session.expire(cx));
            self.follow(next);
            self.run();
        }
        self
    }

    pub fn stop(&mut self) -> &mut Self {
        let next = self.call(|session, cx| session.stop(cx));
        self.follow(next);
        self.run();
        self
    }

    /// Has the peer take all output that was held, and lets the session go on once.
    pub fn take_output(&mut self) -> &mut Self {
        self.hold_output = false;
        self.drain();
        self.hold_output = true;
        self.run();
        self
    }

    /// How much input the session has left.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    pub fn run_held_job(&mut self) -> &mut Self {
        let job = self.held.take().expect("a job is held");
        self.complete(job.run());
        self
    }

    pub fn complete(&mut self, result: windlass::session::JobResult) {
        let next = self.call(|session, cx| session.complete(cx, result));
        self.follow(next);
        if !self.closed {
            self.run();
        }
    }

    /// Calls the session until no notification is left; `rounds_max` bounds the calls.
    pub fn serve_notifications(&mut self, rounds_max: usize) -> &mut Self {
        for _ in 0..rounds_max {
            if !self.serve_notification() {
                return self;
            }
        }
        panic!("notified without end");
    }

    /// Calls the session if it was notified; answers whether it was.
    pub fn serve_notification(&mut self) -> bool {
        let notified = self.notifier.as_ref().is_some_and(Notifier::take);
        if notified {
            self.run();
        }
        notified
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent).into_owned()
    }

    /// The status codes of all that was sent, with bodies skipped by their length.
    pub fn statuses(&self) -> Vec<u16> {
        answers(&self.sent)
            .into_iter()
            .map(|answer| answer.status)
            .collect()
    }

    fn call<R>(
        &mut self,
        f: impl FnOnce(&mut S::Session, &mut SessionContext<'_, S::Local>) -> R,
    ) -> R {
        let make = || Notifier::new(|| {});
        let mut cx = SessionContext {
            local: &mut self.local,
            output: &mut self.output,
            now: self.now,
            wakeups: Wakeups::new(&mut self.notifier, &make),
        };
        f(&mut self.session, &mut cx)
    }

    fn run(&mut self) {
        while !self.closed && self.held.is_none() {
            let bytes = std::mem::take(&mut self.pending);
            let input = Input {
                bytes: &bytes,
                ended: self.ended,
            };
            let progress = self.call(|session, cx| session.advance(cx, input));
            assert!(progress.consumed <= bytes.len());
            self.consumed += progress.consumed;
            self.pending = bytes[progress.consumed..].to_vec();
            let go_on = match progress.next {
                Next::Flush => !self.hold_output,
                Next::Job(_) => true,
                _ => false,
            };
            self.follow(progress.next);
            if !go_on {
                break;
            }
        }
    }

    fn follow(&mut self, next: Next) {
        match next {
            Next::Read | Next::Wait => {}
            Next::Flush => self.flushes += 1,
            Next::Job(job) if self.hold_jobs => self.held = Some(job),
            Next::Job(job) => {
                let result = job.run();
                let next = self.call(|session, cx| session.complete(cx, result));
                self.follow(next);
            }
            Next::Close => self.closed = true,
            Next::Abort => {
                self.closed = true;
                self.aborted = true;
                self.output.clear();
            }
            other => panic!("unknown: {other:?}"),
        }
        self.drain();
    }

    fn drain(&mut self) {
        self.queued_bytes_max = self.queued_bytes_max.max(self.output.queued_bytes());
        if self.hold_output {
            return;
        }
        while let Some(front) = self.output.front() {
            let sent = match front {
                Front::Bytes(bytes) => {
                    self.sent.extend_from_slice(bytes);
                    bytes.len() as u64
                }
                Front::File { file, offset, len } => {
                    let mut content = vec![0; len as usize];
                    file.read_exact_at(&mut content, offset).expect("read");
                    self.sent.extend_from_slice(&content);
                    len
                }
            };
            self.output.advance(sent);
        }
    }
}

/// One answer of a stream of answers to requests that were not HEAD.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Splits a stream of answers.
pub fn answers(mut stream: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !stream.is_empty() {
        let end = stream
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a whole head")
            + 4;
        let head = String::from_utf8(stream[..end].to_vec()).expect("ASCII");
        let status = head[9..12].parse().expect("a status");
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        stream = &stream[end..];
        let len: usize = answer
            .header("content-length")
            .map_or(0, |len| len.parse().expect("len"));
        stream
            .split_at(len)
            .0
            .read_to_end(&mut answer.body)
            .expect("read");
        stream = &stream[len..];
        answers.push(answer);
    }
    answers
}

/// Answers by path.
#[derive(Debug)]
pub struct TestHandler {
    fixed: FixedResponse,
}

impl Default for TestHandler {
    fn default() -> Self {
        let response = Response::new(Status::OK).header("Content-Type", "text/plain");
        Self {
            fixed: FixedResponse::new(response.expect("valid").body(vec![b'x'; 64])),
        }
    }
}

impl Handler for TestHandler {
    type Local = ();

    fn local(&self) {}

    fn methods(&self) -> Methods {
        Methods::GET_HEAD.with(windlass_http::Method::Post)
    }

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        match request.path() {
            "/fixed" => Ok(response.fixed(&self.fixed)),
            "/job" => {
                let query = request.query().unwrap_or_default().to_owned();
                Ok(response.job(move || Response::new(Status::OK).body(query)))
            }
            "/status" => {
                let code = request.query().and_then(|query| query.parse().ok());
                let status = code.and_then(Status::new).expect("a status");
                Ok(response.start(status).body("the body"))
            }
            "/bad-header" => Ok(response.start(Status::OK).header("A", "b\r\nC: d")?.empty()),
            "/big" => Ok(response.start(Status::OK).shared(vec![b'b'; 40_000].into())),
            "/headers" => {
                let names: Vec<_> = request.headers().map(|(name, _)| name).collect();
                Ok(response.start(Status::OK).body(names.join(",")))
            }
            path => Ok(response.start(Status::OK).body(path)),
        }
    }
}

/// Lets a closure answer requests of all methods.
#[derive(Debug)]
pub struct AllMethods<F>(pub F);

impl<F> Handler for AllMethods<F>
where
    F: Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static,
{
    type Local = ();

    fn local(&self) {}

    fn methods(&self) -> Methods {
        let others = [Method::Post, Method::Put, Method::Delete, Method::Options];
        others.into_iter().fold(Methods::GET_HEAD, Methods::with)
    }

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        (self.0)(request, response)
    }
}

/// A connection to a server whose handler is `handle`, with the default settings.
pub fn open<F>(handle: F) -> Connection<HttpService<AllMethods<F>>>
where
    F: Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static,
{
    Connection::open(&HttpService::new(AllMethods(handle), HttpConfig::default()))
}

pub fn test_service() -> HttpService<TestHandler> {
    HttpService::new(TestHandler::default(), HttpConfig::default())
}

/// What a server says to `input`, given in pieces of `step` bytes, and whether it closes.
pub fn talk(input: &[u8], step: usize) -> (Vec<u8>, bool) {
    let mut connection = Connection::open(&test_service());
    for piece in input.chunks(step.max(1)) {
        connection.feed(piece);
    }
    let closed = connection.closed;
    (connection.sent, closed)
}
