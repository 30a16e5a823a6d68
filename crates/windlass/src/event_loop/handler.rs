//! The event handler: the code called for one event.

use std::os::fd::BorrowedFd;

use windlass_core::{Disposition, EventId, Happened};

use crate::event_loop::context::Context;

/// Called when something happened to its event (the Reactor pattern's event handler). Every
/// closure of the right shape is one.
pub trait EventHandler<'l, S> {
    /// Handles what happened. Must not block.
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Disposition;

    /// The handle that it is for. Must be the same each time, and open as long as the handler
    /// lives: own it, or borrow it.
    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether its event survives a panic of it. Only for the loop's own.
    #[doc(hidden)]
    fn survives_panic(&self) -> bool {
        false
    }

    /// Whether it has something to handle that its handle will not report: asked when its event
    /// is enabled. Only for the loop's own.
    #[doc(hidden)]
    fn has_more(&self) -> bool {
        false
    }

    /// The id of a hook, which names no event. Only for the loop's own.
    #[doc(hidden)]
    fn hook_id(&self) -> Option<EventId> {
        None
    }
}

impl<'l, S, F> EventHandler<'l, S> for F
where
    F: FnMut(&mut S, &mut Context<'_, 'l, S>, Happened) -> Disposition,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Disposition {
        self(state, cx, happened)
    }
}

/// A handler as the engine carries it.
pub(super) type BoxedHandler<'l, S> = Box<dyn EventHandler<'l, S> + 'l>;
