//! Changes from outside of the threads' turns: registrations, activations, timers.

use std::io;

use windlass_core::{Engine, EventError, EventId, EventSpec, HandleId, Instant};

use super::{Kernel, Poller, Refused, RefusedKind, Shared};

impl<P, D: Poller> Kernel<P, D> {
    /// Changes the engine, in any thread, and wakes whoever must know.
    pub(in crate::thread_set) fn change<R>(
        &self,
        change: impl FnOnce(&mut Engine<P>, Instant) -> R,
    ) -> R {
        let now = self.poller.now();
        let mut shared = self.lock();
        let result = change(&mut shared.engine, now);
        self.apply(&mut shared);
        let wake = shared.wakes(&self.poller, self.roles);
        self.release(shared, wake);
        result
    }

    /// Adds an event, enables it, and arms it if it has a deadline.
    pub(in crate::thread_set) fn register(
        &self,
        spec: EventSpec,
        payload: P,
        deadline: Option<Instant>,
    ) -> Result<EventId, Refused<P>> {
        let now = self.poller.now();
        let mut shared = self.lock();
        let result = self.register_locked(&mut shared, spec, payload, now);
        if let (Ok(event), Some(deadline)) = (&result, deadline) {
            // It exists.
            let _ = shared.engine.arm(*event, deadline);
        }
        let wake = shared.wakes(&self.poller, self.roles);
        self.release(shared, wake);
        result
    }

    fn register_locked(
        &self,
        shared: &mut Shared<P, D>,
        spec: EventSpec,
        payload: P,
        now: Instant,
    ) -> Result<EventId, Refused<P>> {
        let event = match shared.engine.insert(spec, payload) {
            Ok(event) => event,
            Err(error) => {
                return Err(Refused {
                    kind: RefusedKind::Engine(error.kind),
                    payload: Some(error.payload),
                });
            }
        };
        // It exists.
        let _ = shared.engine.enable(event, now);
        let handle = shared.engine.handle_of(event);
        let Some(error) = self.apply_and_watch(shared, handle) else {
            return Ok(event);
        };
        let payload = shared.engine.remove(event).ok().flatten();
        self.apply(shared);
        Err(Refused {
            kind: RefusedKind::Demultiplexer(error),
            payload,
        })
    }

    /// Removes an event. Its payload is dropped: now, or when its handler is back, or when the
    /// leader has forgotten its handle. Answers whether its handler does not run, and will not.
    pub(in crate::thread_set) fn remove(&self, event: EventId) -> Result<bool, EventError> {
        let mut shared = self.lock();
        let removed = shared.engine.remove(event);
        let removed = removed.map(|payload| {
            let is_idle = payload.is_some();
            shared.released.extend(payload);
            is_idle
        });
        self.apply(&mut shared);
        let wake = shared.wakes(&self.poller, self.roles);
        self.release(shared, wake);
        removed
    }

    /// Tells the demultiplexer, if that is possible now.
    #[inline]
    pub(super) fn apply(&self, shared: &mut Shared<P, D>) {
        if shared.engine.has_changes() {
            self.apply_and_watch(shared, None);
        }
    }

    /// The same; answers the error of `watched`, of which the engine does not learn.
    fn apply_and_watch(
        &self,
        shared: &mut Shared<P, D>,
        watched: Option<HandleId>,
    ) -> Option<io::Error> {
        if !self.poller.registers_beside() && shared.leadership.is_none() {
            // The one that waits does it, and is woken.
            return None;
        }
        let mut refused = None;
        let mut changes = std::mem::take(&mut shared.changes);
        shared.engine.take_changes(&mut changes);
        for change in changes.drain(..) {
            let waiter = shared.leadership.as_mut().map(|lead| &mut lead.waiter);
            match self.poller.apply(&mut shared.registrar, waiter, &change) {
                Ok(()) => {}
                Err(error) if watched == Some(change.handle) => refused = Some(error),
                Err(_) => shared.engine.registration_failed(change.handle),
            }
        }
        shared.changes = changes;
        if self.poller.is_armed(&shared.registrar) && shared.ring_leader() {
            // What is always ready does not end a wait that is under way.
            self.poller.wake();
        }
        refused
    }
}
