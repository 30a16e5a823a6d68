//! Signal sources: signals as events.
//!
//! Delivered by a handler and a pipe, not by signalfd(2): that needs the signal blocked in every
//! thread, and a blocked mask is inherited by spawned programs. Here masks stay as they are, a
//! signal to any thread is seen, and a spawned program starts with the original dispositions
//! (execve(2) resets handlers). The last source's removal restores the disposition.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;

use windlass_core::{
    Accounting, Disposition, EventId, EventSpec, Happened, Instant, SignalSet, Source,
};
use windlass_sys::signal::{SignalChannel, SignalError};

use crate::event_loop::context::Context;
use crate::event_loop::error::{RegisterError, RegisterErrorKind};
use crate::event_loop::golden_rule::Origin;
use crate::event_loop::handler::EventHandler;
use crate::event_loop::io_source::IoOptions;
use crate::event_loop::reactor::Reactor;

/// A signal's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident = $number:expr;)*) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(concat!("SIG", stringify!($name))),)*
                    _ => None,
                }
            }
        }
    };
}

signals! {
    /// A timer of alarm(2).
    ALRM = windlass_sys::signal::SIGALRM;
    /// A child ended or stopped. Several may merge: wait until none is left.
    CHLD = windlass_sys::signal::SIGCHLD;
    /// Go on after a stop.
    CONT = windlass_sys::signal::SIGCONT;
    /// The terminal is gone; by habit: read the configuration again.
    HUP = windlass_sys::signal::SIGHUP;
    /// Interrupt from the keyboard, Ctrl-C.
    INT = windlass_sys::signal::SIGINT;
    /// A write to a pipe or socket that nobody reads.
    PIPE = windlass_sys::signal::SIGPIPE;
    /// Quit from the keyboard.
    QUIT = windlass_sys::signal::SIGQUIT;
    /// Asked to end.
    TERM = windlass_sys::signal::SIGTERM;
    /// Stop from the keyboard.
    TSTP = windlass_sys::signal::SIGTSTP;
    /// For the program's use.
    USR1 = windlass_sys::signal::SIGUSR1;
    /// For the program's use.
    USR2 = windlass_sys::signal::SIGUSR2;
    /// The terminal's size changed.
    WINCH = windlass_sys::signal::SIGWINCH;
}

impl Signal {
    /// The signal with this number; whether it can be watched is found out by watching it.
    #[must_use]
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// Its number, signal(7).
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a signal handler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// Which signal.
    pub signal: Signal,
    /// How many deliveries are told in this call.
    pub count: u32,
    /// The process that sent the last of them, or the child that ended; 0 if not known.
    pub pid: i32,
    /// That process's real user.
    pub uid: u32,
    /// Why it was sent, sigaction(2) `si_code`.
    pub code: i32,
}

impl fmt::Display for SignalInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signal.fmt(f)
    }
}

/// A loop's signals: the channel, if any signal was ever watched, and what came last.
#[derive(Debug, Default)]
pub(super) struct Signals {
    channel: Option<SignalChannel>,
    /// The event that watches the channel.
    pub(super) event: Option<EventId>,
    watched: SignalSet,
    /// The last information by signal number.
    last: Vec<Option<windlass_sys::signal::SignalInfo>>,
    scratch: Vec<windlass_sys::signal::SignalInfo>,
}

/// Watches the channel's descriptor. What is readable is gathered between wait and activation,
/// so there is nothing left to do when it is called.
struct ChannelHandler {
    fd: std::os::fd::OwnedFd,
}

impl<'l, S> EventHandler<'l, S> for ChannelHandler {
    fn handle_event(
        &mut self,
        _state: &mut S,
        _cx: &mut Context<'_, 'l, S>,
        _happened: Happened,
    ) -> Disposition {
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// Calls `handle` when `signal` was delivered to the process, to whichever thread. Deliveries
    /// may merge.
    ///
    /// What the process did with the signal before is restored when its last event is gone. Programs
    /// that are started meanwhile have it at its default, also if it was ignored: execve(2) knows
    /// no other way back from a handler.
    ///
    /// # Errors
    ///
    /// If the signal can't be caught (`SIGKILL`, `SIGSTOP`), is a fault of the thread itself
    /// (`SIGSEGV` and the like), or has no such number; if descriptors ran out.
    #[track_caller]
    pub fn on_signal<F>(&mut self, signal: Signal, mut handle: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, SignalInfo) -> Disposition + 'l,
    {
        let origin = Origin {
            label: Some(signal.to_string().into()),
            place: Location::caller(),
        };
        let fail = |source| RegisterError::new(RegisterErrorKind::Signal { signal, source }, ());
        self.open_signal_channel().map_err(fail)?;
        if let Some(channel) = &mut self.signals.channel
            && let Err(source) = channel.watch(signal.number())
        {
            self.close_idle_signal_channel();
            return Err(fail(source));
        }
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, happened: Happened| {
                let info = cx.signals.info(signal, happened.count);
                handle(state, cx, info)
            },
        );
        let spec = EventSpec::new(Source::Signal(signal.number()));
        let event = self
            .insert(spec, handler, origin)
            .map_err(|error| error.map(drop));
        if let Ok(event) = event {
            // It exists, as it was just inserted.
            let _ = self.engine.enable(event, Instant::ZERO);
        }
        self.signals.watched.add(signal.number());
        self.sync_signals();
        event
    }

    /// Makes the channel and its event, unless they exist.
    #[track_caller]
    fn open_signal_channel(&mut self) -> Result<(), SignalError> {
        if self.signals.event.is_some() {
            return Ok(());
        }
        let channel = SignalChannel::new()?;
        let system = |source| SignalError::System { source };
        let fd = channel.as_fd().try_clone_to_owned().map_err(system)?;
        let options = IoOptions {
            accounting: Accounting::Internal,
            label: Some("signal channel".into()),
            ..IoOptions::default()
        };
        let event = self
            .register_handler(Box::new(ChannelHandler { fd }), options)
            .map_err(|error| system(error.into()))?;
        self.signals.channel = Some(channel);
        self.signals.event = Some(event);
        Ok(())
    }

    /// Closes the channel if it watches nothing.
    fn close_idle_signal_channel(&mut self) {
        if self.signals.watched.is_empty() {
            if let Some(event) = self.signals.event.take() {
                self.remove_any(event);
            }
            self.signals.channel = None;
        }
    }

    /// Stops watching signals that no pending event waits for any more, and watches those that
    /// were enabled again.
    pub(super) fn sync_signals(&mut self) {
        let signals = &mut self.signals;
        let Some(channel) = &mut signals.channel else {
            return;
        };
        let wanted = self.engine.watched_signals();
        if wanted == signals.watched {
            return;
        }
        for number in signals.watched.without(wanted).iter() {
            // Restoring a disposition that was in force before can't fail.
            let _ = channel.unwatch(number);
        }
        for number in wanted.without(signals.watched).iter() {
            // It was watched before, so it can be.
            let _ = channel.watch(number);
        }
        signals.watched = wanted;
    }

    /// Moves what came into the batch: called between wait and activation.
    pub(super) fn gather_signals(&mut self) {
        let Signals {
            channel: Some(channel),
            event: Some(event),
            last,
            scratch,
            ..
        } = &mut self.signals
        else {
            return;
        };
        let handle = self.engine.handle_of(*event);
        if !self
            .batch
            .reports()
            .iter()
            .any(|report| Some(report.handle) == handle)
        {
            return;
        }
        // A read error means the descriptor is bad, which the back end reports.
        let _ = channel.read(scratch);
        for info in scratch.drain(..) {
            let at = usize::try_from(info.signo).unwrap_or(0);
            if at >= last.len() {
                last.resize(at + 1, None);
            }
            last[at] = Some(info);
            self.batch.push_signal(info.signo, 1);
        }
    }

    /// After a fork: a channel of the child's own.
    pub(super) fn reinit_signals(&mut self) -> std::io::Result<()> {
        let Some(channel) = &mut self.signals.channel else {
            return Ok(());
        };
        channel.reinit().map_err(std::io::Error::other)?;
        let fd = channel.as_fd().try_clone_to_owned()?;
        if let Some(event) = self.signals.event.take() {
            self.remove_any(event);
        }
        let options = IoOptions {
            accounting: Accounting::Internal,
            label: Some("signal channel".into()),
            ..IoOptions::default()
        };
        let event = self.register_handler(Box::new(ChannelHandler { fd }), options)?;
        self.signals.event = Some(event);
        Ok(())
    }
}

impl Signals {
    fn info(&self, signal: Signal, count: u32) -> SignalInfo {
        let at = usize::try_from(signal.number()).unwrap_or(0);
        let last = self.last.get(at).copied().flatten();
        SignalInfo {
            signal,
            count,
            pid: last.map_or(0, |info| info.pid),
            uid: last.map_or(0, |info| info.uid),
            code: last.map_or(0, |info| info.code),
        }
    }
}
