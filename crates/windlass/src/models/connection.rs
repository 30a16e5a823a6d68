//! One connection: reads, lets its session go on, writes, and ends in order.
//!
//! # States
//!
//! ```text
//! Reading ⇄ Flushing (the session waits for its output) ⇄ Waiting (for a notification)
//!    ⇅         ⇅
//!   Working (a job runs)            any ──▶ gone (error, reset, abort)
//!   Away (the session is in another thread)
//!    │
//!    ▼
//! Finishing (the session has output left) ──▶ Closing (output still queued)
//!                                                │
//!                       gone ◀── Lingering (sending side closed)
//! ```

mod completion;
mod ending;
pub(super) mod flush;
mod host;
mod job;
mod waiting;

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use windlass_core::{Happened, Instant, Interest, Readiness, Trigger};
use windlass_sys::net;

pub(super) use self::completion::{CompletionTransport, Wish};
use self::flush::{FlushError, Flushed};
pub(super) use self::host::{Host, JobRefused, JobSlot, Transport};
use super::lane::Lane;
use super::report::ConnectionPhase;
use crate::session::{
    Input, Job, Next, Notifier, Now, Output, Peer, Progress, Service, Session, SessionContext,
    Wakeups,
};

/// One connection of any model, whose driver steps it.
pub(super) struct Connection<V: Service, T: Transport = OwnedFd> {
    transport: T,
    session: V::Session,
    /// Input that the session left.
    carry: Vec<u8>,
    /// Output that the socket did not take.
    output: Option<Box<Output>>,
    /// Made when the session asks for it.
    notifier: Option<Notifier>,
    phase: Phase,
    interest: Interest,
    input_ended: bool,
    stop: StopTold,
    /// Whether reading pauses until the output is low.
    paused: bool,
    is_tcp: bool,
    /// What the socket may still be ready for though it will not report it again.
    ready: Readiness,
    /// What the event's timer is armed for.
    armed: Instant,
    /// When the peer last took some of the queued output.
    progress_at: Instant,
    trigger: Trigger,
}

enum Phase {
    Reading,
    Flushing,
    /// As `Flushing`, but the session ends then: input is dropped meanwhile.
    Finishing {
        left_bytes: u64,
    },
    /// For a notification. Input is kept meanwhile, as far as there is room.
    Waiting,
    /// A job runs, or waits for room in the pool; its result is put there.
    Working(JobSlot),
    /// A job that found the pool full.
    Queued(Job),
    /// The session is away: a notification tells when it is back. What comes meanwhile is noted, and
    /// neither the interest nor the timer is touched, so that a short absence costs no change.
    Away,
    /// Output is still queued. Input is dropped meanwhile: a peer may read only when it has sent
    /// everything.
    Closing {
        left_bytes: u64,
    },
    Lingering {
        until: Instant,
        left_bytes: u64,
    },
}

/// Whether the session has not seen the input that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// It said what it needs after it was given it.
    Known,
    /// It is to be given it.
    ToGive,
}

/// Whether the session knows of the graceful stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopTold {
    No,
    /// Not yet, as it was away.
    Late,
    Yes,
}

/// The connection is over.
#[derive(Debug)]
pub(super) struct Gone;

/// What a step comes to.
pub(super) type Step = Result<(), Gone>;

/// What held left-over input is kept for the next one, if it is no larger: where sessions are called
/// in other threads, each input is left over until they are back.
const CARRY_KEPT_BYTES: usize = 1024;

/// How often a session may go on at once while its output drains at once.
const ROUNDS_MAX: u32 = 16;

impl<V: Service, T: Transport> Connection<V, T> {
    /// A connection that waits for input; of the session's deadline if it has one. With `trigger`
    /// its socket is to be watched.
    pub(super) fn new(transport: T, session: V::Session, peer: &Peer, trigger: Trigger) -> Self {
        Self {
            transport,
            armed: session.deadline().unwrap_or(Instant::FAR),
            session,
            carry: Vec::new(),
            output: None,
            notifier: None,
            phase: Phase::Reading,
            interest: Self::reading(trigger),
            input_ended: false,
            stop: StopTold::No,
            paused: false,
            is_tcp: peer.remote.is_some(),
            ready: Readiness::NONE,
            progress_at: Instant::ZERO,
            trigger,
        }
    }

    /// What its socket is to be watched for.
    pub(super) fn interest(&self) -> Interest {
        self.interest
    }

    /// When it is to be stepped if nothing happens before.
    pub(super) fn deadline(&self) -> Instant {
        self.armed
    }

    /// Whether it is in the middle of an exchange: it has output left, part of a command, or a job.
    pub(super) fn is_engaged(&self) -> bool {
        let has_part = matches!(self.phase, Phase::Reading) && !self.carry.is_empty();
        has_part || self.owes() || self.has_job()
    }

    /// What carries its bytes.
    pub(super) fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Whether it goes on, if with nothing else, when output that was taken has left.
    pub(super) fn awaits_sent(&self) -> bool {
        self.output.is_some()
            || self.transport.has_failed()
            || self.waits_for_room()
            || matches!(self.phase, Phase::Closing { .. })
    }

    /// What carries its bytes.
    pub(super) fn transport(&self) -> &T {
        &self.transport
    }

    /// Goes on with what happened, and has the driver watch for what it waits for then. Once it is
    /// gone it is not to be stepped again. A panic of its session is counted, and ends it.
    #[inline]
    pub(super) fn step(
        &mut self,
        lane: &mut Lane<V>,
        host: &mut impl Host,
        what: Happened,
        now: Now,
    ) -> Step {
        debug_assert!(
            lane.output.is_empty(),
            "another connection's output is left"
        );
        // Unwind safety: a connection that panicked is dropped, and what it shares with others is
        // put in order below; the service's shared part is the service's, as with any panic.
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            self.go_through(lane, host, what, now)?;
            self.update_interest(lane, host);
            self.update_deadline(lane, host, now);
            Step::Ok(())
        }));
        if matches!(stepped, Ok(Ok(()))) {
            return Ok(());
        }
        lane.counts.panics += u64::from(stepped.is_err());
        // Of a cut answer nothing must reach the next connection.
        lane.output.clear();
        Err(Gone)
    }

    #[inline]
    fn go_through(
        &mut self,
        lane: &mut Lane<V>,
        host: &mut impl Host,
        what: Happened,
        now: Now,
    ) -> Step {
        self.ready |= what.readiness;
        if what.user {
            self.on_activation(lane, host, now)?;
        }
        let broken = Readiness::ERROR | Readiness::HANG_UP;
        if matches!(self.phase, Phase::Waiting) && self.ready.intersects(broken) {
            // Nobody is left to be answered, and no read or write will tell.
            return self.fail(lane);
        }
        if self.ready.intersects(Readiness::WRITE)
            && (self.output.is_some() || self.transport.has_failed() || self.waits_for_room())
        {
            self.flush(lane, now)?;
            if self.waits_for_room() && self.is_low(lane) {
                let len = self.unpack(lane);
                self.advance(lane, host, len, now)?;
            }
        }
        if self.ready.intersects(Readiness::READ) {
            match self.phase {
                Phase::Reading | Phase::Waiting if self.interest.contains(Interest::READ) => {
                    self.read(lane, host, now)?;
                }
                Phase::Finishing { .. } | Phase::Closing { .. }
                    if self.interest.contains(Interest::READ) =>
                {
                    self.discard(lane)?;
                }
                Phase::Lingering { .. } => self.discard(lane)?,
                // Not asked for: an error or a hang-up, which the next write finds.
                _ => {}
            }
        }
        if what.timed_out {
            self.armed = Instant::FAR;
            self.on_deadline(lane, host, now)?;
        }
        self.settle(lane, now)
    }

    /// Reads once, and lets the session go on.
    #[inline]
    fn read(&mut self, lane: &mut Lane<V>, host: &mut impl Host, now: Now) -> Step {
        let have = self.unpack(lane);
        let room = &mut lane.input[have..];
        if room.is_empty() {
            if matches!(self.phase, Phase::Waiting) {
                // Full: the rest stays where it is until the session goes on.
                return Ok(());
            }
            // The session leaves more than the limit.
            return self.fail(lane);
        }
        let room_len = room.len();
        match self.transport.receive(room) {
            // The error is the loop's, which could not watch the socket: nothing will be reported.
            Ok(None) if self.ready.intersects(Readiness::ERROR) => self.fail(lane),
            Ok(None) => {
                self.ready = self.ready.without(Readiness::READ);
                Ok(())
            }
            Ok(Some(count)) => {
                self.note_received(count, room_len);
                self.input_ended = count == 0;
                lane.counts.received_bytes += count as u64;
                self.advance(lane, host, have + count, now)
            }
            Err(_) => self.fail(lane),
        }
    }

    /// Puts what the session left in front of the shared buffer.
    #[inline]
    fn unpack(&self, lane: &mut Lane<V>) -> usize {
        let have = self.carry.len();
        if have > 0 {
            lane.input[..have].copy_from_slice(&self.carry);
        }
        have
    }

    /// Lets the session go on with the first `len` bytes of the shared buffer, writes what it
    /// answers, and keeps what it leaves.
    #[inline]
    fn advance(&mut self, lane: &mut Lane<V>, host: &mut impl Host, len: usize, now: Now) -> Step {
        let mut at = 0;
        let mut rounds = 0;
        loop {
            let input = Input {
                bytes: &lane.input[at..len],
                ended: self.input_ended,
            };
            let output = self.output.as_deref_mut().unwrap_or(&mut lane.output);
            let make = || host.notifier();
            let mut session_cx = SessionContext {
                local: &mut lane.local,
                output,
                now,
                wakeups: Wakeups::new(&mut self.notifier, &make),
            };
            let Progress { consumed, next } = self.session.advance(&mut session_cx, input);
            at += consumed;
            assert!(at <= len, "a session consumed more than its input");
            self.follow(lane, host, next)?;
            if self.input_ended && matches!(self.phase, Phase::Reading) {
                // It wants more, and nothing more can come.
                self.phase = Phase::Closing { left_bytes: 0 };
            }
            self.flush(lane, now)?;
            rounds += 1;
            if !self.waits_for_room() || !self.is_low(lane) {
                break;
            }
            if rounds == ROUNDS_MAX || self.stop == StopTold::Late {
                // Others have their turn first.
                host.call_again();
                break;
            }
        }
        if at < len {
            self.carry.clear();
            self.carry.extend_from_slice(&lane.input[at..len]);
        } else if self.carry.capacity() > CARRY_KEPT_BYTES {
            self.carry = Vec::new();
        } else {
            self.carry.clear();
        }
        Ok(())
    }

    /// Does what the session asked for.
    #[inline]
    fn follow(&mut self, lane: &mut Lane<V>, host: &mut impl Host, next: Next) -> Step {
        match next {
            // It goes on waiting for its job.
            Next::Read | Next::Flush | Next::Wait if self.has_job() => {}
            Next::Read if matches!(self.phase, Phase::Reading) => {}
            Next::Read => self.phase = Phase::Reading,
            Next::Flush => self.phase = Phase::Flushing,
            Next::Wait => self.phase = Phase::Waiting,
            Next::Job(job) => self.start_job(lane, host, job)?,
            Next::Finish => {
                let left_bytes = self.left_bytes(lane);
                self.phase = Phase::Finishing { left_bytes };
            }
            Next::Close => {
                let left_bytes = self.left_bytes(lane);
                self.phase = Phase::Closing { left_bytes };
            }
            Next::Abort => {
                // A reset, so that the peer does not take a cut answer for a whole one. If it
                // fails the connection is closed all the same.
                let _ = net::set_linger_zero(self.transport.socket());
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// Woken by the loop itself: a job's result, a notification, a stop, or a turn that was given up
    /// for others.
    fn on_activation(&mut self, lane: &mut Lane<V>, host: &mut impl Host, now: Now) -> Step {
        if self.stop == StopTold::Late {
            self.tell_stop(lane, host, now)?;
        }
        if let Phase::Working(slot) = &self.phase
            && let Some(result) = slot.take()
        {
            self.phase = Phase::Reading;
            let make = || host.notifier();
            let slots = (&mut self.output, &mut self.notifier);
            let mut session_cx = context(slots, &make, lane, now);
            let next = self.session.complete(&mut session_cx, result);
            self.follow(lane, host, next)?;
            self.go_on(lane, host, now, Unread::ToGive)?;
        } else if self.waits_for_room() {
            self.go_on(lane, host, now, Unread::Known)?;
        }
        // While it waits for something else, it will be called again without being told.
        if self.notifier.as_ref().is_some_and(Notifier::take)
            && matches!(self.phase, Phase::Reading | Phase::Waiting | Phase::Away)
        {
            let len = self.unpack(lane);
            self.advance(lane, host, len, now)?;
        }
        if host.ends_connections() && self.stop != StopTold::Yes {
            self.tell_stop(lane, host, now)?;
        }
        Ok(())
    }

    /// Whether a session that answers "more input" to something else must be given what is left:
    /// it waited for something else and may not have looked at it.
    fn unread(&self) -> Unread {
        match self.phase {
            Phase::Flushing | Phase::Waiting => Unread::ToGive,
            _ => Unread::Known,
        }
    }

    /// Writes what a call other than `advance` appended, and lets the session go on as far as it
    /// can without more input.
    fn go_on(
        &mut self,
        lane: &mut Lane<V>,
        host: &mut impl Host,
        now: Now,
        unread: Unread,
    ) -> Step {
        self.flush(lane, now)?;
        let goes_on = match self.phase {
            Phase::Flushing | Phase::Finishing { .. } => self.is_low(lane),
            Phase::Reading | Phase::Waiting => unread == Unread::ToGive || self.input_ended,
            _ => false,
        };
        if goes_on {
            let len = self.unpack(lane);
            self.advance(lane, host, len, now)?;
        }
        Ok(())
    }

    /// Writes what is queued; what the socket does not take is kept.
    #[inline]
    fn flush(&mut self, lane: &mut Lane<V>, now: Now) -> Step {
        let output = self.output.as_deref_mut().unwrap_or(&mut lane.output);
        if output.is_empty() && !self.transport.has_failed() {
            self.output = None;
            return Ok(());
        }
        let before = output.queued_bytes();
        match self.transport.flush(output, &mut lane.counts.sent_bytes) {
            Ok(Flushed::All) => {
                self.output = None;
                if self.transport.sending_bytes() > 0 {
                    self.progress_at = now.monotonic;
                }
            }
            Ok(flushed) => {
                if flushed == Flushed::Full && self.ready.intersects(Readiness::ERROR) {
                    // The error is the loop's, which could not watch the socket.
                    output.clear();
                    return self.fail(lane);
                }
                self.ready = match flushed {
                    Flushed::Full => self.ready.without(Readiness::WRITE),
                    _ => self.ready | Readiness::WRITE,
                };
                if output.queued_bytes() < before || self.output.is_none() {
                    self.progress_at = now.monotonic;
                }
                if self.output.is_none() {
                    let fresh = Output::new(lane.limits.output);
                    self.output = Some(Box::new(std::mem::replace(&mut lane.output, fresh)));
                }
            }
            Err(error) => {
                output.clear();
                match error {
                    FlushError::Truncated => {
                        lane.counts.truncated_files += 1;
                        // The peer must not take what it got for the whole.
                        let _ = net::set_linger_zero(self.transport.socket());
                    }
                    FlushError::Socket => lane.counts.failed += 1,
                }
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// Whom it is with, what it is at, and how much output its peer has not taken.
    pub(super) fn summary(&self) -> (Peer, ConnectionPhase, u64) {
        let phase = match self.phase {
            Phase::Lingering { .. } => ConnectionPhase::Lingering,
            Phase::Working(_) | Phase::Queued(_) | Phase::Away => ConnectionPhase::WaitingForJob,
            _ if self.output.is_some() => ConnectionPhase::Answering,
            Phase::Waiting => ConnectionPhase::Waiting,
            _ => ConnectionPhase::Reading,
        };
        let queued_bytes = self
            .output
            .as_ref()
            .map_or(0, |output| output.queued_bytes());
        let peer = Peer::new(net::peer_addr(self.transport.socket()));
        (peer, phase, queued_bytes)
    }
}

/// What a session is called with: output goes behind what is queued already, if anything is.
fn context<'a, V: Service>(
    (queued, notifier): (&'a mut Option<Box<Output>>, &'a mut Option<Notifier>),
    make: &'a dyn Fn() -> Notifier,
    lane: &'a mut Lane<V>,
    now: Now,
) -> SessionContext<'a, V::Local> {
    SessionContext {
        local: &mut lane.local,
        output: queued.as_deref_mut().unwrap_or(&mut lane.output),
        now,
        wakeups: Wakeups::new(notifier, make),
    }
}
