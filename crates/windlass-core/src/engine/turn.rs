//! The five steps of a turn. Wait is the driver's own; the other four are here, and none reads a
//! clock.

use crate::demultiplexer::Batch;
use crate::engine::config::{FreshActivations, HandleSharing};
use crate::engine::control::{Step, StopReason, TurnEnd};
use crate::engine::token::{Call, InFlight, Settled, Turn, Wait, WaitPlan, Waited};
use crate::engine::{Disposition, Engine};
use crate::event_table::{CatchUp, Kind, Pending, Timeout};
use crate::id::{EventId, HandleId, NONE};
use crate::interest::Readiness;
use crate::signal_set::SignalSet;
use crate::time::Instant;

impl<P> Engine<P> {
    /// Step 1, prepare: may the driver wait, and until when?
    ///
    /// Before this call it has taken the changes ([`take_changes`](Self::take_changes)) and told its
    /// demultiplexer: a registration that fails makes events active, and a plan that was made
    /// earlier would wait nevertheless. A stop that was asked for ends the run here, and is used up.
    pub fn prepare(&mut self) -> Step {
        self.control.continue_asked = false;
        if core::mem::take(&mut self.control.break_asked) {
            return Step::Stop(StopReason::Break);
        }
        if core::mem::take(&mut self.control.exit_asked) {
            return Step::Stop(StopReason::Exit);
        }
        if self.is_over() {
            return Step::Stop(StopReason::Empty);
        }
        let wait = if self.mode.nonblock || self.ready.len() > 0 {
            Wait::Poll
        } else {
            self.next_deadline().map_or(Wait::Forever, Wait::Until)
        };
        Step::Wait(WaitPlan { wait })
    }

    /// Step 3, activate: what the wait brought and what is due at `now` becomes active. The batch
    /// is emptied.
    pub fn activate(&mut self, _waited: Waited, batch: &mut Batch, now: Instant) -> Turn {
        self.counters.turns += 1;
        let mut stale = None;
        for report in &batch.reports {
            match self.handles.find(report.handle) {
                Some(index) => {
                    self.handles.note_report(index);
                    if !self.report(index, report.readiness) {
                        // Nobody will settle it: it may report again at once.
                        self.handles.note_idle(index);
                    }
                }
                None => {
                    self.counters.stale_reports += 1;
                    stale = Some(report.handle);
                }
            }
        }
        for &(number, count) in &batch.signals {
            self.signal(number, count);
        }
        batch.clear();
        self.expire(now);
        if self
            .control
            .exit_deadline
            .is_some_and(|deadline| deadline <= now)
        {
            self.control.exit_deadline = None;
            self.control.exit_asked = true;
        }
        // What handlers activate from here on is fresh.
        self.epoch = self.epoch.wrapping_add(1);
        let priority = self.ready.choose(self.config.starvation_limit_turns);
        Turn {
            priority,
            started: now,
            callbacks: 0,
            counted: 0,
            stale,
        }
    }

    /// Readiness of one handle, to the pending events that want to know; answers whether one did.
    #[inline(always)]
    pub(super) fn report(&mut self, handle: u32, readiness: Readiness) -> bool {
        let mut anyone = false;
        let mut at = self.handles.slot(handle).first_event;
        while at != NONE {
            let slot = self.events.slot(at);
            let next = slot.sibling;
            if self.events.head(at).is_pending() {
                let told = readiness.told_to(slot.interest);
                if !told.is_none() {
                    self.make_active(at, |happened| happened.readiness |= told);
                    anyone = true;
                }
            }
            at = next;
        }
        anyone
    }

    fn signal(&mut self, number: i32, count: u32) {
        if !SignalSet::is_valid(number) {
            return;
        }
        let mut at = self.signals[number as usize];
        while at != NONE {
            let slot = self.events.slot(at);
            let next = slot.sibling;
            if self.events.head(at).is_pending() {
                self.make_active(at, |happened| {
                    happened.signalled = true;
                    happened.count = happened.count.saturating_add(count);
                });
            }
            at = next;
        }
    }

    #[inline]
    fn expire(&mut self, now: Instant) {
        if self.timers.may_expire(now) {
            self.expire_due(now);
        }
    }

    fn expire_due(&mut self, now: Instant) {
        let mut due = core::mem::take(&mut self.due);
        self.timers
            .expire_some(now, self.config.expire_max, &mut due);
        self.counters.expired += due.len() as u64;
        for timer in due.drain(..) {
            self.make_active(timer.index, |happened| {
                happened.timed_out = true;
                happened.deadline = timer.deadline_ns;
            });
        }
        self.due = due;
    }

    /// Step 4, dispatch: the next event whose handler is to run in this turn, or nothing if the
    /// turn is over. `now` restarts timeouts and is held against the dispatch limit; a driver
    /// without such a limit may hand in the turn's.
    #[inline(always)]
    pub fn dispatch(&mut self, turn: &mut Turn, now: Instant) -> Option<Call<P>> {
        let priority = turn.priority?;
        if self.ready.len() == 0 {
            return None;
        }
        loop {
            if self.control.break_asked || self.control.continue_asked {
                return None;
            }
            let index = self.ready.first(priority)?;
            let fresh = self.events.slot(index).epoch == self.epoch;
            if fresh && self.config.fresh_activations == FreshActivations::NextTurn {
                return None;
            }
            if self.config.dispatch_limit.is_some() && self.is_limited(turn, priority, now) {
                return None;
            }
            self.ready.pop_first(&mut self.events, priority, index);
            if self.tracks_handles && self.must_wait_for_handle(index) {
                self.events.slot_mut(index).deferred = true;
                continue;
            }
            let Some(payload) = self.payloads[index as usize].take() else {
                debug_assert!(false, "an event in a ready queue has its payload");
                continue;
            };
            turn.callbacks += 1;
            return Some(self.call(turn, index, payload, now));
        }
    }

    /// Moves an event from active to in flight.
    #[inline(always)]
    fn call(&mut self, turn: &mut Turn, index: u32, payload: P, now: Instant) -> Call<P> {
        let head = self.events.head_mut(index);
        head.set_active(false);
        head.set_in_flight(true);
        let head = *head;
        let (kind, counted) = (head.kind, usize::from(!head.is_internal()));
        let event = EventId::new(index, head.generation);
        let slot = self.events.slot_mut(index);
        let pending = core::mem::take(&mut slot.happened);
        let (subject, one_shot) = (slot.subject, slot.one_shot);
        // Most events that wait for a handle: there is no timeout to see to.
        let stays = !head.is_pending()
            || !one_shot && !slot.timeout.is_some() && (kind != Kind::Timer || !pending.timed_out);
        turn.counted += counted as u32;
        self.counters.active -= counted;
        self.counters.in_flight += 1;
        self.counters.dispatched += 1;
        let handle = (self.tracks_handles && kind == Kind::Handle).then(|| {
            self.handles.slot_mut(subject).in_flight += 1;
            self.handles.id_of(subject)
        });
        if !stays {
            self.see_to_timeout(index, &pending, now);
        }
        let happened = pending.told(event);
        Call {
            token: InFlight { event, handle },
            payload,
            happened,
        }
    }

    /// Of a pending event that is called: a one-shot event waits for nothing more, a timeout starts
    /// anew.
    fn see_to_timeout(&mut self, index: u32, pending: &Pending, now: Instant) {
        let slot = self.events.slot(index);
        if slot.one_shot {
            self.timers.disarm(index);
            self.set_pending(index, false);
        } else if let Some(timeout) = slot.timeout.unpack() {
            let reached = pending.timed_out.then_some(pending.deadline);
            self.restart_timeout(index, timeout, reached, now);
        } else if self.timers.deadline(index).is_none() {
            // Armed by hand for one deadline: it waits for nothing more.
            self.set_pending(index, false);
        }
    }

    /// The timeout of a persistent event that became active starts anew.
    fn restart_timeout(
        &mut self,
        index: u32,
        timeout: Timeout,
        reached: Option<u64>,
        now: Instant,
    ) {
        let (Timeout::After(length), Some(reached)) = (timeout, reached) else {
            return self.start_timeout(index, timeout, now);
        };
        let reached = Instant::from_nanos(reached);
        let next = match self.events.slot(index).catch_up {
            CatchUp::Delay => now + length,
            CatchUp::Burst => reached + length,
            CatchUp::Skip => {
                let period = length.as_nanos().max(1);
                let late = u128::from(now.as_nanos().saturating_sub(reached.as_nanos()));
                let periods = late / period + 1;
                let next = u128::from(reached.as_nanos()) + periods * period;
                Instant::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
            }
            CatchUp::Steady => {
                let next = reached + length;
                if next < now { now + length } else { next }
            }
        };
        self.timers.arm(index, next);
    }

    /// Step 5, settle: the handler is back. What it answered is done, and its payload goes into
    /// the engine again or is released to the driver.
    ///
    /// An event that was removed meanwhile is released whatever the answer: a slot's next occupant
    /// is never touched.
    #[inline(always)]
    pub fn settle(
        &mut self,
        token: InFlight,
        payload: P,
        disposition: Disposition,
        now: Instant,
    ) -> Settled<P> {
        self.counters.in_flight -= 1;
        let index = self.events.find(token.event);
        if let Some(handle) = token.handle {
            self.settle_handle(handle);
        }
        let Some(index) = index else {
            return Settled::Released(payload);
        };
        self.payloads[index as usize] = Some(payload);
        let head = self.events.head_mut(index);
        head.set_in_flight(false);
        if head.is_active() {
            // It happened again meanwhile.
            self.events.slot_mut(index).epoch = self.epoch;
            self.ready.push(&mut self.events, index);
        }
        match disposition {
            Disposition::Keep => {}
            Disposition::Rearm => self.enable_at(index, now),
            Disposition::Disable => self.disable_at(index),
            Disposition::Remove => {
                return match self.remove_at(index) {
                    Some(payload) => Settled::Released(payload),
                    None => Settled::Kept,
                };
            }
        }
        Settled::Kept
    }

    /// Settles an event whose payload is lost (its handler panicked): the event is removed.
    pub fn abandon(&mut self, token: InFlight) {
        self.counters.in_flight -= 1;
        let index = self.events.find(token.event);
        if let Some(handle) = token.handle {
            self.settle_handle(handle);
        }
        if let Some(index) = index {
            // While in flight its payload is out and it is in no queue.
            self.remove_at(index);
        }
    }

    /// One handler less runs for a handle: others of it may run, and it may report again.
    #[inline]
    fn settle_handle(&mut self, handle: HandleId) {
        // Gone, with all its events, and perhaps its slot in use again: nothing to note.
        let Some(handle) = self.handles.find(handle) else {
            return;
        };
        let slot = self.handles.slot_mut(handle);
        slot.in_flight -= 1;
        if slot.in_flight > 0 {
            return;
        }
        if self.config.handle_sharing == HandleSharing::Exclusive {
            let mut at = self.handles.slot(handle).first_event;
            while at != NONE {
                let slot = self.events.slot_mut(at);
                let next = slot.sibling;
                if core::mem::take(&mut slot.deferred) {
                    slot.epoch = self.epoch;
                    self.ready.push(&mut self.events, at);
                }
                at = next;
            }
        }
        self.handles.note_idle(handle);
    }

    /// Ends a turn.
    pub fn finish(&mut self, turn: Turn) -> TurnEnd {
        if self.control.break_asked || self.control.exit_asked {
            return TurnEnd::Again;
        }
        let none_left = self.ready.len() == 0;
        let passed = if turn.priority.is_some() {
            self.mode.once && none_left && turn.counted > 0
        } else {
            self.mode.nonblock
        };
        if passed {
            TurnEnd::Stop(StopReason::Passed)
        } else {
            TurnEnd::Again
        }
    }

    /// Whether the dispatch limit says to look again before the next handler.
    fn is_limited(&self, turn: &Turn, priority: u8, now: Instant) -> bool {
        self.config.dispatch_limit.is_some_and(|limit| {
            turn.callbacks > 0
                && priority >= limit.from_priority
                && (limit.callbacks_max.is_some_and(|max| turn.callbacks >= max)
                    || limit
                        .interval
                        .is_some_and(|max| now.saturating_since(turn.started) >= max))
        })
    }

    /// Whether another handler of the event's handle runs and must end first.
    #[inline]
    fn must_wait_for_handle(&self, index: u32) -> bool {
        if self.config.handle_sharing == HandleSharing::Shared {
            return false;
        }
        let subject = self.events.slot(index).subject;
        self.events.head(index).kind == Kind::Handle && self.handles.slot(subject).in_flight > 0
    }
}
