//! One connection: reads, lets its session go on, writes, and ends in order.
//!
//! # States
//!
//! ```text
//! Reading ⇄ Flushing (the session waits for its output) ⇄ Waiting (for a notification)
//!    ⇅         ⇅
//!   Working (a job runs)            any ──▶ gone (error, reset, abort)
//!    │
//!    ▼
//! Closing (output still queued) ──▶ Lingering (sending side closed) ──▶ gone
//! ```

mod ending;
mod job;
mod waiting;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use windlass_core::{Disposition, EventId, Happened, Instant, Interest, Readiness, Trigger};
use windlass_sys::net;

use super::book::Entry;
use super::flush::{FlushError, Flushed, flush};
use super::state::ServerState;
use crate::event_loop::{Context, EventHandler, WakeFlag};
use crate::models::report::ConnectionPhase;
use crate::session::{
    Input, Job, JobResult, Next, Notifier, Now, Output, Peer, Progress, Service, Session,
    SessionContext, Wakeups,
};

type Cx<'c, V> = Context<'c, 'static, ServerState<V>>;

/// One connection of a single loop.
pub(super) struct Connection<V: Service> {
    socket: OwnedFd,
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
    stop_told: bool,
    /// Whether reading pauses until the output is low.
    paused: bool,
    is_tcp: bool,
    /// What the socket may still be ready for though it will not report it again.
    ready: Readiness,
    /// What the event's timer is armed for.
    armed: Instant,
    /// When the peer last took some of the queued output.
    progress_at: Instant,
    entry: Entry,
}

enum Phase {
    Reading,
    Flushing,
    /// For a notification. Input is kept meanwhile, as far as there is room.
    Waiting,
    /// A job runs, or waits for room in the pool; its result is put there.
    Working(Rc<Cell<Option<JobResult>>>),
    /// A job that found the pool full.
    Queued(Job),
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

/// The connection is over.
struct Gone;

type Step = Result<(), Gone>;

/// How often a session may go on at once while its output drains at once.
const ROUNDS_MAX: u32 = 16;

impl<V: Service> Connection<V> {
    pub(super) fn new(
        socket: OwnedFd,
        session: V::Session,
        entry: Entry,
        peer: &Peer,
        trigger: Trigger,
    ) -> Self {
        let edge = trigger == Trigger::Edge;
        Self {
            socket,
            armed: session.deadline().unwrap_or(Instant::FAR),
            session,
            carry: Vec::new(),
            output: None,
            notifier: None,
            phase: Phase::Reading,
            interest: Self::reading(edge),
            input_ended: false,
            stop_told: false,
            paused: false,
            is_tcp: peer.remote.is_some(),
            ready: Readiness::NONE,
            progress_at: Instant::ZERO,
            entry,
        }
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> Interest {
        self.interest
    }

    fn step(&mut self, state: &mut ServerState<V>, cx: &mut Cx<'_, V>, what: Happened) -> Step {
        let now = state.now(cx);
        self.ready |= what.readiness;
        debug_assert!(
            state.output.is_empty(),
            "another connection's output is left"
        );
        if what.user {
            self.on_activation(state, cx, now)?;
        }
        let broken = Readiness::ERROR | Readiness::HANG_UP;
        if matches!(self.phase, Phase::Waiting) && self.ready.intersects(broken) {
            // Nobody is left to be answered, and no read or write will tell.
            return self.fail(state);
        }
        if self.output.is_some() && self.ready.intersects(Readiness::WRITE) {
            self.flush(state, now)?;
            if matches!(self.phase, Phase::Flushing) && self.is_low() {
                let len = self.unpack(state);
                self.advance(state, cx, len, now)?;
            }
        }
        if self.ready.intersects(Readiness::READ) {
            match self.phase {
                Phase::Reading | Phase::Waiting if self.interest.contains(Interest::READ) => {
                    self.read(state, cx, now)?;
                }
                Phase::Closing { .. } if self.interest.contains(Interest::READ) => {
                    self.discard(state)?;
                }
                Phase::Lingering { .. } => self.discard(state)?,
                // Not asked for: an error or a hang-up, which the next write finds.
                _ => {}
            }
        }
        if what.timed_out {
            self.armed = Instant::FAR;
            self.on_deadline(state, cx, now)?;
        }
        self.settle(state, now)
    }

    /// Reads once, and lets the session go on.
    #[inline]
    fn read(&mut self, state: &mut ServerState<V>, cx: &mut Cx<'_, V>, now: Now) -> Step {
        let have = self.unpack(state);
        let room = &mut state.input[have..];
        if room.is_empty() {
            if matches!(self.phase, Phase::Waiting) {
                // Full: the rest stays where it is until the session goes on.
                return Ok(());
            }
            // The session leaves more than the limit.
            return self.fail(state);
        }
        let room_len = room.len();
        match net::recv(self.socket.as_fd(), room) {
            // The error is the loop's, which could not watch the socket: nothing will be reported.
            Ok(None) if self.ready.intersects(Readiness::ERROR) => self.fail(state),
            Ok(None) => {
                self.ready = self.ready.without(Readiness::READ);
                Ok(())
            }
            Ok(Some(count)) => {
                self.note_received(count, room_len);
                self.input_ended = count == 0;
                state.counts.received_bytes += count as u64;
                self.advance(state, cx, have + count, now)
            }
            Err(_) => self.fail(state),
        }
    }

    /// Puts what the session left in front of the shared buffer.
    #[inline]
    fn unpack(&self, state: &mut ServerState<V>) -> usize {
        let have = self.carry.len();
        if have > 0 {
            state.input[..have].copy_from_slice(&self.carry);
        }
        have
    }

    /// Lets the session go on with the first `len` bytes of the shared buffer, writes what it
    /// answers, and keeps what it leaves.
    #[inline]
    fn advance(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        len: usize,
        now: Now,
    ) -> Step {
        let mut at = 0;
        let mut rounds = 0;
        loop {
            let input = Input {
                bytes: &state.input[at..len],
                ended: self.input_ended,
            };
            let output = self.output.as_deref_mut().unwrap_or(&mut state.output);
            let (event, flag) = (cx.event(), &state.wake_flag);
            let make = || notifier_of(flag, event);
            let mut session_cx = SessionContext {
                local: &mut state.local,
                output,
                now,
                wakeups: Wakeups::new(&mut self.notifier, &make),
            };
            let Progress { consumed, next } = self.session.advance(&mut session_cx, input);
            at += consumed;
            assert!(at <= len, "a session consumed more than its input");
            self.follow(state, cx, next)?;
            if self.input_ended && matches!(self.phase, Phase::Reading) {
                // It wants more, and nothing more can come.
                self.phase = Phase::Closing { left_bytes: 0 };
            }
            self.flush(state, now)?;
            rounds += 1;
            if !matches!(self.phase, Phase::Flushing) || !self.is_low() {
                break;
            }
            if rounds == ROUNDS_MAX {
                // Others have their turn first. It exists: its handler runs.
                let event = cx.event();
                let _ = cx.activate(event, 1);
                break;
            }
        }
        if at < len {
            self.carry.clear();
            self.carry.extend_from_slice(&state.input[at..len]);
        } else if self.carry.capacity() > 0 {
            self.carry = Vec::new();
        }
        Ok(())
    }

    /// Does what the session asked for.
    #[inline]
    fn follow(&mut self, state: &mut ServerState<V>, cx: &mut Cx<'_, V>, next: Next) -> Step {
        match next {
            // It goes on waiting for its job.
            Next::Read | Next::Flush | Next::Wait if self.has_job() => {}
            Next::Read if matches!(self.phase, Phase::Reading) => {}
            Next::Read => self.phase = Phase::Reading,
            Next::Flush => self.phase = Phase::Flushing,
            Next::Wait => self.phase = Phase::Waiting,
            Next::Job(job) => self.start_job(state, cx, job)?,
            Next::Close => {
                self.phase = Phase::Closing {
                    left_bytes: state.limits.linger_bytes_max,
                };
            }
            Next::Abort => {
                // A reset, so that the peer does not take a cut answer for a whole one. If it
                // fails the connection is closed all the same.
                let _ = net::set_linger_zero(self.socket.as_fd());
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// Woken by the loop itself: a job's result, a notification, a stop, or a turn that was given up
    /// for others.
    fn on_activation(&mut self, state: &mut ServerState<V>, cx: &mut Cx<'_, V>, now: Now) -> Step {
        if let Phase::Working(slot) = &self.phase
            && let Some(result) = slot.take()
        {
            self.phase = Phase::Reading;
            let make = notifier_maker(state, cx.event());
            let slots = (&mut self.output, &mut self.notifier);
            let mut session_cx = context(slots, &make, state, now);
            let next = self.session.complete(&mut session_cx, result);
            self.follow(state, cx, next)?;
            self.go_on(state, cx, now, Unread::ToGive)?;
        } else if matches!(self.phase, Phase::Flushing) {
            self.go_on(state, cx, now, Unread::Known)?;
        }
        // While it waits for something else, it will be called again without being told.
        if self.notifier.as_ref().is_some_and(Notifier::take)
            && matches!(self.phase, Phase::Reading | Phase::Waiting)
        {
            let len = self.unpack(state);
            self.advance(state, cx, len, now)?;
        }
        if state.ends_connections() && !self.stop_told {
            self.stop_told = true;
            if matches!(self.phase, Phase::Lingering { .. }) {
                // Fully answered: the peer's close is not waited for.
                return self.close_idle(state);
            }
            if !matches!(self.phase, Phase::Closing { .. } | Phase::Lingering { .. }) {
                self.stop(state, cx, now)?;
            }
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
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        now: Now,
        unread: Unread,
    ) -> Step {
        self.flush(state, now)?;
        let goes_on = match self.phase {
            Phase::Flushing => self.is_low(),
            Phase::Reading | Phase::Waiting => unread == Unread::ToGive || self.input_ended,
            _ => false,
        };
        if goes_on {
            let len = self.unpack(state);
            self.advance(state, cx, len, now)?;
        }
        Ok(())
    }

    /// Writes what is queued; what the socket does not take is kept.
    #[inline]
    fn flush(&mut self, state: &mut ServerState<V>, now: Now) -> Step {
        let output = self.output.as_deref_mut().unwrap_or(&mut state.output);
        if output.is_empty() {
            self.output = None;
            return Ok(());
        }
        let before = output.queued_bytes();
        match flush(self.socket.as_fd(), output, &mut state.counts.sent_bytes) {
            Ok(Flushed::All) => self.output = None,
            Ok(flushed) => {
                if flushed == Flushed::Full && self.ready.intersects(Readiness::ERROR) {
                    // The error is the loop's, which could not watch the socket.
                    output.clear();
                    return self.fail(state);
                }
                self.ready = match flushed {
                    Flushed::Full => self.ready.without(Readiness::WRITE),
                    _ => self.ready | Readiness::WRITE,
                };
                if output.queued_bytes() < before || self.output.is_none() {
                    self.progress_at = now.monotonic;
                }
                if self.output.is_none() {
                    let fresh = Output::new(state.limits.output);
                    self.output = Some(Box::new(std::mem::replace(&mut state.output, fresh)));
                }
            }
            Err(error) => {
                output.clear();
                match error {
                    FlushError::Truncated => {
                        state.counts.truncated_files += 1;
                        // The peer must not take what it got for the whole.
                        let _ = net::set_linger_zero(self.socket.as_fd());
                    }
                    FlushError::Socket => state.counts.failed += 1,
                }
                return Err(Gone);
            }
        }
        Ok(())
    }

    /// What it is at, for who asks.
    fn phase(&self) -> ConnectionPhase {
        match self.phase {
            Phase::Lingering { .. } => ConnectionPhase::Lingering,
            Phase::Working(_) | Phase::Queued(_) => ConnectionPhase::WaitingForJob,
            _ if self.output.is_some() => ConnectionPhase::Answering,
            Phase::Waiting => ConnectionPhase::Waiting,
            _ => ConnectionPhase::Reading,
        }
    }
}

/// What a session is called with: output goes behind what is queued already, if anything is.
fn context<'a, V: Service>(
    (queued, notifier): (&'a mut Option<Box<Output>>, &'a mut Option<Notifier>),
    make: &'a dyn Fn() -> Notifier,
    state: &'a mut ServerState<V>,
    now: Now,
) -> SessionContext<'a, V::Local> {
    SessionContext {
        local: &mut state.local,
        output: queued.as_deref_mut().unwrap_or(&mut state.output),
        now,
        wakeups: Wakeups::new(notifier, make),
    }
}

fn notifier_maker<V: Service>(
    state: &ServerState<V>,
    event: EventId,
) -> impl Fn() -> Notifier + use<V> {
    let flag = Arc::clone(&state.wake_flag);
    move || notifier_of(&flag, event)
}

/// What activates a connection's event from any thread. It names nothing when the connection is
/// gone.
fn notifier_of(flag: &Arc<WakeFlag>, event: EventId) -> Notifier {
    let flag = Arc::clone(flag);
    Notifier::new(move || flag.complete(event))
}

impl<V: Service> Drop for Connection<V> {
    fn drop(&mut self) {
        self.entry.note_end(|| {
            let queued_bytes = self
                .output
                .as_ref()
                .map_or(0, |output| output.queued_bytes());
            let peer = Peer::new(net::peer_addr(self.socket.as_fd()));
            (peer, self.phase(), queued_bytes)
        });
    }
}

impl<V: Service> EventHandler<'static, ServerState<V>> for Connection<V> {
    fn handle_event(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        happened: Happened,
    ) -> Disposition {
        // Unwind safety: a connection that panicked is dropped, and what it shares with others is
        // put in order below; the service's shared part is the service's, as with any panic.
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(state, cx, happened)));
        if !matches!(stepped, Ok(Ok(()))) {
            state.counts.panics += u64::from(stepped.is_err());
            // Of a cut answer nothing must reach the next connection.
            state.output.clear();
            state.forget_connection(cx);
            return Disposition::Remove;
        }
        self.update_interest(state, cx);
        self.update_deadline(state, cx);
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
