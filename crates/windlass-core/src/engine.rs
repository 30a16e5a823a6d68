//! The engine: events, their states, and the steps of a turn.
//!
//! # Invariants
//!
//! - An event is in a ready queue exactly if it is active, not in flight and not deferred.
//! - A payload is in its slot exactly if its event is not in flight.
//! - A timer runs in the queue exactly if its event is pending and has a deadline.
//! - A handle has a slot as long as an event names it, and one more step until the driver has been
//!   told to remove it.
//!
//! # Threads
//!
//! None of its own and no lock: a driver with several threads keeps it behind a mutex, and holds
//! that during a call, never while a payload runs or is dropped.

pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod dump;
pub(crate) mod error;
mod registry;
pub(crate) mod token;
mod turn;
pub(crate) mod watcher;

use core::fmt;
use core::time::Duration;

use crate::demultiplexer::{Change, Notify};
use crate::engine::config::{EngineConfig, HandleSharing, PRIORITIES_MAX, RunMode};
use crate::engine::control::Control;
use crate::engine::counters::Counters;
use crate::engine::dump::EventInfo;
use crate::engine::token::{Happened, Wait};
use crate::engine::watcher::Watchers;
use crate::event_table::{EventTable, Kind, Pending, Source, State};
use crate::handle_set::HandleSet;
use crate::id::{EventId, HandleId, NONE, RawHandle};
use crate::ready_queue::ReadyQueues;
use crate::signal_set::SignalSet;
use crate::time::Instant;
use crate::timer_queue::{CommonTimeout, CommonTimeoutError, Due, TimerQueue};

/// A handler's answer: what is to become of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Keep it, initialised: watched again only when enabled.
    Disable,
    /// Leave it as it is: a persistent event stays pending, a one-shot one stays initialised.
    Keep,
    /// Make it pending (again) and start its timeout anew.
    Rearm,
    /// Remove it.
    Remove,
}

/// The sans-I/O engine, generic over the payload that it carries for each event.
pub struct Engine<P> {
    pub(crate) config: EngineConfig,
    events: EventTable,
    payloads: Vec<Option<P>>,
    /// Whether it matters which handles have a running handler.
    tracks_handles: bool,
    handles: HandleSet,
    timers: TimerQueue,
    ready: ReadyQueues,
    /// The first event of each signal.
    signals: [u32; SignalSet::NUMBER_MAX as usize + 1],
    watchers: Watchers<P>,
    control: Control,
    counters: Counters,
    mode: RunMode,
    /// Counts activation steps: what is activated after one is fresh until the next.
    epoch: u32,
    due: Vec<Due>,
}

impl<P> Engine<P> {
    /// An engine without events.
    ///
    /// # Panics
    ///
    /// If the number of priorities is not in 1 to 256.
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        assert!(
            (1..=PRIORITIES_MAX).contains(&config.priorities),
            "an engine has 1 to {PRIORITIES_MAX} priorities, not {}",
            config.priorities
        );
        Self {
            config,
            events: EventTable::default(),
            payloads: Vec::new(),
            tracks_handles: config.handle_sharing == HandleSharing::Exclusive
                || config.notify == Notify::Once,
            handles: HandleSet::new(config.notify),
            timers: TimerQueue::new(),
            ready: ReadyQueues::new(config.priorities),
            signals: [NONE; SignalSet::NUMBER_MAX as usize + 1],
            watchers: Watchers::default(),
            control: Control::default(),
            counters: Counters::default(),
            mode: RunMode::default(),
            epoch: 0,
            due: Vec::new(),
        }
    }

    /// Sets how the run that begins now goes. Stops that were asked for before stay in force.
    pub fn begin_run(&mut self, mode: RunMode) {
        self.mode = mode;
    }

    /// Forgets stops that were asked for before and not done yet (libevent does so when a loop is
    /// entered). A [deadline for the exit](Self::exit_loop_at) is kept.
    pub fn forget_stops(&mut self) {
        self.control = Control {
            exit_deadline: self.control.exit_deadline,
            ..Control::default()
        };
    }

    /// Ends the run as soon as the running handler is done; active events stay active.
    pub fn break_loop(&mut self) {
        self.control.break_asked = true;
    }

    /// Ends the run when the active events of this turn's priority have run.
    pub fn exit_loop(&mut self) {
        self.control.exit_asked = true;
    }

    /// Ends the run, as [`exit_loop`](Self::exit_loop) does, in the first turn at or after
    /// `deadline`. A deadline in the past lets one more turn pass.
    pub fn exit_loop_at(&mut self, deadline: Instant) {
        let earlier = self
            .control
            .exit_deadline
            .map_or(deadline, |before| before.min(deadline));
        self.control.exit_deadline = Some(earlier);
    }

    /// Ends this turn after the running handler: the demultiplexer is asked again, and the most
    /// urgent events run first.
    pub fn continue_loop(&mut self) {
        self.control.continue_asked = true;
    }

    /// Whether a break was asked for and the run has not ended yet.
    #[must_use]
    pub fn break_asked(&self) -> bool {
        self.control.break_asked
    }

    /// Whether an exit was asked for and the run has not ended yet.
    #[must_use]
    pub fn exit_asked(&self) -> bool {
        self.control.exit_asked
    }

    /// Keeps the loop from being empty until [`release`](Self::release) (a virtual event).
    pub fn hold(&mut self) {
        self.counters.holds += 1;
        self.counters.holds_max = self.counters.holds_max.max(self.counters.holds);
    }

    /// Takes one hold back.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn release(&mut self) {
        self.counters.holds = self
            .counters
            .holds
            .checked_sub(1)
            .expect("release without a hold");
    }

    /// Whether nothing keeps the loop running: no event pending or active, no hold, no handler
    /// running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let counters = &self.counters;
        counters.pending + counters.active + counters.holds + counters.in_flight == 0
    }

    /// Whether the thread that waits, by a plan whose longest wait was `waiting`, must be woken:
    /// something was done to the engine since that [`prepare`](Self::prepare) would answer by an
    /// earlier end of the wait. Changes count until they are [taken](Self::take_changes); a driver
    /// that can apply them beside the waiting thread does so before it asks.
    #[must_use]
    pub fn wake_needed(&mut self, waiting: Wait) -> bool {
        waiting != Wait::Poll && self.has_ready() || self.outlasts(waiting)
    }

    /// As [`wake_needed`](Self::wake_needed), but for events that are ready to be dispatched: where
    /// other threads than the one that waits can do that.
    #[must_use]
    pub fn outlasts(&mut self, waiting: Wait) -> bool {
        let at_once = self.control.break_asked
            || self.control.exit_asked
            || self.has_changes()
            || self.is_over();
        match waiting {
            Wait::Poll => false,
            Wait::Forever => at_once || self.next_deadline().is_some(),
            Wait::Until(end) => at_once || self.next_deadline().is_some_and(|next| next < end),
        }
    }

    /// Whether an event is active whose handler could be called now.
    #[must_use]
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.ready.len() > 0
    }

    /// Whether the run ends because nothing keeps it going.
    fn is_over(&self) -> bool {
        self.is_empty() && !self.mode.no_exit_on_empty && self.control.exit_deadline.is_none()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets the maxima of the counters to the present numbers.
    pub fn reset_maxima(&mut self) {
        self.counters.pending_max = self.counters.pending;
        self.counters.active_max = self.counters.active;
        self.counters.holds_max = self.counters.holds;
    }

    /// Whether [`activate`](Self::activate) must be told the time: something has a deadline, or the
    /// dispatch limit counts from it.
    #[must_use]
    #[inline]
    pub fn has_deadlines(&self) -> bool {
        !self.timers.is_empty() || self.control.exit_deadline.is_some() || self.is_timed()
    }

    /// Whether [`dispatch`](Self::dispatch) must be told the time for its next event: a timeout
    /// restarts, or a limit is to be checked.
    #[must_use]
    #[inline]
    pub fn needs_time(&self, turn: &token::Turn) -> bool {
        // The first may have to wait for another handler of its handle, and the next be called.
        if self.is_timed() || self.tracks_handles && self.counters.in_flight > 0 {
            return true;
        }
        let first = turn
            .priority
            .and_then(|priority| self.ready.first(priority));
        first.is_some_and(|index| self.events.slot(index).timeout.is_some())
    }

    /// Whether the time that a turn takes is limited.
    #[inline]
    fn is_timed(&self) -> bool {
        let limit = self.config.dispatch_limit;
        limit.is_some_and(|limit| limit.interval.is_some())
    }

    /// When the next timer is due.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let timer = self.timers.next_deadline();
        match self.control.exit_deadline {
            None => timer,
            Some(exit) => Some(timer.map_or(exit, |timer| timer.min(exit))),
        }
    }

    /// Makes a timeout length that many events share.
    ///
    /// # Errors
    ///
    /// If too many different lengths are common already.
    pub fn common_timeout(
        &mut self,
        length: Duration,
    ) -> Result<CommonTimeout, CommonTimeoutError> {
        self.timers.common_timeout(length)
    }

    /// Whether the driver has something to tell its demultiplexer.
    #[must_use]
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.handles.has_changes()
    }

    /// Appends to `changes` what the driver must tell its demultiplexer before it waits, in order.
    /// It counts as done: a failure is told by [`registration_failed`](Self::registration_failed).
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.handles.take_changes(&self.events, changes);
    }

    /// Notes that a registration could not be made or changed: its pending events become active
    /// with an error, as there is nothing left that would report it.
    pub fn registration_failed(&mut self, handle: HandleId) {
        let Some(index) = self.handles.find(handle) else {
            return;
        };
        self.handles.note_failure(index);
        self.report(index, crate::Readiness::ERROR);
    }

    /// Forgets what the demultiplexer watches: everything will be registered anew (after a fork,
    /// or with another back end).
    pub fn mark_all_unapplied(&mut self) {
        self.handles.mark_all_unapplied();
    }

    /// The signals that pending events wait for.
    #[must_use]
    pub fn watched_signals(&self) -> SignalSet {
        let mut set = SignalSet::default();
        for number in 1..=SignalSet::NUMBER_MAX {
            let mut at = self.signals[number as usize];
            while at != NONE {
                let slot = self.events.slot(at);
                if self.events.head(at).is_pending() {
                    set.add(number);
                    break;
                }
                at = slot.sibling;
            }
        }
        set
    }

    /// Where an event stands, if it exists.
    #[must_use]
    pub fn state(&self, id: EventId) -> Option<State> {
        self.events
            .find(id)
            .map(|index| self.events.head(index).state())
    }

    /// When an event is due, if it exists and is armed.
    #[must_use]
    pub fn deadline(&self, id: EventId) -> Option<Instant> {
        self.events
            .find(id)
            .and_then(|index| self.timers.deadline(index))
    }

    /// What happened so far to an event that is active, and what its handler will be told.
    #[must_use]
    pub fn happened(&self, id: EventId) -> Option<Happened> {
        let index = self.events.find(id)?;
        let active = self.events.head(index).is_active();
        active.then(|| self.events.slot(index).happened.told(id))
    }

    /// The registration that an event belongs to.
    #[must_use]
    pub fn handle_of(&self, id: EventId) -> Option<HandleId> {
        let index = self.events.find(id)?;
        let is_handle = self.events.head(index).kind == Kind::Handle;
        is_handle.then(|| self.handles.id_of(self.events.slot(index).subject))
    }

    /// The number of a handle that is registered.
    #[must_use]
    pub fn raw_of(&self, handle: HandleId) -> Option<RawHandle> {
        self.handles
            .find(handle)
            .map(|index| self.handles.slot(index).raw)
    }

    /// An event's payload, unless it is in flight.
    #[must_use]
    pub fn payload(&self, id: EventId) -> Option<&P> {
        let index = self.events.find(id)?;
        self.payloads[index as usize].as_ref()
    }

    /// An event's payload, unless it is in flight.
    #[must_use]
    pub fn payload_mut(&mut self, id: EventId) -> Option<&mut P> {
        let index = self.events.find(id)?;
        self.payloads[index as usize].as_mut()
    }

    /// What is known of one event.
    #[must_use]
    pub fn info(&self, id: EventId) -> Option<EventInfo> {
        self.events.find(id).map(|index| self.info_at(index))
    }

    /// All events, in no particular order.
    pub fn infos(&self) -> impl Iterator<Item = EventInfo> {
        (0_u32..)
            .zip(&self.events.heads)
            .filter(|(_, head)| head.kind != Kind::Free)
            .map(|(index, _)| self.info_at(index))
    }

    fn info_at(&self, index: u32) -> EventInfo {
        let (head, slot) = (self.events.head(index), self.events.slot(index));
        let source = match head.kind {
            Kind::Handle => {
                let handle = self.handles.slot(slot.subject);
                let (raw, trigger) = (handle.raw, handle.trigger);
                Source::Handle {
                    raw,
                    interest: slot.interest,
                    trigger,
                }
            }
            Kind::Signal => Source::Signal(slot.subject as i32),
            Kind::Timer => Source::Timer,
            Kind::User | Kind::Free => Source::User,
        };
        EventInfo {
            id: self.events.id_of(index),
            source,
            state: head.state(),
            priority: slot.priority,
            persistent: !slot.one_shot,
            internal: head.is_internal(),
            timeout: slot.timeout.unpack(),
            deadline: self.timers.deadline(index),
        }
    }

    /// Makes an event active, or adds to what happened to one that is.
    #[inline]
    fn make_active(&mut self, index: u32, happened: impl FnOnce(&mut Pending)) {
        let slot = &mut self.events.slots[index as usize];
        let head = &mut self.events.heads[index as usize];
        happened(&mut slot.happened);
        if head.is_active() {
            return;
        }
        head.set_active(true);
        slot.epoch = self.epoch;
        if !head.is_internal() {
            self.counters.active += 1;
            self.counters.active_max = self.counters.active_max.max(self.counters.active);
        }
        // Without payload it is in flight: queued when it settles. (That this looks at the payload
        // brings it into the cache, for all events of a batch at once, before they are called.)
        if self.payloads[index as usize].is_some() {
            self.ready.push(&mut self.events, index);
        }
    }

    /// Takes an active event out of its queue; what happened to it is forgotten.
    fn make_inactive(&mut self, index: u32) {
        let head = self.events.head_mut(index);
        if !head.is_active() {
            return;
        }
        head.set_active(false);
        let (internal, in_flight) = (head.is_internal(), head.is_in_flight());
        let slot = self.events.slot_mut(index);
        slot.happened = Pending::default();
        let queued = !in_flight && !core::mem::take(&mut slot.deferred);
        self.counters.active -= usize::from(!internal);
        if queued {
            self.ready.unlink(&mut self.events, index);
        }
    }

    /// Takes back that an event timed out, if it is active for that: its timeout was changed
    /// before its handler ran. What else happened to it stays.
    #[inline]
    fn withdraw_timeout(&mut self, index: u32) {
        if self.events.head(index).is_active() {
            self.withdraw_timeout_of_active(index);
        }
    }

    fn withdraw_timeout_of_active(&mut self, index: u32) {
        let slot = self.events.slot_mut(index);
        if !slot.happened.timed_out {
            return;
        }
        slot.happened.timed_out = false;
        slot.happened.deadline = 0;
        if slot.happened.is_nothing() {
            self.make_inactive(index);
        }
    }

    #[inline(always)]
    fn set_pending(&mut self, index: u32, pending: bool) {
        let head = self.events.head_mut(index);
        if head.is_pending() == pending {
            return;
        }
        head.set_pending(pending);
        let (kind, internal) = (head.kind, head.is_internal());
        if !internal {
            if pending {
                self.counters.pending += 1;
                self.counters.pending_max = self.counters.pending_max.max(self.counters.pending);
            } else {
                self.counters.pending -= 1;
            }
        }
        if kind == Kind::Handle {
            let subject = self.events.slot(index).subject;
            self.handles.mark_dirty(subject);
            if pending {
                // What was reported while it did not listen will not be reported again.
                self.handles.note_edge_missed(subject);
            }
        }
    }
}

impl<P> fmt::Debug for Engine<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("counters", &self.counters)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}
