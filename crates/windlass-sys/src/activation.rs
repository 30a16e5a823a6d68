//! Descriptors that are handed to a process as it starts: by a service manager (socket activation,
//! sd_listen_fds(3)), or by the process that it replaces; and word back to the manager,
//! sd_notify(3).
//!
//! # Ownership
//!
//! The environment says which numbers belong to whoever asks. Each is given out once in a process,
//! and only if it is a stream socket that listens. What can't be checked is whether the program has
//! put something else at that number before: so ask first thing, before descriptors are opened.
//! Variables are read and not removed, which would not be safe in a process with threads: a program
//! that starts others takes them from those ([`Command::env_remove`]).

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::net::{SocketType, sockopt};

use crate::fd;

/// The first number that a service manager passes (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// More are not believed.
const COUNT_MAX: usize = 4096;

/// The numbers that were given out.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// The listeners that a service manager passed to this process, with their names
/// (`FileDescriptorName=`; "unknown" without), closed on exec. None if it passed none. Reads
/// `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`.
///
/// # Errors
///
/// If the variables make no sense, or a descriptor is not a stream socket that listens, or it was
/// taken before; none is taken then.
pub fn listen_fds() -> Result<Vec<(OwnedFd, String)>, ActivationError> {
    let value = |name: &str| std::env::var_os(name);
    let names = value("LISTEN_FDNAMES");
    let Some(count) = passed_count(value("LISTEN_PID"), value("LISTEN_FDS"), std::process::id())?
    else {
        return Ok(Vec::new());
    };
    // At most 4096, so it fits.
    let numbers: Vec<RawFd> = (FIRST..).take(count).collect();
    let fds = take(&numbers)?;
    let names = names.unwrap_or_default();
    let mut names = names.as_bytes().split(|&byte| byte == b':');
    let named = fds.into_iter().map(|fd| {
        let name = match names.next() {
            Some(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
            _ => "unknown".to_owned(),
        };
        (fd, name)
    });
    Ok(named.collect())
}

/// The listeners that the process before this one passed by [`pass_listeners`], whose numbers
/// `variable` names, closed on exec. None if it is not set.
///
/// # Errors
///
/// As [`listen_fds`].
pub fn inherited_listeners(variable: &str) -> Result<Vec<OwnedFd>, ActivationError> {
    match std::env::var_os(variable) {
        None => Ok(Vec::new()),
        Some(value) => take(&numbers_of(variable, &value)?),
    }
}

/// Has the program that `command` will start inherit `listeners`, their numbers in its
/// `variable`, for [`inherited_listeners`].
///
/// Duplicates are made, which close when `command` is dropped. They are marked to stay open in the
/// started process only, so that what other threads start meanwhile gets none of them.
///
/// # Errors
///
/// `EMFILE`.
pub fn pass_listeners(
    command: &mut Command,
    variable: &str,
    listeners: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let passed = listeners
        .iter()
        .map(|listener| fd::duplicate_from(*listener, FIRST))
        .collect::<io::Result<Vec<_>>>()?;
    let numbers: Vec<_> = passed.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    command.env(variable, numbers.join(","));
    let stay_open = move || {
        for fd in &passed {
            let flags = rustix::io::fcntl_getfd(fd)?.difference(rustix::io::FdFlags::CLOEXEC);
            rustix::io::fcntl_setfd(fd, flags)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only calls fcntl(2), which is async-signal-safe; it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(stay_open) };
    Ok(())
}

/// Whether the service manager was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Notified {
    /// It was.
    Sent,
    /// Nobody asked to be told: `NOTIFY_SOCKET` is not set.
    Unasked,
}

/// Tells the service manager how this process is (`READY=1`, `STOPPING=1`, `RELOADING=1`,
/// `STATUS=…`, several on lines of their own), sd_notify(3).
///
/// # Errors
///
/// If `NOTIFY_SOCKET` is neither a path nor an abstract name (`@…`), or nobody receives there.
pub fn notify(state: &str) -> io::Result<Notified> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(to) if !to.is_empty() => notify_at(&to, state).map(|()| Notified::Sent),
        _ => Ok(Notified::Unasked),
    }
}

fn notify_at(to: &OsStr, state: &str) -> io::Result<()> {
    let addr = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(to)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold this process up.
    socket.set_nonblocking(true)?;
    let sent = socket.send_to_addr(state.as_bytes(), &addr)?;
    if sent < state.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// How many descriptors were passed to process `own_pid`, if the variables are there and meant for it.
fn passed_count(
    pid: Option<OsString>,
    count: Option<OsString>,
    own_pid: u32,
) -> Result<Option<usize>, ActivationError> {
    let (Some(pid), Some(count)) = (pid, count) else {
        return Ok(None);
    };
    if number::<u32>("LISTEN_PID", &pid)? != own_pid {
        // For a parent of this process.
        return Ok(None);
    }
    let passed: usize = number("LISTEN_FDS", &count)?;
    if passed > COUNT_MAX {
        return Err(malformed("LISTEN_FDS", &count));
    }
    Ok(Some(passed))
}

fn numbers_of(variable: &str, value: &OsStr) -> Result<Vec<RawFd>, ActivationError> {
    let text = value.to_str().ok_or_else(|| malformed(variable, value))?;
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        match part.parse() {
            Ok(raw) if raw >= FIRST && numbers.len() < COUNT_MAX && !numbers.contains(&raw) => {
                numbers.push(raw);
            }
            _ => return Err(malformed(variable, value)),
        }
    }
    Ok(numbers)
}

fn number<T: std::str::FromStr>(variable: &str, value: &OsStr) -> Result<T, ActivationError> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| malformed(variable, value))
}

fn malformed(variable: &str, value: &OsStr) -> ActivationError {
    ActivationError::Malformed {
        variable: variable.to_owned(),
        value: value.to_string_lossy().into_owned(),
    }
}

/// Takes all of `numbers` or none.
fn take(numbers: &[RawFd]) -> Result<Vec<OwnedFd>, ActivationError> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for &raw in numbers {
        if taken.contains(&raw) {
            return Err(ActivationError::TakenBefore { fd: raw });
        }
        if !is_listener(raw) {
            return Err(ActivationError::NoListener { fd: raw });
        }
    }
    taken.extend(numbers);
    let owned = numbers.iter().map(|&raw| {
        // SAFETY: it is open, as was just seen, and the environment gives it to this process, of
        // which only the first who asks gets it: TAKEN has it from now on.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let flags = rustix::io::fcntl_getfd(&fd).map_err(io::Error::from);
        flags
            .and_then(|flags| {
                let flags = flags.union(rustix::io::FdFlags::CLOEXEC);
                Ok(rustix::io::fcntl_setfd(&fd, flags)?)
            })
            .map_err(|source| ActivationError::Flags { fd: raw, source })?;
        Ok(fd)
    });
    owned.collect()
}

/// Whether `raw` is a stream socket that listens.
fn is_listener(raw: RawFd) -> bool {
    if !fd::is_open(raw) {
        return false;
    }
    // SAFETY: it is open, as was just seen, and only looked at; a number that is closed meanwhile
    // by another thread would be answered with an error.
    let fd = unsafe { BorrowedFd::borrow_raw(raw) };
    sockopt::socket_type(fd.as_fd()) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(fd.as_fd()) == Ok(true)
}

/// Why descriptors were not taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum ActivationError {
    /// It could not be marked to be closed on exec.
    Flags {
        /// Which one.
        fd: RawFd,
        /// Why.
        source: io::Error,
    },
    /// A variable does not say what it should.
    Malformed {
        /// Its name.
        variable: String,
        /// Its value.
        value: String,
    },
    /// A number does not name a stream socket that listens.
    NoListener {
        /// Which one.
        fd: RawFd,
    },
    /// A number was given out in this process before.
    TakenBefore {
        /// Which one.
        fd: RawFd,
    },
}

impl fmt::Display for ActivationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flags { fd, .. } => write!(f, "mark the inherited descriptor {fd}"),
            Self::Malformed { variable, value } => {
                write!(f, "the environment's {variable} makes no sense: {value:?}")
            }
            Self::NoListener { fd } => {
                write!(
                    f,
                    "the inherited descriptor {fd} is no stream socket that listens"
                )
            }
            Self::TakenBefore { fd } => {
                write!(f, "the inherited descriptor {fd} was taken before")
            }
        }
    }
}

impl Error for ActivationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Flags { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
