//! The choice of a driver, and why it is not io_uring if it is not.

use std::env;
use std::error::Error;
use std::fmt;

use windlass_core::EventDemultiplexer;
use windlass_sys::uring::{RingOptions, Unavailable};

use super::waiter::Waiter;
use crate::demultiplexer::{
    self, Backend, BackendConfig, BackendError, EnvironmentUse, UringDemultiplexer,
};

/// The environment variable that chooses a driver: `emulated` or `io_uring`. Looked at if the one
/// for back ends is ([`BackendConfig::environment`]).
pub const ENVIRONMENT_VARIABLE: &str = "WINDLASS_PROACTOR";

/// Who carries out operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The loop's own thread, when they can be done.
    Emulated,
    /// The kernel.
    Uring,
}

impl Driver {
    /// Its name: `emulated` or `io_uring`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Uring => "io_uring",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which driver a loop is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring if it can be had, as driver and as back end; else the emulated one.
    Automatic,
    /// That of the back end: io_uring if it is forced, else the emulated one.
    #[default]
    ByBackend,
    /// The emulated one.
    Emulated,
    /// io_uring, as driver and as back end; an error if it can't be had.
    Uring,
}

/// How a loop's operations are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProactorConfig {
    /// By which driver.
    pub driver: DriverChoice,
    /// The sizes of its ring.
    pub ring: RingOptions,
}

/// Why a loop's driver is the emulated one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fallback {
    /// The emulated one was asked for.
    Asked,
    /// io_uring is avoided as a back end.
    Avoided,
    /// Another back end is forced, by configuration or environment.
    BackendForced(Backend),
    /// Nobody asked for io_uring.
    NotAsked,
    /// io_uring can't be had.
    Unavailable(Unavailable),
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("the emulated driver was asked for"),
            Self::Avoided => f.write_str("io_uring is avoided as a back end"),
            Self::BackendForced(backend) => write!(f, "the back end {backend} is forced"),
            Self::NotAsked => f.write_str("io_uring was not asked for"),
            Self::Unavailable(reason) => reason.fmt(f),
        }
    }
}

/// Why a driver that was asked for can't be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum DriverError {
    /// Something forbids io_uring.
    Fallback(Fallback),
    /// The environment names none that exists.
    UnknownName {
        /// The variable's value.
        name: String,
    },
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fallback(reason) => write!(f, "use io_uring for operations: {reason}"),
            Self::UnknownName { name } => write!(
                f,
                "use {ENVIRONMENT_VARIABLE}={name:?}, which names no driver \
                 (valid: emulated, io_uring)"
            ),
        }
    }
}

impl Error for DriverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Fallback(Fallback::Unavailable(reason)) => reason.source(),
            Self::Fallback(_) | Self::UnknownName { .. } => None,
        }
    }
}

/// Opens what a loop waits with. With it comes why its driver is not io_uring.
pub(crate) fn open(
    backend: &BackendConfig,
    config: &ProactorConfig,
) -> Result<(Waiter, Option<Fallback>), OpenFailure> {
    let choice = match backend.environment {
        EnvironmentUse::Ignore => config.driver,
        EnvironmentUse::Use => from_environment(config.driver).map_err(OpenFailure::Driver)?,
    };
    let forced = demultiplexer::forced(backend).map_err(OpenFailure::Backend)?;
    let fallback = match choice {
        DriverChoice::Emulated => Fallback::Asked,
        DriverChoice::ByBackend if forced != Some(Backend::Uring) => Fallback::NotAsked,
        DriverChoice::Automatic | DriverChoice::ByBackend | DriverChoice::Uring => {
            match open_ring(backend, forced, config.ring) {
                Ok(demultiplexer) => return Ok((Waiter::Uring(demultiplexer), None)),
                Err(fallback) => fallback,
            }
        }
    };
    if choice == DriverChoice::Uring {
        return Err(OpenFailure::Driver(DriverError::Fallback(fallback)));
    }
    let other = demultiplexer::open(backend).map_err(OpenFailure::Backend)?;
    Ok((Waiter::other(other), Some(fallback)))
}

/// Why neither was opened.
#[derive(Debug)]
pub(crate) enum OpenFailure {
    Backend(BackendError),
    Driver(DriverError),
}

fn from_environment(choice: DriverChoice) -> Result<DriverChoice, DriverError> {
    let Some(value) = env::var_os(ENVIRONMENT_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(choice);
    };
    match value.to_str() {
        Some("emulated") => Ok(DriverChoice::Emulated),
        Some("io_uring") => Ok(DriverChoice::Uring),
        _ => Err(DriverError::UnknownName {
            name: value.to_string_lossy().into_owned(),
        }),
    }
}

fn open_ring(
    backend: &BackendConfig,
    forced: Option<Backend>,
    options: RingOptions,
) -> Result<Box<UringDemultiplexer>, Fallback> {
    match forced {
        Some(Backend::Uring) => {}
        Some(other) => return Err(Fallback::BackendForced(other)),
        None if backend.avoid.contains(&Backend::Uring) => return Err(Fallback::Avoided),
        None => {}
    }
    let demultiplexer = UringDemultiplexer::new(options).map_err(Fallback::Unavailable)?;
    // It can do whatever can be required.
    debug_assert!(demultiplexer.features().satisfy(backend.required));
    Ok(Box::new(demultiplexer))
}
