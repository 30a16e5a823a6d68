//! Completions: operations that are started in a loop, and the events that they come back as.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Accounting, Disposition, Engine, EventId, EventSpec, Happened, Lifetime, Readiness, Source,
    Timeout,
};
use windlass_sys::epoll::Epoll;

use crate::event_loop::context::Context;
use crate::event_loop::error::{RegisterError, RegisterErrorKind};
use crate::event_loop::golden_rule::Origin;
use crate::event_loop::handler::{BoxedHandler, EventHandler};
use crate::event_loop::io_source::IoOptions;
use crate::event_loop::reactor::Reactor;
use crate::proactor::{
    CancelOutcome, Completion, Delivered, Driver, Fallback, Inbox, Notice, OpId, Operation, PoolId,
};

/// An event that completions are addressed to.
#[derive(Clone, Debug, Default)]
pub struct CompletionOptions {
    /// 0 (the default) is the most urgent.
    pub priority: u8,
    /// The handler is also called when nothing happened for this long.
    pub timeout: Option<Timeout>,
    /// A name for reports and dumps.
    pub label: Option<Cow<'static, str>>,
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// Starts `operation`, and calls `done` with each of its completions, in turns to come.
    ///
    /// It is submitted with the loop's next wait. What is wrong with it is told by its completion.
    /// The loop runs on until its last one. `done` is an event's handler
    /// ([`event_of`](Self::event_of)), with what that means: a panic follows the loop's policy, and
    /// takes the operation with it, as [removing](Self::remove) the event does: it is cancelled, and
    /// what it brings is dropped.
    ///
    /// Costs an event and a box; [`start_for`](Self::start_for) costs neither.
    ///
    /// # Errors
    ///
    /// If the engine is full, or the emulated driver can't be opened (`EMFILE`); the operation comes
    /// back.
    #[track_caller]
    pub fn start<F>(
        &mut self,
        operation: Operation,
        mut done: F,
    ) -> Result<OpId, RegisterError<Operation>>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, Completion) + 'l,
    {
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| {
                let event = cx.event();
                // One a call, so that a panic takes no other with it.
                let Some(completion) = cx.inbox.take(event) else {
                    return Disposition::Keep;
                };
                let is_last = !completion.has_more();
                if cx.inbox.has_completion(event) {
                    // It exists: its handler runs.
                    let _ = cx.activate(event, 1);
                }
                done(state, cx, completion);
                if is_last {
                    Disposition::Remove
                } else {
                    Disposition::Keep
                }
            },
        );
        let event = match self.insert_user(handler, Lifetime::Persistent, Location::caller()) {
            Ok(event) => event,
            Err(error) => return Err(error.map(|()| operation)),
        };
        self.start_for(event, operation).inspect_err(|_| {
            self.remove(event);
        })
    }

    /// Starts `operation`; each of its completions has the handler of `event` run, which takes it
    /// with [`next_completion`](Self::next_completion). An event may have many operations.
    /// [Removing](Self::remove) it cancels them; what they bring then is dropped.
    ///
    /// No allocation, but when more operations are in flight than ever before.
    ///
    /// # Errors
    ///
    /// If there is no such event ([`NoEvent`](RegisterErrorKind::NoEvent)), or the emulated driver can't
    /// be opened (`EMFILE`); the operation comes back.
    #[inline]
    pub fn start_for(
        &mut self,
        event: EventId,
        operation: Operation,
    ) -> Result<OpId, RegisterError<Operation>> {
        self.start_with(event, operation, Notice::Always)
    }

    /// As [`start_for`](Self::start_for), but of a completion that only says that all went well
    /// nobody is told: the operation is dropped, and [`event_of`](Self::event_of) knows it no
    /// longer. The buffer of such a send waits in the loop for [`take_buffer`](Self::take_buffer),
    /// unless it is large (2 KiB) or there are many. That is of sends and writes of one payload,
    /// shutdowns, closes and syncs; of one that failed or moved less than its payload, and of all
    /// other operations, the handler is told as usual.
    ///
    /// For answers of a server, which has nothing to do when they have left. With io_uring such a
    /// [send](Operation::Send) costs no completion, and does not end a wait: the loop learns that it
    /// went well when something else wakes it, if the socket took all at once. Keep them small: what
    /// does not fit into the socket's buffer comes back as a short send. Whoever waits for the
    /// completion after all says so with [`wake_for`](Self::wake_for).
    ///
    /// # Errors
    ///
    /// As [`start_for`](Self::start_for).
    #[inline]
    pub fn start_quietly_for(
        &mut self,
        event: EventId,
        operation: Operation,
    ) -> Result<OpId, RegisterError<Operation>> {
        self.start_with(event, operation, Notice::OfFailure)
    }

    /// Has the completion of an operation that was started
    /// [quietly](Self::start_quietly_for) make its event's handler run after all: it is waited for
    /// now. Answers whether the operation is in flight; if not, it went well, or its completion is
    /// there to be taken or was.
    pub fn wake_for(&mut self, operation: OpId) -> bool {
        self.demultiplexer.hurry(operation);
        self.inbox.wake_for(operation)
    }

    /// An empty buffer for the next send: one of those that came back from
    /// [quiet](Self::start_quietly_for) ones, with its capacity, if there is any.
    #[inline]
    #[must_use]
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.inbox.take_buffer()
    }

    #[inline]
    fn start_with(
        &mut self,
        event: EventId,
        operation: Operation,
        notice: Notice,
    ) -> Result<OpId, RegisterError<Operation>> {
        if self.is_own(event) || self.engine.state(event).is_none() {
            return Err(RegisterError::new(RegisterErrorKind::NoEvent, operation));
        }
        if let Err(error) = self.prepare_driver() {
            let kind = RegisterErrorKind::Driver(error);
            return Err(RegisterError::new(kind, operation));
        }
        let id = match notice {
            Notice::Always => self.demultiplexer.start(operation),
            Notice::OfFailure => self.demultiplexer.start_quietly(operation),
        };
        self.inbox.note_start(id, event, notice);
        self.engine.hold();
        Ok(id)
    }

    /// Takes the next completion of an event's operations, in the order in which they came. A
    /// handler need not take all: what it leaves stays, but does not make it run again.
    #[inline]
    pub fn next_completion(&mut self, event: EventId) -> Option<Completion> {
        self.inbox.take(event)
    }

    /// Asks for an operation to be cancelled. In each case its last completion comes exactly once,
    /// unless it did already; see [`CancelOutcome`], and the operations themselves for what it means
    /// for what they had begun.
    pub fn cancel(&mut self, operation: OpId) -> CancelOutcome {
        self.demultiplexer.cancel(operation)
    }

    /// The event whose handler is called with an operation's completions, while it is in flight.
    #[must_use]
    pub fn event_of(&self, operation: OpId) -> Option<EventId> {
        self.inbox.event_of(operation)
    }

    /// Makes an event that completions can be [addressed](Self::start_for) to. It watches nothing;
    /// it can be armed, activated and removed as others. By itself it does not keep the loop
    /// running, unless it is armed or has a timeout.
    ///
    /// # Errors
    ///
    /// If the engine is full or there is no such priority; the handler comes back.
    #[track_caller]
    pub fn completion_event(
        &mut self,
        handler: Box<dyn EventHandler<'l, S> + 'l>,
        options: CompletionOptions,
    ) -> Result<EventId, RegisterError<Box<dyn EventHandler<'l, S> + 'l>>> {
        let CompletionOptions {
            priority,
            timeout,
            label,
        } = options;
        let spec = EventSpec {
            priority,
            timeout,
            ..EventSpec::new(Source::User)
        };
        let place = Location::caller();
        let event = self.insert(spec, handler, Origin { label, place })?;
        if timeout.is_some() {
            let now = self.fresh_now();
            // It exists, as it was just inserted.
            let _ = self.engine.enable(event, now);
        }
        Ok(event)
    }

    /// Makes a pool of `count` buffers (1 to 32768, rounded up to a power of two) of `size_bytes`
    /// each, for [`Operation::ReceiveMultishot`]. It lasts as long as the loop.
    ///
    /// # Errors
    ///
    /// `EINVAL` (a count or size of zero or too large; the kernel has no buffer rings: before 5.19),
    /// `ENOMEM`.
    pub fn provide_buffers(&mut self, count: u16, size_bytes: u32) -> io::Result<PoolId> {
        self.demultiplexer
            .add_pool(&mut self.pools, count, size_bytes)
    }

    /// Who carries out operations.
    #[must_use]
    pub fn proactor_driver(&self) -> Driver {
        self.demultiplexer.driver()
    }

    /// Why that is not io_uring, if it is not.
    #[must_use]
    pub fn proactor_fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    /// Has the driver's work go wrong: of `one_in` steps one, until `count` have, the same for each
    /// `seed`. Ring: submissions that fail for now. Emulated: calls that are interrupted, would
    /// block or move less, reports that come late, twice or in vain. For tests of drivers.
    ///
    /// # Errors
    ///
    /// If the emulated driver can't be opened.
    #[doc(hidden)]
    pub fn inject_faults(&mut self, seed: u64, one_in: u32, count: u64) -> io::Result<()> {
        self.prepare_driver()?;
        self.demultiplexer.inject(seed, one_in, count);
        Ok(())
    }

    /// Has a ring find a completion of an operation that is complete, once more. For tests.
    #[doc(hidden)]
    pub fn inject_stray_completion(&mut self, operation: OpId) {
        self.demultiplexer.inject_stray(&self.pools, operation);
    }

    /// Waits for readiness and for completions; activates the events of the latter.
    #[inline]
    pub(super) fn wait_for_all(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let Self {
            demultiplexer,
            inbox,
            pools,
            engine,
            batch,
            ..
        } = self;
        demultiplexer.wait(pools, batch, timeout, |completion| {
            deliver(engine, inbox, completion);
        })
    }

    /// An event is gone: nobody waits for its operations any more.
    #[inline]
    pub(super) fn forget_operations(&mut self, event: EventId) {
        if self.inbox.concerns(event) {
            self.cancel_operations(event);
        }
    }

    #[cold]
    fn cancel_operations(&mut self, event: EventId) {
        let (completions, operations) = self.inbox.forget(event);
        for operation in operations {
            self.demultiplexer.cancel(operation);
        }
        drop(completions);
    }

    /// Sees to it that there is a driver, and that the loop wakes for it.
    #[inline]
    fn prepare_driver(&mut self) -> io::Result<()> {
        if self.demultiplexer.driver() == Driver::Emulated
            && self.demultiplexer.emulated().is_none()
        {
            self.open_emulated()?;
        }
        Ok(())
    }

    #[cold]
    fn open_emulated(&mut self) -> io::Result<()> {
        self.demultiplexer.prepare_driver()?;
        let Some(driver) = self.demultiplexer.emulated() else {
            return Ok(());
        };
        let handler: BoxedHandler<'l, S> = Box::new(EmulatedHandler(driver.epoll()));
        let options = IoOptions {
            accounting: Accounting::Internal,
            label: Some("emulated driver of operations".into()),
            ..IoOptions::default()
        };
        let event = self.register_handler(handler, options)?;
        if let Some(handle) = self.engine.handle_of(event) {
            self.demultiplexer.set_watched_as(handle);
        }
        Ok(())
    }
}

/// Has a completion's event run, which takes it.
#[inline]
pub(super) fn deliver<P>(engine: &mut Engine<P>, inbox: &mut Inbox, completion: Completion) {
    if !completion.has_more() {
        engine.release();
    }
    match inbox.deliver(completion) {
        Delivered::To(event) => {
            // It exists: when an event goes, its operations lose it.
            let _ = engine.activate_event(event, Readiness::NONE, 1);
        }
        Delivered::Quietly => {}
        Delivered::Unwanted(completion) => drop(completion),
    }
}

/// Has the loop wake when the emulated driver can go on; the wait itself lets it.
struct EmulatedHandler(Arc<Epoll>);

impl<'l, S: 'l> EventHandler<'l, S> for EmulatedHandler {
    fn handle_event(
        &mut self,
        _state: &mut S,
        _cx: &mut Context<'_, 'l, S>,
        _happened: Happened,
    ) -> Disposition {
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn survives_panic(&self) -> bool {
        true
    }
}
