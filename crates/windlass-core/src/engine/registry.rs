//! Registration: inserting, enabling, changing and removing events. Legal at any time, from inside
//! any handler.

use crate::engine::Engine;
use crate::engine::error::{EventError, InsertError, InsertErrorKind};
use crate::event_table::{EventSpec, Kind, PackedTimeout, Source, Timeout};
use crate::id::{EventId, NONE};
use crate::interest::{Interest, Readiness};
use crate::signal_set::SignalSet;
use crate::time::Instant;

impl<P> Engine<P> {
    /// Adds an event, initialised: it waits for nothing until it is enabled.
    ///
    /// # Errors
    ///
    /// If the spec does not fit; the payload comes back.
    pub fn insert(&mut self, spec: EventSpec, payload: P) -> Result<EventId, InsertError<P>> {
        match self.try_insert(&spec) {
            Ok(index) => {
                let at = index as usize;
                if at >= self.payloads.len() {
                    self.payloads.resize_with(at + 1, || None);
                }
                self.payloads[at] = Some(payload);
                if spec.timeout.is_some() || spec.source == Source::Timer {
                    self.timers.reserve(index);
                }
                self.counters.inserted += usize::from(!self.events.head(index).is_internal());
                Ok(self.events.id_of(index))
            }
            Err(kind) => Err(InsertError { kind, payload }),
        }
    }

    fn try_insert(&mut self, spec: &EventSpec) -> Result<u32, InsertErrorKind> {
        let (priority, priorities) = (spec.priority, self.config.priorities);
        if u16::from(priority) >= priorities {
            return Err(InsertErrorKind::PriorityRange {
                priority,
                priorities,
            });
        }
        match spec.source {
            Source::Handle {
                raw,
                interest,
                trigger,
            } => {
                if raw < 0 {
                    return Err(InsertErrorKind::HandleNegative { raw });
                }
                if let Some(handle) = self.handles.of_raw(raw)
                    && self.handles.slot(handle).trigger != trigger
                {
                    return Err(InsertErrorKind::MixedTriggers { raw });
                }
                let index = self
                    .events
                    .take_slot(Kind::Handle, spec)
                    .ok_or(InsertErrorKind::Full)?;
                let Some(handle) = self.handles.find_or_make(raw, trigger) else {
                    self.events.free_slot(index);
                    return Err(InsertErrorKind::Full);
                };
                self.events.slot_mut(index).interest = interest;
                self.handles.link(&mut self.events, handle, index);
                Ok(index)
            }
            Source::Signal(number) => {
                if !SignalSet::is_valid(number) {
                    return Err(InsertErrorKind::SignalRange { number });
                }
                let index = self
                    .events
                    .take_slot(Kind::Signal, spec)
                    .ok_or(InsertErrorKind::Full)?;
                // In order of insertion.
                let mut last = self.signals[number as usize];
                if last == NONE {
                    self.signals[number as usize] = index;
                } else {
                    while self.events.slot(last).sibling != NONE {
                        last = self.events.slot(last).sibling;
                    }
                    self.events.slot_mut(last).sibling = index;
                }
                self.events.slot_mut(index).subject = number as u32;
                Ok(index)
            }
            Source::Timer => self
                .events
                .take_slot(Kind::Timer, spec)
                .ok_or(InsertErrorKind::Full),
            Source::User => self
                .events
                .take_slot(Kind::User, spec)
                .ok_or(InsertErrorKind::Full),
        }
    }

    /// Makes an event pending and starts its timeout, if it has one, from `now`. On one that is
    /// pending it restarts the timeout, and takes back that it timed out if its handler has not
    /// run yet. A timer without a timeout becomes pending when it is [armed](Self::arm). A handle
    /// whose registration failed is tried again.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    pub fn enable(&mut self, id: EventId, now: Instant) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        self.enable_at(index, now);
        Ok(())
    }

    pub(super) fn enable_at(&mut self, index: u32, now: Instant) {
        let slot = self.events.slot(index);
        let timeout = slot.timeout.unpack();
        let (kind, subject) = (self.events.head(index).kind, slot.subject);
        if timeout.is_some() || kind != Kind::Timer {
            self.set_pending(index, true);
        }
        if kind == Kind::Handle {
            self.handles.retry_if_failed(subject);
        }
        if let Some(timeout) = timeout {
            self.withdraw_timeout(index);
            self.start_timeout(index, timeout, now);
        }
    }

    pub(super) fn start_timeout(&mut self, index: u32, timeout: Timeout, now: Instant) {
        match timeout {
            Timeout::After(length) => self.timers.arm(index, now + length),
            Timeout::Common(common) => {
                self.timers.arm_common(index, common, now);
            }
        }
    }

    /// Makes an event initialised: neither pending nor active, its timeout stopped.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    pub fn disable(&mut self, id: EventId) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        self.disable_at(index);
        Ok(())
    }

    pub(super) fn disable_at(&mut self, index: u32) {
        self.make_inactive(index);
        self.timers.disarm(index);
        self.set_pending(index, false);
    }

    /// Removes an event: its handler will not be called any more, and the id names nothing. The
    /// payload comes back unless the handler is running; then it is released when that settles.
    ///
    /// The driver applies the changes before it drops the payload: a descriptor that the payload
    /// owns must not be closed while it is registered.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    pub fn remove(&mut self, id: EventId) -> Result<Option<P>, EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        Ok(self.remove_at(index))
    }

    pub(super) fn remove_at(&mut self, index: u32) -> Option<P> {
        self.disable_at(index);
        let head = self.events.head(index);
        let (kind, internal) = (head.kind, head.is_internal());
        let subject = self.events.slot(index).subject;
        match kind {
            Kind::Handle => self.handles.unlink(&mut self.events, subject, index),
            Kind::Signal => self.unlink_signal(subject as usize, index),
            Kind::Timer | Kind::User | Kind::Free => {}
        }
        self.events.free_slot(index);
        self.counters.inserted -= usize::from(!internal);
        self.payloads[index as usize].take()
    }

    fn unlink_signal(&mut self, number: usize, index: u32) {
        let after = self.events.slot(index).sibling;
        let mut at = self.signals[number];
        if at == index {
            self.signals[number] = after;
            return;
        }
        while self.events.slot(at).sibling != index {
            at = self.events.slot(at).sibling;
        }
        self.events.slot_mut(at).sibling = after;
    }

    /// Arms an event for a deadline, in place of what it was armed for, even if that was reached
    /// and the handler has not run yet; makes it pending.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    #[inline]
    pub fn arm(&mut self, id: EventId, deadline: Instant) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        self.withdraw_timeout(index);
        self.set_pending(index, true);
        self.timers.arm(index, deadline);
        Ok(())
    }

    /// Stops an event's timeout, even if it was reached and the handler has not run yet; a pure
    /// timer becomes initialised. Answers whether it ran.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    #[inline]
    pub fn disarm(&mut self, id: EventId) -> Result<bool, EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        let was_armed = self.timers.disarm(index);
        let head = *self.events.head(index);
        if head.kind == Kind::Timer {
            if head.is_active() {
                self.make_inactive(index);
            }
            self.set_pending(index, false);
        } else {
            self.withdraw_timeout(index);
        }
        Ok(was_armed)
    }

    /// Sets an event's timeout; restarts it from `now` if the event is pending. A pure timer that
    /// is left without one becomes initialised.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    pub fn set_timeout(
        &mut self,
        id: EventId,
        timeout: Option<Timeout>,
        now: Instant,
    ) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        self.events.slot_mut(index).timeout = PackedTimeout::pack(timeout);
        let head = *self.events.head(index);
        if !head.is_pending() {
            return Ok(());
        }
        match timeout {
            Some(timeout) => {
                self.withdraw_timeout(index);
                self.start_timeout(index, timeout, now);
            }
            None if head.kind == Kind::Timer => self.disable_at(index),
            None => {
                self.withdraw_timeout(index);
                self.timers.disarm(index);
            }
        }
        Ok(())
    }

    /// Sets what an event waits for on its handle. Of readiness that was reported and not handled
    /// yet, what is not waited for any more is forgotten.
    ///
    /// # Errors
    ///
    /// If the event does not exist, or watches no handle.
    #[inline]
    pub fn set_interest(&mut self, id: EventId, interest: Interest) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        if self.events.head(index).kind != Kind::Handle {
            return Err(EventError::NoHandle);
        }
        let slot = self.events.slot_mut(index);
        if slot.interest != interest {
            slot.interest = interest;
            let handle = slot.subject;
            self.handles.mark_dirty(handle);
            self.handles.note_edge_missed(handle);
            self.withdraw_readiness(index, interest);
        }
        Ok(())
    }

    /// Of an active event, forgets the readiness that it does not ask for any more. What the
    /// program itself activated it with stays.
    #[inline]
    fn withdraw_readiness(&mut self, index: u32, interest: Interest) {
        let active = self.events.head(index).is_active();
        let slot = self.events.slot_mut(index);
        if !active || slot.happened.user {
            return;
        }
        let told = slot.happened.readiness.told_to(interest);
        slot.happened.readiness = slot.happened.readiness & told;
        if slot.happened.is_nothing() {
            self.make_inactive(index);
        }
    }

    /// Sets an event's priority.
    ///
    /// # Errors
    ///
    /// If the event does not exist or is active, or the priority does not exist.
    pub fn set_priority(&mut self, id: EventId, priority: u8) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        if u16::from(priority) >= self.config.priorities {
            return Err(EventError::PriorityRange);
        }
        if self.events.head(index).is_active() {
            return Err(EventError::Active);
        }
        self.events.slot_mut(index).priority = priority;
        Ok(())
    }

    /// Makes an event active by the program's will, pending or not, as if `readiness` had been
    /// reported `count` times. Its handler runs in a coming turn; several activations before that
    /// are one call with their sum.
    ///
    /// # Errors
    ///
    /// If the event does not exist.
    pub fn activate_event(
        &mut self,
        id: EventId,
        readiness: Readiness,
        count: u32,
    ) -> Result<(), EventError> {
        let index = self.events.find(id).ok_or(EventError::Gone)?;
        self.make_active(index, |happened| {
            happened.readiness |= readiness;
            happened.user = true;
            happened.count = happened.count.saturating_add(count);
        });
        Ok(())
    }
}
