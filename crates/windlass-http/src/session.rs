//! The server side of one HTTP/1.1 connection, sans I/O.
//!
//! A connection is in one of four phases: it waits for a head, drops the rest of a body whose
//! request was answered, waits for a job, or is over. Heads are parsed from whole lines only, and
//! only when a new line end has come: what is answered does not depend on how the input was cut,
//! and a head that trickles in is not parsed at each byte.

mod exchange;

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::time::Duration;

use windlass::Instant;
use windlass::session::{
    Input, Job, JobResult, Next, Now, Peer, Progress, Session, SessionContext,
};

use self::exchange::internal_error;
use crate::access_log::KeptRequest;
use crate::body::{BodyDecoder, Framing};
use crate::config::{HttpConfig, Timeouts};
use crate::handler::Handler;
use crate::refusal::Refusal;
use crate::responder::{Framer, Persistence};
use crate::response::Response;
use crate::service::{HttpLocal, Logged};
use crate::status::Status;

/// The state machine of one HTTP/1.1 connection. Made by
/// [`HttpService`](crate::HttpService).
pub struct HttpSession<H> {
    phase: Phase,
    /// [`Instant::FAR`] is none.
    deadline: Instant,
    waits_for: WaitsFor,
    /// How much of the input is a head that is known to be incomplete.
    scanned_bytes: usize,
    /// Whether an empty line before the request line was skipped.
    skipped_blank: bool,
    /// Whether a graceful stop was asked for.
    stopping: bool,
    peer: Peer,
    handler: PhantomData<fn() -> H>,
}

#[derive(Debug)]
enum Phase {
    /// Expecting the head of a request.
    Head,
    /// The request is answered; the rest of its body is dropped.
    Body(Drain),
    /// A job makes the answer.
    Job(Box<PendingJob>),
    /// The last answer was given.
    Over,
}

/// What the deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// The first head of the connection, from accept on.
    FirstHead,
    /// A head of which bytes have come.
    Head,
    /// The first byte of another head.
    Idle,
    /// Nothing: there is no deadline.
    Nothing,
}

/// A body that is dropped.
#[derive(Debug)]
struct Drain {
    decoder: BodyDecoder,
    started: Instant,
    received_bytes: u64,
}

/// What must be remembered of a request while a job makes its answer.
#[derive(Debug)]
struct PendingJob {
    framer: Framer,
    framing: Framing,
    kept: KeptRequest,
}

/// What one step of [`HttpSession::advance`] did.
enum Step {
    Consumed(usize),
    Job(usize, Job),
    NeedsInput,
    Over,
}

impl<H: Handler> HttpSession<H> {
    pub(crate) fn new(peer: Peer, now: Now, config: &HttpConfig) -> Self {
        Self {
            phase: Phase::Head,
            deadline: deadline(now, config.timeouts.header),
            waits_for: WaitsFor::FirstHead,
            scanned_bytes: 0,
            skipped_blank: false,
            stopping: false,
            peer,
            handler: PhantomData,
        }
    }

    /// Enters the phase after an answer.
    fn go_on(
        &mut self,
        cx: &SessionContext<'_, HttpLocal<H>>,
        persistence: Persistence,
        framing: Framing,
    ) {
        self.phase = if persistence == Persistence::Close {
            Phase::Over
        } else if framing.is_none() {
            Phase::Head
        } else {
            let overhead_bytes_max = cx.local.shared.config.limits.head_bytes;
            Phase::Body(Drain {
                decoder: BodyDecoder::new(framing, overhead_bytes_max),
                started: cx.now.monotonic,
                received_bytes: 0,
            })
        };
    }

    /// Drops what is there of a body.
    fn body(&mut self, cx: &SessionContext<'_, HttpLocal<H>>, input: &[u8]) -> Step {
        let HttpConfig {
            limits, timeouts, ..
        } = &cx.local.shared.config;
        let Phase::Body(drain) = &mut self.phase else {
            return Step::NeedsInput;
        };
        // The request was answered: an error in its body can only end the connection.
        let Ok(decoded) = drain.decoder.decode(input) else {
            self.phase = Phase::Over;
            return Step::Over;
        };
        drain.received_bytes += decoded.data.len() as u64;
        if drain.received_bytes > limits.drain_bytes {
            self.phase = Phase::Over;
            return Step::Over;
        }
        if decoded.done {
            self.phase = Phase::Head;
            self.deadline = Instant::FAR;
            return Step::Consumed(decoded.consumed);
        }
        if decoded.consumed == 0 {
            self.deadline = drain.deadline(timeouts);
            return Step::NeedsInput;
        }
        Step::Consumed(decoded.consumed)
    }

    /// Starts waiting, unless it is this that is waited for already: a deadline is not put off.
    fn wait_for(&mut self, what: WaitsFor, cx: &SessionContext<'_, HttpLocal<H>>) -> Step {
        let timeouts = &cx.local.shared.config.timeouts;
        if self.waits_for != what && self.waits_for != WaitsFor::FirstHead {
            self.waits_for = what;
            let timeout = if what == WaitsFor::Idle {
                timeouts.idle
            } else {
                timeouts.header
            };
            self.deadline = deadline(cx.now, timeout);
        }
        Step::NeedsInput
    }

    /// Ends the session.
    fn end(&mut self) -> Next {
        self.phase = Phase::Over;
        self.deadline = Instant::FAR;
        Next::Close
    }
}

impl<H: Handler> Session for HttpSession<H> {
    type Local = HttpLocal<H>;

    fn advance(&mut self, cx: &mut SessionContext<'_, Self::Local>, input: Input<'_>) -> Progress {
        cx.local.see(cx.now);
        let mut consumed = 0;
        loop {
            let rest = &input.bytes[consumed..];
            let step = match self.phase {
                Phase::Head if cx.output.is_full() => {
                    // How long the peer may take to read is the driver's business.
                    self.waits_for = WaitsFor::Nothing;
                    self.deadline = Instant::FAR;
                    return Progress {
                        consumed,
                        next: Next::Flush,
                    };
                }
                Phase::Head => self.head(cx, rest),
                Phase::Body(_) => self.body(cx, rest),
                Phase::Job(_) => {
                    return Progress {
                        consumed,
                        next: Next::Read,
                    };
                }
                Phase::Over => Step::Over,
            };
            match step {
                Step::Consumed(count) => consumed += count,
                Step::Job(count, job) => {
                    return Progress {
                        consumed: consumed + count,
                        next: Next::Job(job),
                    };
                }
                // What is complete was answered; the rest will never be (RFC 9112 section 8).
                Step::NeedsInput if input.ended => {
                    return Progress {
                        consumed: input.bytes.len(),
                        next: self.end(),
                    };
                }
                Step::NeedsInput => {
                    return Progress {
                        consumed,
                        next: Next::Read,
                    };
                }
                Step::Over => {
                    return Progress {
                        consumed: input.bytes.len(),
                        next: self.end(),
                    };
                }
            }
        }
    }

    fn complete(&mut self, cx: &mut SessionContext<'_, Self::Local>, result: JobResult) -> Next {
        let pending = match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Job(pending) => pending,
            other => {
                self.phase = other;
                return Next::Read;
            }
        };
        cx.local.see(cx.now);
        let PendingJob {
            mut framer,
            framing,
            kept,
        } = *pending;
        if self.stopping {
            framer.persistence = Persistence::Close;
        }
        // A job that panicked has another result.
        let response = result
            .downcast::<Response>()
            .map_or_else(|_| internal_error(), |r| *r);
        self.respond(cx, framer, Logged::Kept(&kept), response);
        self.go_on(cx, framer.persistence, framing);
        if matches!(self.phase, Phase::Over) {
            self.end()
        } else {
            Next::Read
        }
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::FAR).then_some(self.deadline)
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, Self::Local>) -> Next {
        cx.local.see(cx.now);
        match self.phase {
            Phase::Head if self.scanned_bytes > 0 => {
                let refusal =
                    Refusal::new(Status::REQUEST_TIMEOUT, "the head did not come in time");
                self.refuse(cx, refusal, &[]);
                self.end()
            }
            // The peer is still reading the last answer: it is not idle yet.
            Phase::Head if !cx.output.is_empty() => {
                self.waits_for = WaitsFor::Nothing;
                self.wait_for(WaitsFor::Idle, cx);
                Next::Read
            }
            Phase::Job(_) => Next::Read,
            Phase::Head | Phase::Body(_) | Phase::Over => self.end(),
        }
    }

    fn stop(&mut self, _cx: &mut SessionContext<'_, Self::Local>) -> Next {
        self.stopping = true;
        match self.phase {
            Phase::Job(_) => Next::Read,
            Phase::Head | Phase::Body(_) | Phase::Over => self.end(),
        }
    }
}

impl<H> fmt::Debug for HttpSession<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSession")
            .field("phase", &self.phase)
            .field("deadline", &self.deadline)
            .field("stopping", &self.stopping)
            .finish_non_exhaustive()
    }
}

impl Drain {
    /// A deadline that moves with the bytes received, and so asks for a least rate.
    fn deadline(&self, timeouts: &Timeouts) -> Instant {
        let Some(timeout) = timeouts.body else {
            return Instant::FAR;
        };
        let rate = u64::from(timeouts.body_bytes_per_second.max(1));
        self.started + timeout + Duration::from_secs(self.received_bytes / rate)
    }
}

fn deadline(now: Now, timeout: Option<Duration>) -> Instant {
    timeout.map_or(Instant::FAR, |timeout| now.monotonic + timeout)
}
