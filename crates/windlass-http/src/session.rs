//! The server side of one HTTP/1.1 connection, sans I/O.
//!
//! A connection waits for a head, then goes through what the answer needs: a body that a handler
//! takes, a job, a body that a source makes, the rest of a body that nobody wants; and from there
//! to the next head, another protocol, or its end. Heads are parsed from whole lines only, and only
//! when a new line end has come: what is answered does not depend on how the input was cut, and a
//! head that trickles in is not parsed at each byte.
//!
//! ```text
//!   ┌────────────────────────────────────────────────────────────┐
//!   ▼                                                            │
//! Head ─▶ Receive ─▶ Job ─▶ Stream ─▶ Drain ─────────────────────┘
//!   │        └────────┴────────┴────────┴──▶ Over
//!   └──▶ Upgraded              (each may be skipped)
//! ```

mod draining;
mod exchange;
mod late;
mod receiving;
mod streaming;

use std::fmt;
use std::marker::PhantomData;
use std::mem;

use windlass::Instant;
use windlass::session::{
    Input, Job, JobFailed, JobResult, Next, Now, Peer, Progress, Session, SessionContext,
};

use self::draining::Drain;
pub(crate) use self::exchange::answer_other_method;
use self::exchange::internal_error;
use self::late::Late;
use self::receiving::Receiving;
use self::streaming::Streaming;
use crate::body::Framing;
use crate::config::{HttpConfig, Timeouts};
use crate::handler::Handler;
use crate::known_heads::LastSection;
use crate::refusal::Refusal;
use crate::responder::Persistence;
use crate::response::Response;
use crate::service::HttpLocal;
use crate::status::Status;

/// The state machine of one HTTP/1.1 connection. Made by
/// [`HttpService`](crate::HttpService).
pub struct HttpSession<H> {
    phase: Phase,
    /// [`Instant::FAR`] is none.
    deadline: Instant,
    waits_for: WaitsFor,
    /// How much of the input is a head that is known to be incomplete.
    scanned_bytes: u32,
    /// Whether an empty line before the request line was skipped.
    skipped_blank: bool,
    /// Whether a graceful stop was asked for.
    stopping: bool,
    /// What a job has found out for the request that comes next.
    carried: Option<Box<JobResult>>,
    peer: Peer,
    /// The header section that came last.
    last_section: LastSection,
    handler: PhantomData<fn() -> H>,
}

enum Phase {
    /// A job finds out what the handler must know of the request, whose head is still unread.
    Again(Box<Late>),
    /// The request is answered; the rest of its body is dropped.
    Drain(Box<Drain>),
    /// Expecting the head of a request.
    Head,
    /// A job makes the answer.
    Job(Box<Late>),
    /// The last answer was given.
    Over,
    /// A handler takes the body of a request.
    Receive(Box<Receiving>),
    /// A source makes the body of an answer.
    Stream(Box<Streaming>),
    /// Another protocol goes on.
    Upgraded(Box<dyn Session<Local = ()>>),
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

/// What one step of [`HttpSession::advance`] did.
enum Step {
    /// The answer can't be completed: the peer must see that.
    Abort,
    Consumed(usize),
    /// Output must drain first.
    Flush,
    Job(usize, Job),
    NeedsInput,
    Over,
    /// A notification must come first.
    Wait,
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
            carried: None,
            peer,
            last_section: LastSection::default(),
            handler: PhantomData,
        }
    }

    /// Enters the phase after an answer; `framing` is of what is left of the request's body.
    #[inline]
    fn go_on(
        &mut self,
        cx: &SessionContext<'_, HttpLocal<H>>,
        persistence: Persistence,
        framing: Framing,
    ) {
        self.deadline = Instant::FAR;
        if persistence == Persistence::Close || self.stopping {
            self.phase = Phase::Over;
        } else if !framing.is_none() {
            let drain = Drain::new(framing, &cx.local.shared.config, cx.now);
            self.phase = Phase::Drain(Box::new(drain));
        } else if !matches!(self.phase, Phase::Head) {
            self.phase = Phase::Head;
        }
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

    /// Lets the other protocol's session do something, and takes over its deadline.
    fn upgraded<R>(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        call: impl FnOnce(&mut dyn Session<Local = ()>, &mut SessionContext<'_, ()>) -> R,
    ) -> Option<R> {
        let Phase::Upgraded(session) = &mut self.phase else {
            return None;
        };
        let mut inner = SessionContext {
            local: &mut (),
            output: cx.output,
            now: cx.now,
            wakeups: cx.wakeups.reborrow(),
        };
        let result = call(&mut **session, &mut inner);
        self.deadline = session.deadline().unwrap_or(Instant::FAR);
        Some(result)
    }

    fn step(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        rest: &[u8],
        ended: bool,
    ) -> Step {
        match self.phase {
            Phase::Head if cx.output.is_full() => {
                // How long the peer may take to read is the driver's business.
                self.waits_for = WaitsFor::Nothing;
                self.deadline = Instant::FAR;
                Step::Flush
            }
            Phase::Head => self.head(cx, rest),
            Phase::Drain(_) => self.drain(cx, rest),
            Phase::Receive(_) => self.receive(cx, rest),
            Phase::Stream(_) => self.stream(cx, rest, ended),
            Phase::Again(_) | Phase::Job(_) | Phase::Upgraded(_) => Step::Wait,
            Phase::Over => Step::Over,
        }
    }

    /// What a call other than `advance` waits for after a step without input.
    fn next_of(&mut self, step: Step) -> Next {
        match step {
            Step::Abort => Next::Abort,
            // Nothing more is to come: the driver need not ask again.
            Step::Consumed(_) if matches!(self.phase, Phase::Over) => self.end(),
            Step::Consumed(_) | Step::NeedsInput => Next::Read,
            Step::Flush => Next::Flush,
            Step::Job(_, job) => Next::Job(job),
            Step::Over => self.end(),
            Step::Wait => Next::Wait,
        }
    }
}

impl<H: Handler> Session for HttpSession<H> {
    type Local = HttpLocal<H>;

    fn advance(&mut self, cx: &mut SessionContext<'_, Self::Local>, input: Input<'_>) -> Progress {
        cx.local.see(cx.now);
        let mut consumed = 0;
        let next = loop {
            let rest = &input.bytes[consumed..];
            if let Phase::Upgraded(_) = self.phase {
                let input = Input {
                    bytes: rest,
                    ended: input.ended,
                };
                let progress = self.upgraded(cx, |session, cx| session.advance(cx, input));
                if let Some(progress) = progress {
                    consumed += progress.consumed;
                    break progress.next;
                }
            }
            match self.step(cx, rest, input.ended) {
                Step::Consumed(count) => {
                    consumed += count;
                    let waits = matches!(self.phase, Phase::Head) && !cx.output.is_full();
                    if waits && consumed == input.bytes.len() && !input.ended {
                        // Nearly always: spares a step that finds nothing.
                        self.wait_for(WaitsFor::Idle, cx);
                        break Next::Read;
                    }
                }
                Step::NeedsInput if !input.ended => break Next::Read,
                // What is complete was answered; the rest will never be (RFC 9112 section 8).
                Step::NeedsInput | Step::Over => {
                    consumed = input.bytes.len();
                    break self.end();
                }
                Step::Flush => break Next::Flush,
                Step::Job(count, job) => {
                    consumed += count;
                    break Next::Job(job);
                }
                Step::Wait => break Next::Wait,
                Step::Abort => {
                    self.phase = Phase::Over;
                    break Next::Abort;
                }
            }
        };
        Progress { consumed, next }
    }

    fn complete(&mut self, cx: &mut SessionContext<'_, Self::Local>, result: JobResult) -> Next {
        let late = match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Job(late) => *late,
            Phase::Again(late) if result.is::<JobFailed>() => {
                cx.local.see(cx.now);
                self.close_with(cx, &late, internal_error());
                return self.end();
            }
            Phase::Again(_) => {
                self.phase = Phase::Head;
                self.carried = Some(Box::new(result));
                return Next::Read;
            }
            other => {
                self.phase = other;
                let next = self.upgraded(cx, |session, cx| session.complete(cx, result));
                return next.unwrap_or(Next::Read);
            }
        };
        cx.local.see(cx.now);
        // A job that panicked has another result.
        let response = result
            .downcast::<Response>()
            .map_or_else(|_| internal_error(), |r| *r);
        let step = self.respond_late(cx, late, response);
        self.next_of(step)
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::FAR).then_some(self.deadline)
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, Self::Local>) -> Next {
        cx.local.see(cx.now);
        match &self.phase {
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
            Phase::Again(_) | Phase::Job(_) => Next::Read,
            Phase::Receive(_) => {
                let step = self.expire_body(cx);
                self.next_of(step)
            }
            Phase::Stream(_) => {
                let step = self.expire_stream(cx);
                self.next_of(step)
            }
            Phase::Upgraded(_) => self
                .upgraded(cx, |session, cx| session.expire(cx))
                .unwrap_or(Next::Close),
            Phase::Head | Phase::Drain(_) | Phase::Over => self.end(),
        }
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, Self::Local>) -> Next {
        self.stopping = true;
        match &self.phase {
            Phase::Head if self.waits_for == WaitsFor::FirstHead => {
                let timeouts = &cx.local.shared.config.timeouts;
                let grace = timeouts.first_request_at_stop;
                // The deadline counts from accept.
                let age = timeouts.header.map_or(grace, |timeout| {
                    (cx.now.monotonic + timeout).saturating_since(self.deadline)
                });
                if age < grace {
                    self.deadline = cx.now.monotonic + (grace - age);
                    Next::Read
                } else {
                    self.end()
                }
            }
            Phase::Again(_) | Phase::Job(_) | Phase::Receive(_) => Next::Read,
            Phase::Stream(_) => {
                cx.local.see(cx.now);
                let step = self.stream(cx, &[], false);
                self.next_of(step)
            }
            Phase::Upgraded(_) => self
                .upgraded(cx, |session, cx| session.stop(cx))
                .unwrap_or(Next::Close),
            // The client is sending: to close as if it were idle could reset the connection before
            // it has read its answer. The next call closes in order.
            Phase::Drain(_) => {
                self.phase = Phase::Over;
                Next::Flush
            }
            Phase::Head | Phase::Over => self.end(),
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

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Again(_) => "Again",
            Self::Drain(_) => "Drain",
            Self::Head => "Head",
            Self::Job(_) => "Job",
            Self::Over => "Over",
            Self::Receive(_) => "Receive",
            Self::Stream(_) => "Stream",
            Self::Upgraded(_) => "Upgraded",
        })
    }
}

fn deadline(now: Now, timeout: Option<std::time::Duration>) -> Instant {
    timeout.map_or(Instant::FAR, |timeout| now.monotonic + timeout)
}

/// The deadline of a body that began at `started`: it moves with the bytes received, and so asks
/// for a least rate.
fn body_deadline(started: Instant, received_bytes: u64, timeouts: &Timeouts) -> Instant {
    let Some(timeout) = timeouts.body else {
        return Instant::FAR;
    };
    let rate = u64::from(timeouts.body_bytes_per_second.max(1));
    started + timeout + std::time::Duration::from_secs(received_bytes / rate)
}
