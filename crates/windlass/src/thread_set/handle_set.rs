//! The handle set: what the threads wait for, changed from any thread and any handler.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use windlass_core::{
    Disposition, EventError, EventId, EventSpec, Happened, Instant, Interest, Lifetime, Readiness,
    Source, State, Timeout, Trigger,
};

use super::SetKernel;
use super::handler::{BoxedHandler, SetContext, SetHandler, Watch};
use super::kernel::{Poller, Refused, RefusedKind, ThreadSetCounters};
use crate::demultiplexer::Backend;
use crate::event_loop::{RegisterError, RegisterErrorKind};

/// The handles that a [`ThreadSet`](super::ThreadSet) waits for, with timers and events of the
/// program's own. Any thread may change it, and any handler, at any time; clones are the same set.
///
/// A removal does not wait: a handler that runs in another thread goes on to its end, and is not
/// called again.
pub struct HandleSet<S> {
    kernel: Arc<SetKernel<S>>,
}

/// A [`HandleSet`] as what it holds may hold it: it does not keep the set.
pub struct WeakHandleSet<S> {
    kernel: Weak<SetKernel<S>>,
}

/// A handler that was refused, unless another thread runs it already.
pub type RejectedHandler<S> = Option<Box<dyn SetHandler<S>>>;

/// How a handle is watched.
#[derive(Clone, Copy, Debug)]
pub struct HandleOptions {
    /// What for (default: to read).
    pub interest: Interest,
    /// Level (the default): it is armed again when its handler has settled. Edge: no call arms it,
    /// and what comes while the handler runs has it called again.
    pub trigger: Trigger,
    /// The handler is also called when nothing happened for this long (default: never).
    pub timeout: Option<Duration>,
    /// The handler is called then, once, if it is not [armed](HandleSet::arm_at) anew before
    /// (default: never).
    pub deadline: Option<Instant>,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self {
            interest: Interest::READ,
            trigger: Trigger::Level,
            timeout: None,
            deadline: None,
        }
    }
}

impl<S: 'static> HandleSet<S> {
    pub(super) fn new(kernel: Arc<SetKernel<S>>) -> Self {
        Self { kernel }
    }

    /// Watches the handle of `handler`.
    ///
    /// # Errors
    ///
    /// [`NoHandle`](RegisterErrorKind::NoHandle), or the system's: not a descriptor, out of memory,
    /// out of watches. The handler comes back. (With poll and select, if a thread waits, it is not
    /// known yet whether the handle is good; then the handler is told of an error.)
    pub fn register_handle(
        &self,
        handler: Box<dyn SetHandler<S>>,
        options: HandleOptions,
    ) -> Result<EventId, RegisterError<RejectedHandler<S>>> {
        let Some(raw) = handler.get_handle().map(|fd| fd.as_raw_fd()) else {
            return Err(RegisterError {
                kind: RegisterErrorKind::NoHandle,
                rejected: Some(handler),
            });
        };
        let source = Source::Handle {
            raw,
            interest: options.interest,
            trigger: options.trigger,
        };
        let spec = EventSpec {
            timeout: options.timeout.map(Timeout::After),
            ..EventSpec::new(source)
        };
        let registered = self.kernel.register(spec, handler, options.deadline);
        registered.map_err(|refused| {
            let Refused { kind, payload } = refused;
            let kind = match kind {
                RefusedKind::Engine(kind) => RegisterErrorKind::Engine(kind),
                RefusedKind::Demultiplexer(source) => RegisterErrorKind::Demultiplexer {
                    backend: self.backend().name(),
                    handle: raw,
                    source,
                },
            };
            RegisterError {
                kind,
                rejected: payload,
            }
        })
    }

    /// Watches `source`, which the set owns from now on, with a closure.
    ///
    /// # Errors
    ///
    /// As [`register_handle`](Self::register_handle); source and closure are dropped.
    pub fn watch<T, F>(
        &self,
        source: T,
        options: HandleOptions,
        handle: F,
    ) -> Result<EventId, RegisterError>
    where
        T: AsFd + Send + 'static,
        F: FnMut(&mut S, &SetContext<'_, S>, &T, Happened) -> Disposition + Send + 'static,
    {
        self.register_handle(Box::new(Watch { source, handle }), options)
            .map_err(|error| error.map(drop))
    }

    /// Adds a timer: `handler` is called after each `period`, counted from one call to the next.
    ///
    /// # Errors
    ///
    /// If there are 2^32 - 1 events.
    pub fn every<F>(&self, period: Duration, handler: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &SetContext<'_, S>, Happened) -> Disposition + Send + 'static,
    {
        let spec = EventSpec {
            timeout: Some(Timeout::After(period)),
            ..EventSpec::new(Source::Timer)
        };
        self.insert(spec, Box::new(handler))
    }

    /// Calls `run` once, after `delay`.
    ///
    /// # Errors
    ///
    /// As [`every`](Self::every).
    pub fn after<F>(&self, delay: Duration, run: F) -> Result<EventId, RegisterError>
    where
        F: FnOnce(&mut S, &SetContext<'_, S>) + Send + 'static,
    {
        let spec = EventSpec {
            timeout: Some(Timeout::After(delay)),
            lifetime: Lifetime::OneShot,
            ..EventSpec::new(Source::Timer)
        };
        self.insert(spec, once(run))
    }

    /// Adds an event that happens when it is [activated](Self::activate).
    ///
    /// # Errors
    ///
    /// As [`every`](Self::every).
    pub fn user_event<F>(&self, handler: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &SetContext<'_, S>, Happened) -> Disposition + Send + 'static,
    {
        self.insert(EventSpec::new(Source::User), Box::new(handler))
    }

    fn insert(&self, spec: EventSpec, handler: BoxedHandler<S>) -> Result<EventId, RegisterError> {
        self.kernel
            .register(spec, handler, None)
            .map_err(|refused| RegisterError {
                kind: match refused.kind {
                    RefusedKind::Engine(kind) => RegisterErrorKind::Engine(kind),
                    RefusedKind::Demultiplexer(_) => RegisterErrorKind::NoHandle,
                },
                rejected: (),
            })
    }

    /// Has the handler of `event` called as by the program: once for all that come before it is.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn activate(&self, event: EventId) -> Result<(), EventError> {
        self.kernel
            .change(|engine, _| engine.activate_event(event, Readiness::NONE, 1))
    }

    /// Stops watching a handle, or a timer; the handler stays.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn deactivate_handle(&self, event: EventId) -> Result<(), EventError> {
        self.kernel.change(|engine, _| engine.disable(event))
    }

    /// Watches it again.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn reactivate_handle(&self, event: EventId) -> Result<(), EventError> {
        self.kernel.change(|engine, now| engine.enable(event, now))
    }

    /// Removes an event and drops its handler: now, or when that is back, if it runs. Answers
    /// whether it does not run.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn remove_handle(&self, event: EventId) -> Result<bool, EventError> {
        self.kernel.remove(event)
    }

    /// Sets what a handle is watched for.
    ///
    /// # Errors
    ///
    /// If the event is gone, or watches no handle.
    pub fn set_interest(&self, event: EventId, interest: Interest) -> Result<(), EventError> {
        self.kernel
            .change(|engine, _| engine.set_interest(event, interest))
    }

    /// Has the handler called at `deadline`, in place of any other deadline.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn arm_at(&self, event: EventId, deadline: Instant) -> Result<(), EventError> {
        self.kernel.change(|engine, _| engine.arm(event, deadline))
    }

    /// Takes its deadline back.
    ///
    /// # Errors
    ///
    /// If the event is gone.
    pub fn disarm(&self, event: EventId) -> Result<bool, EventError> {
        self.kernel.change(|engine, _| engine.disarm(event))
    }

    /// Where an event stands, if it exists.
    #[must_use]
    pub fn state(&self, event: EventId) -> Option<State> {
        self.kernel.read(|engine| engine.state(event))
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kernel.read(|engine| engine.counters().inserted)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the set: each thread returns when it has done what it does. For good.
    pub fn stop(&self) {
        self.kernel.stop();
    }

    /// The time by which deadlines are given.
    #[must_use]
    pub fn clock(&self) -> Instant {
        self.kernel.poller.now()
    }

    /// What is waited with.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.kernel.poller.backend()
    }

    /// How often its threads were woken and waited, so far.
    #[must_use]
    pub fn counters(&self) -> ThreadSetCounters {
        self.kernel.counters()
    }

    /// The same set, for what it holds itself.
    #[must_use]
    pub fn downgrade(&self) -> WeakHandleSet<S> {
        WeakHandleSet {
            kernel: Arc::downgrade(&self.kernel),
        }
    }
}

/// A handler that runs once.
fn once<S, F>(run: F) -> BoxedHandler<S>
where
    F: FnOnce(&mut S, &SetContext<'_, S>) + Send + 'static,
{
    let mut run = Some(run);
    Box::new(move |state: &mut S, cx: &SetContext<'_, S>, _: Happened| {
        if let Some(run) = run.take() {
            run(state, cx);
        }
        Disposition::Remove
    })
}

impl<S> WeakHandleSet<S> {
    /// The set, if it lives.
    #[must_use]
    pub fn upgrade(&self) -> Option<HandleSet<S>> {
        self.kernel.upgrade().map(|kernel| HandleSet { kernel })
    }
}

impl<S> Clone for HandleSet<S> {
    fn clone(&self) -> Self {
        Self {
            kernel: Arc::clone(&self.kernel),
        }
    }
}

impl<S> Clone for WeakHandleSet<S> {
    fn clone(&self) -> Self {
        Self {
            kernel: Weak::clone(&self.kernel),
        }
    }
}

impl<S> fmt::Debug for HandleSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleSet")
            .field("kernel", &self.kernel)
            .finish()
    }
}

impl<S> fmt::Debug for WeakHandleSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakHandleSet").finish_non_exhaustive()
    }
}
