//! The reactor: what a loop watches, and the calls that change it.

use std::borrow::Cow;
use std::fmt;
use std::os::fd::AsRawFd;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Accounting, Batch, Change, Counters, Disposition, Engine, EventDemultiplexer, EventError,
    EventId, EventSpec, Features, Happened, InsertError, Instant, Interest, Notify, Readiness,
    RunMode, Source, WatcherId, WatcherKind,
};
use windlass_sys::clock;
use windlass_sys::provided::BufferPools;

use crate::event_loop::completion::deliver;
use crate::event_loop::config::LoopConfig;
use crate::event_loop::context::Context;
use crate::event_loop::error::{OpenError, RegisterError, RegisterErrorKind};
use crate::event_loop::golden_rule::{GoldenRule, Origin, Origins, SlowHandler};
use crate::event_loop::handler::{BoxedHandler, EventHandler};
use crate::event_loop::io_source::IoOptions;
use crate::event_loop::lag::LagHistogram;
use crate::event_loop::remote::{Remote, WakeHandler, WakerState};
use crate::event_loop::signal::Signals;
use crate::event_loop::watchdog::Heartbeat;
use crate::proactor::{self, Fallback, Inbox, OpenFailure, Waiter};

/// What a loop watches, and the calls that change it. Reached through an
/// [`EventLoop`](super::EventLoop) before it runs, and through each handler's
/// [`Context`](super::Context).
pub struct Reactor<'l, S> {
    pub(super) engine: Engine<BoxedHandler<'l, S>>,
    pub(super) demultiplexer: Waiter,
    /// Why operations are not carried out by io_uring, if they are not.
    pub(super) fallback: Option<Fallback>,
    pub(super) inbox: Inbox,
    /// The pools that receives take buffers from.
    pub(super) pools: BufferPools,
    pub(super) batch: Batch,
    changes: Vec<Change>,
    /// The turn's time; read when someone asks.
    pub(super) now: Option<Instant>,
    /// Whether a run is under way: outside of one there is no turn whose time could be kept.
    in_run: bool,
    /// The event whose handler runs.
    pub(super) running: Option<EventId>,
    /// The hook that runs, unless it was removed meanwhile.
    pub(super) running_hook: Option<WatcherId>,
    hook_count: u32,
    pub(super) remote: Arc<Remote<'l, S>>,
    pub(super) wake_event: Option<EventId>,
    pub(super) mode: RunMode,
    /// Whether a post ran in this run: a pass of [`run_once`](super::EventLoop::run_once) is over
    /// then, though the wake-up channel itself does not count.
    pub(super) post_ran: bool,
    pub(super) wakers: Vec<(EventId, Arc<WakerState>)>,
    pub(super) signals: Signals,
    pub(super) origins: Origins,
    pub(super) golden_rule: GoldenRule,
    pub(super) heartbeat: Option<Arc<Heartbeat>>,
    pub(super) lag: LagHistogram,
    pub(super) config: LoopConfig,
}

impl<'l, S: 'l> Reactor<'l, S> {
    pub(super) fn open(config: LoopConfig) -> Result<Self, OpenError> {
        let (demultiplexer, fallback) =
            proactor::open(&config.backend, &config.proactor).map_err(|failure| match failure {
                OpenFailure::Backend(error) => OpenError::Backend(error),
                OpenFailure::Driver(error) => OpenError::Driver(error),
            })?;
        let remote = Arc::new(Remote::open().map_err(OpenError::WakeUp)?);
        let mut reactor = Self {
            engine: Engine::new(config.engine),
            demultiplexer,
            fallback,
            inbox: Inbox::new(),
            pools: BufferPools::new(),
            batch: Batch::new(),
            changes: Vec::new(),
            now: None,
            in_run: false,
            running: None,
            running_hook: None,
            hook_count: 0,
            remote: Arc::clone(&remote),
            wake_event: None,
            mode: RunMode::default(),
            post_ran: false,
            wakers: Vec::new(),
            signals: Signals::default(),
            origins: Origins::default(),
            golden_rule: GoldenRule::new(config.slow_handler_limit, config.handler_times),
            heartbeat: None,
            lag: LagHistogram::default(),
            config,
        };
        // Watched for edges it need not be emptied. To report once, it must be: arming it again
        // while it is readable is an edge.
        let edge = reactor.demultiplexer.features().edge_triggered
            && reactor.config.engine.notify == Notify::Always;
        let handler = Box::new(WakeHandler::new(remote, edge));
        let options = IoOptions {
            trigger: WakeHandler::<'l, S>::trigger(edge),
            accounting: Accounting::Internal,
            label: Some("wake-up channel and posts".into()),
            ..IoOptions::default()
        };
        let event = reactor
            .register_handler(handler, options)
            .map_err(|error| OpenError::WakeUp(error.into()))?;
        reactor.wake_event = Some(event);
        Ok(reactor)
    }

    /// Registers a handler for the handle that it has ([`get_handle`](super::EventHandler)), and
    /// enables it (the Reactor pattern's `register_handler`).
    ///
    /// # Errors
    ///
    /// If it has no handle, or the engine or the back end refuses it; the handler comes back.
    #[expect(
        clippy::missing_panics_doc,
        reason = "an event that was just inserted has its payload"
    )]
    #[track_caller]
    pub fn register_handler(
        &mut self,
        handler: BoxedHandler<'l, S>,
        options: IoOptions,
    ) -> Result<EventId, RegisterError<BoxedHandler<'l, S>>> {
        let place = Location::caller();
        let Some(raw) = handler.get_handle().map(|fd| fd.as_raw_fd()) else {
            return Err(RegisterError::new(RegisterErrorKind::NoHandle, handler));
        };
        let IoOptions {
            interest,
            trigger,
            lifetime,
            priority,
            timeout,
            accounting,
            ref label,
        } = options;
        let source = Source::Handle {
            raw,
            interest,
            trigger,
        };
        let spec = EventSpec {
            lifetime,
            priority,
            timeout,
            accounting,
            ..EventSpec::new(source)
        };
        let now = if timeout.is_some() {
            self.fresh_now()
        } else {
            Instant::ZERO
        };
        let event = self.insert(
            spec,
            handler,
            Origin {
                label: label.clone(),
                place,
            },
        )?;
        // It exists, as it was just inserted.
        let _ = self.engine.enable(event, now);
        let Err(source) = self.apply_changes(Some(event)) else {
            return Ok(event);
        };
        let rejected = self.engine.remove(event).ok().flatten();
        // Takes the note of the registration that was never made.
        let _ = self.apply_changes(None);
        let kind = RegisterErrorKind::Demultiplexer {
            backend: self.demultiplexer.name(),
            handle: raw,
            source,
        };
        Err(RegisterError::new(
            kind,
            rejected.expect("an event that is not in flight has its payload"),
        ))
    }

    /// Removes an event (the Reactor pattern's `remove_handler`); its handler will not be called
    /// any more and is dropped, with the descriptor that it owns: at once, or when it returns if
    /// it is running. Answers whether there was such an event. The loop's own events, which
    /// [`events`](Self::events) lists as internal, can't be removed.
    pub fn remove(&mut self, event: EventId) -> bool {
        !self.is_own(event) && self.remove_any(event)
    }

    pub(super) fn remove_any(&mut self, event: EventId) -> bool {
        let Ok(handler) = self.engine.remove(event) else {
            return false;
        };
        self.apply_quietly();
        self.sync_signals();
        self.forget_operations(event);
        // Only now: the kernel has forgotten the descriptor.
        drop(handler);
        true
    }

    /// Stops watching for an event; [`enable`](Self::enable) goes on. Several such changes before
    /// the next wait cost the system calls of their sum.
    ///
    /// # Errors
    ///
    /// If there is no such event, or it is the loop's own.
    pub fn disable(&mut self, event: EventId) -> Result<(), EventError> {
        self.check_not_own(event)?;
        self.engine.disable(event)?;
        self.sync_signals();
        Ok(())
    }

    /// Watches for an event that was disabled or has run once, and starts its timeout.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    pub fn enable(&mut self, event: EventId) -> Result<(), EventError> {
        let now = self.fresh_now();
        self.engine.enable(event, now)?;
        self.sync_signals();
        if self
            .engine
            .payload(event)
            .is_some_and(|handler| handler.has_more())
        {
            self.engine.activate_event(event, Readiness::NONE, 1)?;
        }
        Ok(())
    }

    /// Sets what an event waits for on its handle; takes effect before the next wait.
    ///
    /// # Errors
    ///
    /// If there is no such event, or it is the loop's own, or it watches no handle.
    pub fn set_interest(&mut self, event: EventId, interest: Interest) -> Result<(), EventError> {
        self.check_not_own(event)?;
        self.engine.set_interest(event, interest)
    }

    /// Sets an event's priority.
    ///
    /// # Errors
    ///
    /// If there is no such event or priority, or the event is active.
    pub fn set_priority(&mut self, event: EventId, priority: u8) -> Result<(), EventError> {
        self.engine.set_priority(event, priority)
    }

    /// Names an event in reports and dumps.
    pub fn set_label(&mut self, event: EventId, label: impl Into<Cow<'static, str>>) {
        if self.engine.state(event).is_some() {
            self.origins.set_label(event, label.into());
        }
    }

    /// Makes an event's handler run, `count` more times merged into one call, whatever it waits for.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    pub fn activate(&mut self, event: EventId, count: u32) -> Result<(), EventError> {
        self.engine.activate_event(event, Readiness::NONE, count)
    }

    /// Runs `hook` before each wait. Its [`Context::event`](super::Context::event) names no event.
    #[track_caller]
    pub fn on_prepare<F>(&mut self, hook: F) -> WatcherId
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        self.insert_hook(WatcherKind::Prepare, hook, Location::caller())
    }

    /// Runs `hook` after each wait, before the handlers. Its
    /// [`Context::event`](super::Context::event) names no event.
    #[track_caller]
    pub fn on_check<F>(&mut self, hook: F) -> WatcherId
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        self.insert_hook(WatcherKind::Check, hook, Location::caller())
    }

    fn insert_hook<F>(
        &mut self,
        kind: WatcherKind,
        handle: F,
        place: &'static Location<'static>,
    ) -> WatcherId
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        self.hook_count = self.hook_count.wrapping_add(1);
        let id = hook_id(self.hook_count);
        self.origins.set_hook(id, Origin { label: None, place });
        self.engine
            .insert_watcher(kind, Box::new(Hook { id, handle }))
    }

    /// Removes a hook; answers whether there was one. It runs no more and is dropped: at once, or
    /// when it returns if it is running.
    pub fn remove_hook(&mut self, hook: WatcherId) -> bool {
        let Some(handler) = self.engine.remove_watcher(hook) else {
            return self
                .running_hook
                .take_if(|running| *running == hook)
                .is_some();
        };
        self.forget_hook(&handler);
        true
    }

    pub(super) fn forget_hook(&self, handler: &BoxedHandler<'l, S>) {
        if let Some(id) = handler.hook_id() {
            self.origins.remove_hook(id);
        }
    }

    /// Ends the run when the active handlers of this turn have run. If no run is under way, ends
    /// the next one at once.
    pub fn stop(&mut self) {
        self.engine.exit_loop();
    }

    /// Ends the run when the running handler returns; what is active then runs in the next run.
    pub fn break_loop(&mut self) {
        self.engine.break_loop();
    }

    /// Ends the run, as [`stop`](Self::stop) does, after `delay`.
    pub fn stop_after(&mut self, delay: Duration) {
        let deadline = self.fresh_now() + delay;
        self.engine.exit_loop_at(deadline);
    }

    /// Ends this turn when the running handler returns: what happened meanwhile is looked at, and
    /// the most urgent runs first.
    pub fn continue_loop(&mut self) {
        self.engine.continue_loop();
    }

    /// Keeps the loop running when no event is left, until [`release`](Self::release).
    pub fn hold(&mut self) {
        self.engine.hold();
    }

    /// Takes a [`hold`](Self::hold) back.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn release(&mut self) {
        self.engine.release();
    }

    /// The time of this turn: read at most once in each, so possibly a little old. What is timed
    /// from it may come early by the age of it; see [`fresh_now`](Self::fresh_now), which it is
    /// outside of a run.
    #[inline]
    pub fn now(&mut self) -> Instant {
        match self.now {
            Some(now) => now,
            None => self.fresh_now(),
        }
    }

    /// The time now. Also sets the turn's.
    #[inline]
    pub fn fresh_now(&mut self) -> Instant {
        let now = Instant::from_nanos(clock::monotonic_ns());
        self.now = self.in_run.then_some(now);
        now
    }

    pub(super) fn begin_run(&mut self, mode: RunMode) {
        self.mode = mode;
        self.post_ran = false;
        self.now = None;
        self.in_run = true;
        self.engine.begin_run(mode);
    }

    pub(super) fn end_run(&mut self) {
        self.now = None;
        self.in_run = false;
    }

    /// The name of the back end in use.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.demultiplexer.name()
    }

    /// What the back end in use can do.
    #[must_use]
    pub fn features(&self) -> Features {
        self.demultiplexer.features()
    }

    /// The engine's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    /// How late handlers ran.
    #[must_use]
    pub fn lag(&self) -> &LagHistogram {
        &self.lag
    }

    /// How long handlers took, if that is measured
    /// ([`LoopConfig::handler_times`](super::LoopConfig::handler_times)).
    #[must_use]
    pub fn handler_times(&self) -> Option<&LagHistogram> {
        self.golden_rule.times.as_ref()
    }

    /// How often a handler ran longer than the limit
    /// ([`slow_handler_limit`](super::LoopConfig::slow_handler_limit)).
    #[must_use]
    pub fn slow_handler_count(&self) -> u64 {
        self.golden_rule.overruns
    }

    /// The last 32 handlers that did, oldest first.
    pub fn slow_handlers(&self) -> impl Iterator<Item = &SlowHandler> {
        self.golden_rule.recent.iter()
    }

    /// Makes the loop this process's own after fork(2), in the child: a kernel set and channels of
    /// its own, in which all that was registered is registered again. The parent is not disturbed.
    ///
    /// Threads do not survive a fork: posters that live on in the child work, worker pools and
    /// watchdogs do not. As with any lock, no other thread may be posting at the moment of the
    /// fork.
    ///
    /// # Errors
    ///
    /// If descriptors or memory ran out; then the loop must not be run.
    pub fn reinit(&mut self) -> std::io::Result<()> {
        let completions = self.demultiplexer.reinit_with(&self.pools)?;
        for completion in completions {
            deliver(&mut self.engine, &mut self.inbox, completion);
        }
        self.remote.reinit()?;
        self.reinit_signals()?;
        self.engine.mark_all_unapplied();
        self.apply_quietly();
        // What was posted before the fork is still there, its wake-up is not.
        self.remote.wake();
        Ok(())
    }

    /// Whether the loop itself needs the event to work.
    pub(super) fn is_own(&self, event: EventId) -> bool {
        Some(event) == self.wake_event || Some(event) == self.signals.event
    }

    /// Nobody is given the ids of the loop's own events to change them.
    fn check_not_own(&self, event: EventId) -> Result<(), EventError> {
        if self.is_own(event) {
            return Err(EventError::Gone);
        }
        Ok(())
    }

    /// Inserts an event, and remembers where it comes from.
    pub(super) fn insert(
        &mut self,
        spec: EventSpec,
        handler: BoxedHandler<'l, S>,
        origin: Origin,
    ) -> Result<EventId, RegisterError<BoxedHandler<'l, S>>> {
        let event =
            self.engine
                .insert(spec, handler)
                .map_err(|InsertError { kind, payload }| {
                    RegisterError::new(RegisterErrorKind::Engine(kind), payload)
                })?;
        self.origins.set(event, origin, self.running);
        Ok(event)
    }

    /// Tells the demultiplexer what changed. The error is that of `event`'s handle; the events of
    /// other handles that fail become active with an error.
    pub(super) fn apply_changes(&mut self, event: Option<EventId>) -> std::io::Result<()> {
        if !self.engine.has_changes() {
            return Ok(());
        }
        let mine = event.and_then(|event| self.engine.handle_of(event));
        let mut changes = std::mem::take(&mut self.changes);
        self.engine.take_changes(&mut changes);
        let mut result = Ok(());
        for change in changes.drain(..) {
            if let Err(error) = self.demultiplexer.apply(&change) {
                if Some(change.handle) == mine {
                    result = Err(error);
                } else {
                    self.engine.registration_failed(change.handle);
                }
            }
        }
        self.changes = changes;
        result
    }

    /// Tells the demultiplexer what changed; events of handles that fail become active.
    #[inline]
    pub(super) fn apply_quietly(&mut self) {
        if self.engine.has_changes() {
            // Without an event of its own there is no error to return.
            let _ = self.apply_changes(None);
        }
    }
}

/// A closure that runs in each turn.
struct Hook<F> {
    id: EventId,
    handle: F,
}

impl<'l, S, F> EventHandler<'l, S> for Hook<F>
where
    F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        _happened: Happened,
    ) -> Disposition {
        (self.handle)(state, cx)
    }

    fn hook_id(&self) -> Option<EventId> {
        Some(self.id)
    }
}

/// An id for the `number`th hook: of a slot that no event has.
fn hook_id(number: u32) -> EventId {
    EventId::from_bits(u64::from(number) << 32 | u64::from(u32::MAX))
}

impl<S> Drop for Reactor<'_, S> {
    fn drop(&mut self) {
        self.remote.close();
    }
}

impl<S> fmt::Debug for Reactor<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("backend", &self.demultiplexer.name())
            .field("counters", self.engine.counters())
            .finish_non_exhaustive()
    }
}
