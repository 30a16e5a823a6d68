//! The context of a call: through it a handler reaches the loop and knows itself.

use std::fmt;
use std::ops::{Deref, DerefMut};

use windlass_core::EventId;

use crate::event_loop::reactor::Reactor;

/// What a handler is called with, beside the program's state. Derefs to the [`Reactor`].
pub struct Context<'c, 'l, S> {
    reactor: &'c mut Reactor<'l, S>,
    event: EventId,
}

impl<'c, 'l, S> Context<'c, 'l, S> {
    pub(super) fn new(reactor: &'c mut Reactor<'l, S>, event: EventId) -> Self {
        Self { reactor, event }
    }

    /// The event whose handler runs.
    #[must_use]
    pub fn event(&self) -> EventId {
        self.event
    }
}

impl<'l, S> Deref for Context<'_, 'l, S> {
    type Target = Reactor<'l, S>;

    fn deref(&self) -> &Self::Target {
        self.reactor
    }
}

impl<S> DerefMut for Context<'_, '_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.reactor
    }
}

impl<S> fmt::Debug for Context<'_, '_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}
