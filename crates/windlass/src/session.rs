//! Sessions: one connection's protocol as a state machine, with no I/O inside.
//!
//! A [`Session`] is given input bytes, consumes some, appends output (bytes or file segments) and
//! says what it needs next. It holds no socket, reads no clock and starts no thread, so that any
//! driver carries it: a loop that waits for readiness, blocking threads, workers behind a queue,
//! completions that own their buffers, a TLS layer, a test that splits the input at each byte.
//!
//! # Who does what
//!
//! | the session | the driver |
//! | --- | --- |
//! | parses, decides, answers | reads, writes, accepts, closes |
//! | says until when it will wait ([`Session::deadline`]) | keeps the timer, calls [`Session::expire`] |
//! | stops producing when [`Output::is_full`] | stops reading from a peer that does not read |
//! | hands out what may block or compute ([`Next::Job`]) | runs it in the pool, or at once if it is allowed to block |
//! | finishes what is in flight ([`Session::stop`]) | stops accepting, gives up at the deadline |
//!
//! # Threads
//!
//! A session is `Send`: a driver may move it between threads, but calls it from one at a time.
//! What all sessions of one thread share (scratch memory, caches) is the service's
//! [`Local`](Service::Local), one per driver thread, handed in with each call.

mod notifier;
mod output;
mod proxy_protocol;

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind};

use windlass_core::Instant;

use crate::pool::Outcome;

pub use self::notifier::{Notifier, Wakeups};
pub(crate) use self::output::Taken;
pub use self::output::{Front, Output, OutputLimits};
pub use self::proxy_protocol::{
    OtherPeers, PROXY_HEADER_BYTES_MAX, PROXY_LINE_BYTES_MAX, ProxyHeader, ProxyHeaderError,
    ProxyLocal, ProxyParse, ProxyPolicy, ProxyProtocol, ProxyReport, ProxySession,
    parse_proxy_header,
};

/// Opens a session for each connection.
pub trait Service: Send + Sync + 'static {
    /// What the sessions of one driver thread share: scratch memory, caches, a log buffer.
    type Local: Send;
    /// The state machine of one connection.
    type Session: Session<Local = Self::Local>;

    /// Makes the shared part of one driver thread. Called once per thread, before the first
    /// connection.
    fn local(&self) -> Self::Local;

    /// Makes the state machine of a connection that was just accepted.
    fn open(&self, local: &mut Self::Local, peer: &Peer, now: Now) -> Self::Session;

    /// Whether [`settle`](Self::settle) has anything to do. Asked once per driver thread, which
    /// saves the calls if not.
    fn settles(&self) -> bool {
        true
    }

    /// Called when a driver thread has handled what one wait brought, and before it waits again:
    /// the place to write out what was gathered (an access log).
    fn settle(&self, _local: &mut Self::Local, _now: Now) {}
}

/// The protocol of one connection, sans I/O.
///
/// The driver calls [`advance`](Self::advance) when there is input, when the input has ended, when
/// output that was full has drained, and after a [notification](Notifier); the session does as much
/// as it can and answers with what it waits for. While a job of it runs, only
/// [`complete`](Self::complete), [`expire`](Self::expire) and [`stop`](Self::stop) are called.
pub trait Session: Send + 'static {
    /// What the sessions of one driver thread share.
    type Local;

    /// Goes on with `input`: all bytes that were not consumed yet, in order.
    ///
    /// Consumes as much as it can: the driver does not call again with the same bytes, but when
    /// more came, when the input ended, when the output drained (after [`Next::Flush`]), when the
    /// session was [notified](Notifier) or a job completed. Once the input has ended, every later
    /// call says so.
    fn advance(&mut self, cx: &mut SessionContext<'_, Self::Local>, input: Input<'_>) -> Progress;

    /// Takes a job's result; of one that panicked or was cancelled, a [`JobFailed`]. The driver then
    /// calls [`advance`](Self::advance) with the input that is still there, if the answer is
    /// [`Next::Read`].
    fn complete(&mut self, _cx: &mut SessionContext<'_, Self::Local>, _result: JobResult) -> Next {
        Next::Read
    }

    /// Until when the session waits for what it asked for, if not for ever. Asked after each call,
    /// so it must be cheap.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The deadline is over. May append a last answer. [`Next::Read`] goes on as before; while a job
    /// runs, with waiting for it. If the deadline is still over afterwards, the connection closes.
    fn expire(&mut self, _cx: &mut SessionContext<'_, Self::Local>) -> Next {
        Next::Close
    }

    /// A graceful stop was asked for: an idle session closes, one that is answering finishes and
    /// then closes. Called once. [`Next::Read`] goes on as before; while a job runs, with waiting
    /// for it.
    fn stop(&mut self, _cx: &mut SessionContext<'_, Self::Local>) -> Next {
        Next::Close
    }
}

/// What a session reaches during a call.
#[derive(Debug)]
pub struct SessionContext<'a, L> {
    /// What the sessions of this driver thread share.
    pub local: &'a mut L,
    /// The connection's output queue.
    pub output: &'a mut Output,
    /// The time of this call.
    pub now: Now,
    /// How the session can have itself called again.
    pub wakeups: Wakeups<'a>,
}

/// The unconsumed input of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The bytes, in order; may be empty.
    pub bytes: &'a [u8],
    /// Whether the peer has closed its sending side after these bytes.
    pub ended: bool,
}

/// What a call did and waits for.
#[derive(Debug)]
#[must_use]
pub struct Progress {
    /// How many bytes of the input are done with; the rest is given again.
    pub consumed: usize,
    /// What the session needs next.
    pub next: Next,
}

/// What a session needs next. Output that was appended is written in every case but
/// [`Abort`](Next::Abort).
#[derive(Debug)]
#[non_exhaustive]
#[must_use]
pub enum Next {
    /// More input.
    Read,
    /// The output to drain to its low mark; no input is read meanwhile.
    Flush,
    /// The output to drain to its low mark, before the session appends the rest and closes. What the
    /// peer still sends is read and dropped meanwhile, as after [`Next::Close`]: it may read only
    /// when it has sent everything.
    Finish,
    /// A notification through its [`Notifier`], or its deadline. Input is read and kept up to the
    /// driver's limit, then no more is read; the session is called again when some came, too, and
    /// when it ended.
    Wait,
    /// The result of a job; no input is read meanwhile.
    Job(Job),
    /// To end: write what is queued, close the sending side, read and drop what the peer still
    /// sends (within limits, so that no reset wipes the answer), close.
    Close,
    /// To end at once; queued output is dropped.
    Abort,
}

/// Work that a session hands out because it may block or takes long.
pub struct Job(Work);

enum Work {
    /// Under way already, see [`Job::away`].
    Away,
    ToDo(Box<dyn FnOnce() -> JobResult + Send + UnwindSafe>),
}

/// What a job returns: any value, known to the session that made the job.
pub type JobResult = Box<dyn Any + Send>;

/// What [`Session::complete`] is given, in place of a result, for a job that has none.
#[derive(Debug)]
pub enum JobFailed {
    /// It was cancelled before it ran: the pool shut down.
    Cancelled,
    /// It panicked with this.
    Panicked(Box<dyn Any + Send>),
}

impl Job {
    /// Wraps `work`; its value comes back through [`Session::complete`].
    pub fn new<T, F>(work: F) -> Self
    where
        T: Any + Send,
        F: FnOnce() -> T + Send + UnwindSafe + 'static,
    {
        Self(Work::ToDo(Box::new(move || Box::new(work()))))
    }

    /// For a model's own session around the program's: that is away in another thread, and a
    /// notification tells when it is back. Then, and at no other time, the driver calls
    /// [`Session::advance`], which goes on with the input that it left. The end of the wait costs no
    /// result, and no deadline is asked for meanwhile.
    pub(crate) fn away() -> Self {
        Self(Work::Away)
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(self.0, Work::Away)
    }

    /// Does the work, in the thread that calls.
    #[must_use]
    pub fn run(self) -> JobResult {
        match self.0 {
            Work::ToDo(work) => work(),
            // Only the models' own sessions make it, and drivers hand it to nobody.
            Work::Away => Box::new(()),
        }
    }
}

impl Job {
    /// Does the work, in the thread that calls; a panic is what came of it.
    pub(crate) fn run_contained(self) -> Outcome<JobResult> {
        // Unwind safety: the work is, and it is used up.
        match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(result) => Outcome::Done(result),
            Err(panic) => Outcome::Panicked(panic),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// Whom a connection is with, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The other side's address, if it has one (a Unix socket's peer does not).
    pub remote: Option<SocketAddr>,
    /// What carries the bytes between the two.
    pub transport: Transport,
}

impl Peer {
    /// A peer at `remote`, in clear text.
    #[must_use]
    pub fn new(remote: Option<SocketAddr>) -> Self {
        Self {
            remote,
            transport: Transport::Plain,
        }
    }

    /// The same peer over `transport`.
    #[must_use]
    pub fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }
}

/// What carries a session's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// The connection itself, in clear text.
    #[default]
    Plain,
    /// A TLS layer.
    Tls,
}

/// The time of a call: monotonic for deadlines, wall-clock for what people read.
///
/// All calls for what one wait brought have the same time, and no two waits have: what was looked
/// up for one call (whether a file is still the same) is as good for the others with that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// On the driver's monotonic clock.
    pub monotonic: Instant,
    /// Milliseconds since 1970-01-01 00:00 UTC; may jump.
    pub unix_ms: u64,
}
