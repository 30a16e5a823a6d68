//! Handlers of a set, and what they are called with.

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use windlass_core::{Disposition, EventId, Happened, Instant};

use super::handle_set::HandleSet;

/// Called when something happened to its event, by any thread of the set and by one at a time.
/// `S` is what the thread that calls it has for itself. Every closure of the right shape is one.
pub trait SetHandler<S>: Send {
    /// Handles what happened. It may block: then one thread less handles other events meanwhile.
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &SetContext<'_, S>,
        happened: Happened,
    ) -> Disposition;

    /// The handle that it is for. Must be the same each time, and open as long as the handler
    /// lives.
    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<S, F> SetHandler<S> for F
where
    F: FnMut(&mut S, &SetContext<'_, S>, Happened) -> Disposition + Send,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &SetContext<'_, S>,
        happened: Happened,
    ) -> Disposition {
        self(state, cx, happened)
    }
}

/// A handler as the engine carries it.
pub(super) type BoxedHandler<S> = Box<dyn SetHandler<S>>;

/// A source and the closure that handles it.
pub(super) struct Watch<T, F> {
    pub(super) source: T,
    pub(super) handle: F,
}

impl<S, T, F> SetHandler<S> for Watch<T, F>
where
    T: AsFd + Send,
    F: FnMut(&mut S, &SetContext<'_, S>, &T, Happened) -> Disposition + Send,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &SetContext<'_, S>,
        happened: Happened,
    ) -> Disposition {
        (self.handle)(state, cx, &self.source, happened)
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.as_fd())
    }
}

/// What a handler is called with, beside its thread's state. Derefs to the [`HandleSet`].
pub struct SetContext<'a, S> {
    pub(super) handles: &'a HandleSet<S>,
    pub(super) event: EventId,
    pub(super) now: Instant,
}

impl<S> SetContext<'_, S> {
    /// The event whose handler runs.
    #[must_use]
    pub fn event(&self) -> EventId {
        self.event
    }

    /// When the wait ended that brought this call: the same for all that it brought.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }
}

impl<S> Deref for SetContext<'_, S> {
    type Target = HandleSet<S>;

    fn deref(&self) -> &HandleSet<S> {
        self.handles
    }
}

impl<S> fmt::Debug for SetContext<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetContext")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}
