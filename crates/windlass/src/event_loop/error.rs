//! Errors of the event loop. Opening: [`OpenError`]. Registering: [`RegisterError`], which gives
//! back what was to be registered. Running: [`RunError`].

use std::error::Error;
use std::{fmt, io};

use windlass_core::{InsertErrorKind, RawHandle};

use crate::demultiplexer::BackendError;
use crate::event_loop::signal::Signal;
use crate::proactor::DriverError;

/// A loop that could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No back end.
    Backend(BackendError),
    /// Not the driver of operations that was asked for.
    Driver(DriverError),
    /// No wake-up channel.
    WakeUp(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backend(_) => "open an event loop's back end",
            Self::Driver(_) => "open an event loop's driver of operations",
            Self::WakeUp(_) => "open an event loop's wake-up channel",
        })
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Backend(source) => source,
            Self::Driver(source) => source,
            Self::WakeUp(source) => source,
        })
    }
}

/// An event that could not be registered; gives back what was to be watched.
pub struct RegisterError<T = ()> {
    /// Why.
    pub kind: RegisterErrorKind,
    /// What was handed in.
    pub rejected: T,
}

/// Why an event could not be registered.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegisterErrorKind {
    /// The back end refused the handle.
    Demultiplexer {
        /// The back end.
        backend: &'static str,
        /// The handle.
        handle: RawHandle,
        /// Its error.
        source: io::Error,
    },
    /// The engine refused the event.
    Engine(InsertErrorKind),
    /// The driver of operations can't be opened.
    Driver(io::Error),
    /// There is no event of that id.
    NoEvent,
    /// The handler has no handle.
    NoHandle,
    /// The signal can't be watched.
    Signal {
        /// Which one.
        signal: Signal,
        /// Why.
        source: windlass_sys::signal::SignalError,
    },
}

impl<T> RegisterError<T> {
    pub(super) fn new(kind: RegisterErrorKind, rejected: T) -> Self {
        Self { kind, rejected }
    }

    /// The same error about something else.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> RegisterError<U> {
        RegisterError {
            kind: self.kind,
            rejected: f(self.rejected),
        }
    }
}

impl fmt::Display for RegisterErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demultiplexer {
                backend, handle, ..
            } => {
                write!(f, "register handle {handle} with {backend}")
            }
            Self::Engine(kind) => kind.fmt(f),
            Self::Driver(_) => f.write_str("open the driver of operations"),
            Self::NoEvent => {
                f.write_str("start an operation for an event: there is none of that id")
            }
            Self::NoHandle => f.write_str("register a handler: it has no handle"),
            Self::Signal { signal, .. } => write!(f, "watch {signal}"),
        }
    }
}

impl<T> fmt::Display for RegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> fmt::Debug for RegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<T> Error for RegisterError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            RegisterErrorKind::Demultiplexer { source, .. } | RegisterErrorKind::Driver(source) => {
                Some(source)
            }
            RegisterErrorKind::Signal { source, .. } => Some(source),
            RegisterErrorKind::Engine(_)
            | RegisterErrorKind::NoEvent
            | RegisterErrorKind::NoHandle => None,
        }
    }
}

impl<T> From<RegisterError<T>> for io::Error {
    fn from(error: RegisterError<T>) -> Self {
        let kind = match &error.kind {
            RegisterErrorKind::Demultiplexer { source, .. } | RegisterErrorKind::Driver(source) => {
                source.kind()
            }
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error.map(drop))
    }
}

/// A run that ended because waiting failed, or that could not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// A registration that is out of date could not be cleared.
    Rebuild {
        /// The back end.
        backend: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// A thread could not be started.
    Thread {
        /// Its error.
        source: io::Error,
    },
    /// The wait itself.
    Wait {
        /// The back end.
        backend: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebuild { backend, .. } => write!(f, "rebuild the registrations of {backend}"),
            Self::Thread { .. } => f.write_str("start a thread"),
            Self::Wait { backend, .. } => write!(f, "wait with {backend}"),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rebuild { source, .. } | Self::Thread { source } | Self::Wait { source, .. } => {
                Some(source)
            }
        }
    }
}
