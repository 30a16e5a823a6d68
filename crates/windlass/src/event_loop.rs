//! The event loop: one thread waits for handles, timers, signals and other threads, and calls one
//! handler after the other (the Reactor pattern).
//!
//! Nothing in a handler may block (the golden rule): all others wait meanwhile. The loop checks
//! it: see [`LoopConfig::slow_handler_limit`] and [`Reactor::watch_for_stuck_handlers`]. What may
//! block or compute goes to a [`WorkerPool`](crate::pool::WorkerPool), its result comes back as an
//! event.
//!
//! # Ownership
//!
//! A watched descriptor is moved into the loop or borrowed for the loop's lifetime `'l`, so that it
//! can't be closed while it is watched. The program's state `S` is handed to [`EventLoop::run`] and
//! reaches each handler as `&mut S`, beside a [`Context`] through which the handler reaches the
//! loop: no shared cells are needed.
//!
//! # Threads
//!
//! A loop stays in its thread. Other threads reach it through a [`Poster`] or a [`Waker`].
//!
//! # Cost
//!
//! A turn is one wait, and one clock reading if timers are armed. An event costs an indirect call
//! and a few dozen instructions beside it; no allocation, no lock.

mod completion;
mod config;
mod context;
mod dump;
mod error;
mod golden_rule;
mod handler;
mod io_source;
mod job;
mod lag;
mod line_source;
mod reactor;
mod remote;
mod signal;
mod timer;
mod turn;
mod user_event;
mod watchdog;

use std::fmt;
use std::ops::{Deref, DerefMut};

use windlass_core::{RunMode, StopReason};

pub use self::completion::CompletionOptions;
pub use self::config::{HandlerTimes, LoopConfig, PanicPolicy, PanicReport};
pub use self::context::Context;
pub use self::dump::EventDescription;
pub use self::error::{OpenError, RegisterError, RegisterErrorKind, RunError};
pub use self::golden_rule::{Origin, SlowHandler};
pub use self::handler::EventHandler;
pub use self::io_source::IoOptions;
pub use self::lag::LagHistogram;
pub use self::reactor::Reactor;
pub(crate) use self::remote::WakeFlag;
pub use self::remote::{PostError, Poster, Waker};
pub use self::signal::{Signal, SignalInfo};
pub use self::watchdog::{StuckHandler, Watchdog};

/// A single-threaded event loop over a program's state `S`.
///
/// Registration and control are [`Reactor`]'s methods, which it derefs to; handlers reach the same
/// through their [`Context`].
///
/// ```
/// use std::time::Duration;
/// use windlass::event_loop::EventLoop;
/// use windlass::Disposition::Keep;
///
/// let mut event_loop = EventLoop::<u32>::new()?;
/// event_loop.every(Duration::from_millis(1), |ticks: &mut u32, cx| {
///     *ticks += 1;
///     if *ticks == 3 {
///         cx.stop();
///     }
///     Keep
/// })?;
/// let mut ticks = 0;
/// event_loop.run(&mut ticks)?;
/// assert_eq!(ticks, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EventLoop<'l, S> {
    reactor: Reactor<'l, S>,
}

impl<'l, S: 'l> EventLoop<'l, S> {
    /// Opens a loop with the default configuration.
    ///
    /// # Errors
    ///
    /// If no back end can be opened, or no wake-up channel: out of descriptors or memory; a bad
    /// `WINDLASS_BACKEND` in the environment.
    pub fn new() -> Result<Self, OpenError> {
        Self::with_config(LoopConfig::default())
    }

    /// Opens a loop.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and if no back end has the features that `config` requires.
    ///
    /// # Panics
    ///
    /// If the number of priorities is not in 1 to 256.
    pub fn with_config(config: LoopConfig) -> Result<Self, OpenError> {
        Ok(Self {
            reactor: Reactor::open(config)?,
        })
    }

    /// Runs until a stop is asked for, or no event is left.
    ///
    /// A stop that was asked for before, by [`Poster::stop`] or [`Reactor::stop`], ends it at once.
    ///
    /// # Errors
    ///
    /// If waiting fails; the loop is as before and may be run again.
    pub fn run(&mut self, state: &mut S) -> Result<StopReason, RunError> {
        self.run_mode(state, RunMode::default())
    }

    /// Waits until something happens, runs the handlers of that, and returns.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_once(&mut self, state: &mut S) -> Result<StopReason, RunError> {
        self.run_mode(
            state,
            RunMode {
                once: true,
                ..RunMode::default()
            },
        )
    }

    /// Runs the handlers of what has happened already, each once, and returns without waiting.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_nonblocking(&mut self, state: &mut S) -> Result<StopReason, RunError> {
        self.run_mode(
            state,
            RunMode {
                once: true,
                nonblock: true,
                ..RunMode::default()
            },
        )
    }

    /// Runs in the way that `mode` says.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_mode(&mut self, state: &mut S, mode: RunMode) -> Result<StopReason, RunError> {
        self.reactor.begin_run(mode);
        let result = loop {
            match self.reactor.turn(state) {
                Ok(None) => {}
                Ok(Some(reason)) => break Ok(reason),
                Err(error) => break Err(error),
            }
        };
        self.reactor.end_run();
        result
    }
}

impl<'l, S> Deref for EventLoop<'l, S> {
    type Target = Reactor<'l, S>;

    fn deref(&self) -> &Self::Target {
        &self.reactor
    }
}

impl<S> DerefMut for EventLoop<'_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reactor
    }
}

impl<S> fmt::Debug for EventLoop<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("reactor", &self.reactor)
            .finish()
    }
}
