//! I/O sources: closures over a descriptor that is ready.

use std::borrow::Cow;
use std::os::fd::{AsFd, BorrowedFd};

use windlass_core::{
    Accounting, Disposition, EventId, Happened, Interest, Lifetime, Timeout, Trigger,
};

use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterError;
use crate::event_loop::handler::EventHandler;
use crate::event_loop::reactor::Reactor;

/// How a handle is watched.
#[derive(Clone, Debug)]
pub struct IoOptions {
    /// What for (default: to read).
    pub interest: Interest,
    /// Level (the default) or edge.
    pub trigger: Trigger,
    /// Persistent (the default) or one-shot.
    pub lifetime: Lifetime,
    /// 0 (the default) is the most urgent.
    pub priority: u8,
    /// The handler is also called when nothing happened for this long.
    pub timeout: Option<Timeout>,
    /// Whether it keeps the loop running (the default) or is somebody's internal event.
    pub accounting: Accounting,
    /// A name for reports and dumps.
    pub label: Option<Cow<'static, str>>,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self {
            interest: Interest::READ,
            trigger: Trigger::Level,
            lifetime: Lifetime::Persistent,
            priority: 0,
            timeout: None,
            accounting: Accounting::Counted,
            label: None,
        }
    }
}

/// A source and the closure that handles it.
struct IoHandler<T, F> {
    source: T,
    handle: F,
}

impl<'l, S, T, F> EventHandler<'l, S> for IoHandler<T, F>
where
    T: AsFd,
    F: FnMut(&mut S, &mut Context<'_, 'l, S>, &T, Happened) -> Disposition,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Disposition {
        (self.handle)(state, cx, &self.source, happened)
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.as_fd())
    }
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// Calls `handle` whenever `source` is ready for what `options` say.
    ///
    /// The source is moved into the loop, and dropped when the event is removed; to keep it, hand
    /// in a reference (`&'l T`) or an `Rc<T>`. The handler gets it shared: standard sockets and
    /// pipes can be read and written through a shared reference. It should be non-blocking.
    ///
    /// # Errors
    ///
    /// If the engine or the back end refuses it; the error names the handle and the cause.
    #[track_caller]
    pub fn watch<T, F>(
        &mut self,
        source: T,
        options: IoOptions,
        handle: F,
    ) -> Result<EventId, RegisterError>
    where
        T: AsFd + 'l,
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, &T, Happened) -> Disposition + 'l,
    {
        let handler = Box::new(IoHandler { source, handle });
        self.register_handler(handler, options)
            .map_err(|error| error.map(drop))
    }

    /// Calls `handle` whenever `source` is readable (or at its end, or in error: a read finds out).
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    #[track_caller]
    pub fn on_readable<T, F>(&mut self, source: T, mut handle: F) -> Result<EventId, RegisterError>
    where
        T: AsFd + 'l,
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, &T) -> Disposition + 'l,
    {
        self.watch(source, IoOptions::default(), move |state, cx, source, _| {
            handle(state, cx, source)
        })
    }

    /// Calls `handle` whenever `source` is writable (or in error: a write finds out).
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    #[track_caller]
    pub fn on_writable<T, F>(&mut self, source: T, mut handle: F) -> Result<EventId, RegisterError>
    where
        T: AsFd + 'l,
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, &T) -> Disposition + 'l,
    {
        let options = IoOptions {
            interest: Interest::WRITE,
            ..IoOptions::default()
        };
        self.watch(source, options, move |state, cx, source, _| {
            handle(state, cx, source)
        })
    }
}
