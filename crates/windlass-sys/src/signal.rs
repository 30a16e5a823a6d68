//! Signals as bytes in a pipe (the self-pipe): a descriptor that is readable when one came.
//!
//! A handler installed by sigaction(2) writes a record into the pipe of each [`SignalChannel`]
//! that watches the signal; an event loop waits for the pipe and reads the records. Unlike
//! signalfd(2) this blocks nothing: a signal that reaches any thread is seen, threads started
//! earlier cannot die of it, and programs started by exec get an untouched mask and no handler.
//!
//! - Several channels may watch one signal; each gets it. The last [`unwatch`] restores the
//!   disposition that the first [`watch`] found, unless someone else replaced ours meanwhile.
//! - Nothing is lost: what does not fit into a full pipe becomes a pending bit. As with any
//!   signals, several of one number may merge; the sender of a merged one is not known.
//! - Fork: the child's handler does not touch the parent's pipe. It keeps what it gets until
//!   [`SignalChannel::reinit`] gives the child a pipe of its own.
//!
//! Handlers run on any thread; all other calls are safe from any thread but not from a handler.
//!
//! Limits: 64 channels per process. A signal that was ignored before it was watched is default,
//! not ignored, in programs started meanwhile (exec resets handlers). In a vfork(2) child the
//! parent's memory is shared: a signal to such a child is dropped, and one of the same number that
//! did not fit into the parent's pipe with it.
//!
//! [`watch`]: SignalChannel::watch
//! [`unwatch`]: SignalChannel::unwatch

mod disposition;
mod table;

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;

use crate::errno::{check, retry_or_none};
use table::{RECORD_BYTES, Record, SLOTS, Slot};

pub use libc::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1,
    SIGUSR2, SIGWINCH,
};

/// How many channels a process may have.
pub const CHANNELS_MAX: usize = table::SLOT_COUNT;

/// The largest signal number.
pub const NUMBER_MAX: i32 = 64;

/// A pipe of 64 KiB is empty after as many reads.
const READS_MAX: usize = 16;

/// One delivery of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// The signal's number.
    pub signo: i32,
    /// Why it was sent, sigaction(2) `si_code`; 0 (`SI_USER`) if not known.
    pub code: i32,
    /// The process that sent it, or the child that changed state; 0 if not known.
    pub pid: i32,
    /// That process's real user; 0 if `pid` is.
    pub uid: u32,
}

/// Delivers the signals that it watches through a descriptor.
///
/// Dropping it unwatches all.
#[derive(Debug)]
pub struct SignalChannel {
    slot: &'static Slot,
    reader: OwnedFd,
    /// Its number is published in `slot`; open for as long as it is.
    writer: OwnedFd,
}

impl SignalChannel {
    /// Opens a channel that watches nothing: pipe2(2), non-blocking and closed on exec.
    ///
    /// # Errors
    ///
    /// [`SignalError::ChannelsExhausted`]; [`SignalError::System`] with `EMFILE` or `ENFILE`.
    pub fn new() -> Result<Self, SignalError> {
        let (reader, writer) = open_pipe()?;
        let slot = SLOTS
            .iter()
            .find(|slot| slot.claim(process_id(), writer.as_raw_fd()))
            .ok_or(SignalError::ChannelsExhausted)?;
        Ok(Self {
            slot,
            reader,
            writer,
        })
    }

    /// Starts to watch `signo`; nothing happens if it is watched already.
    ///
    /// The handler is installed with `SA_RESTART`, so that other threads' calls go on.
    ///
    /// # Errors
    ///
    /// [`SignalError::NotASignal`], [`SignalError::Synchronous`], [`SignalError::Uncatchable`];
    /// then nothing has changed.
    pub fn watch(&mut self, signo: i32) -> Result<(), SignalError> {
        check_number(signo)?;
        if self.slot.is_watching(signo) {
            return Ok(());
        }
        // Before the handler is there, or its first signal would find nobody.
        self.slot.watch(signo);
        disposition::acquire(signo).map_err(|source| {
            self.slot.unwatch(signo);
            SignalError::from_sigaction(signo, source)
        })
    }

    /// Stops to watch `signo`; nothing happens if it is not watched. What came and was not read is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`SignalError::System`]: sigaction(2) could not restore the disposition; not seen in
    /// practice.
    pub fn unwatch(&mut self, signo: i32) -> Result<(), SignalError> {
        if !self.slot.is_watching(signo) {
            return Ok(());
        }
        let released = disposition::release(signo);
        self.slot.unwatch(signo);
        released.map_err(|source| SignalError::System { source })
    }

    /// Makes the channel this process's own after a fork(2): a new pipe, and what the child got
    /// since then becomes readable. In the process that opened the channel nothing happens.
    ///
    /// [`as_fd`](AsFd::as_fd) is another descriptor afterwards. The parent's channel is untouched.
    ///
    /// # Errors
    ///
    /// [`SignalError::System`] with `EMFILE` or `ENFILE`; then the channel is as before.
    pub fn reinit(&mut self) -> Result<(), SignalError> {
        if self.slot.is_owned_by(process_id()) {
            return Ok(());
        }
        let (reader, writer) = open_pipe()?;
        self.slot.adopt(process_id(), writer.as_raw_fd());
        // The copies of the parent's ends are closed here; the parent's own stay.
        self.reader = reader;
        self.writer = writer;
        Ok(())
    }

    /// Appends what came to `signals`; answers how many there are. Never blocks. At most a pipe's
    /// content (4096 records) at once: the descriptor stays readable if there is more.
    ///
    /// In a child that has not called [`reinit`](Self::reinit) only what the child itself got.
    ///
    /// # Errors
    ///
    /// read(2)'s; not seen in practice.
    pub fn read(&self, signals: &mut Vec<SignalInfo>) -> io::Result<usize> {
        let before = signals.len();
        let pid = process_id();
        if self.slot.is_owned_by(pid) {
            self.read_pipe(signals)?;
        }
        // After the pipe: a handler that found it full leaves a bit first and then tries to write
        // once more, so that either the bit is seen here or the pipe is readable again.
        self.slot.take_pending(pid, |signo| {
            signals.push(SignalInfo {
                signo,
                code: libc::SI_USER,
                pid: 0,
                uid: 0,
            });
        });
        Ok(signals.len() - before)
    }

    fn read_pipe(&self, signals: &mut Vec<SignalInfo>) -> io::Result<()> {
        const _: () = assert!(4096 % RECORD_BYTES == 0);
        let mut buf = [0_u8; 4096];
        for _ in 0..READS_MAX {
            let count = retry_or_none(|| rustix::io::read(&self.reader, &mut buf))?.unwrap_or(0);
            let (records, rest) = buf[..count].as_chunks::<RECORD_BYTES>();
            // Writes of up to PIPE_BUF bytes are atomic, pipe(7).
            debug_assert!(rest.is_empty(), "records are written whole");
            let infos = records
                .iter()
                .map(|bytes| Record::from_bytes(*bytes).into_info());
            signals.extend(infos.filter(|info| self.slot.is_watching(info.signo)));
            if count < buf.len() {
                break;
            }
        }
        Ok(())
    }
}

impl AsFd for SignalChannel {
    /// The descriptor that is readable when a signal came; it is only to be waited for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for SignalChannel {
    fn drop(&mut self) {
        for signo in 1..=NUMBER_MAX {
            // It cannot fail for a number that was watched, and a drop has nobody to tell.
            let _ = self.unwatch(signo);
        }
        // No handler uses the pipe after this; the fields are closed next.
        self.slot.release(process_id());
    }
}

/// Why a signal cannot be watched.
#[derive(Debug)]
#[non_exhaustive]
pub enum SignalError {
    /// The process has [`CHANNELS_MAX`] channels.
    ChannelsExhausted,
    /// There is no signal of this number, or the C library keeps it for itself.
    NotASignal {
        /// The number.
        signo: i32,
    },
    /// SIGSEGV, SIGBUS, SIGFPE, SIGILL: returning from the handler repeats the fault for ever.
    Synchronous {
        /// The number.
        signo: i32,
    },
    /// A system call failed.
    System {
        /// How.
        source: io::Error,
    },
    /// SIGKILL or SIGSTOP: no program can catch them.
    Uncatchable {
        /// The number.
        signo: i32,
    },
}

impl SignalError {
    fn from_sigaction(signo: i32, source: io::Error) -> Self {
        if source.raw_os_error() == Some(libc::EINVAL) {
            Self::NotASignal { signo }
        } else {
            Self::System { source }
        }
    }
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChannelsExhausted => {
                write!(
                    f,
                    "open a signal channel beyond the {CHANNELS_MAX} of a process"
                )
            }
            Self::NotASignal { signo } => write!(f, "watch {signo}, which is no signal's number"),
            Self::Synchronous { signo } => {
                write!(
                    f,
                    "watch signal {signo}, which reports a fault of the program itself"
                )
            }
            Self::System { .. } => f.write_str("set up the delivery of signals"),
            Self::Uncatchable { signo } => {
                write!(f, "watch signal {signo}, which cannot be caught")
            }
        }
    }
}

impl Error for SignalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System { source } => Some(source),
            _ => None,
        }
    }
}

impl From<SignalError> for io::Error {
    fn from(error: SignalError) -> Self {
        match error {
            SignalError::System { source } => source,
            other => Self::new(io::ErrorKind::InvalidInput, other),
        }
    }
}

/// Ignores SIGPIPE in the whole process, sigaction(2): writing to a closed pipe or socket is then
/// the error `EPIPE`. Rust programs start so; C programs that load this library do not. Ignored
/// signals stay ignored in programs that are started.
///
/// # Errors
///
/// None in practice.
pub fn ignore_sigpipe() -> io::Result<()> {
    disposition::ignore(libc::SIGPIPE)
}

/// Whether `signo` is ignored in this process, sigaction(2).
///
/// # Errors
///
/// `EINVAL` (no signal's number).
pub fn is_ignored(signo: i32) -> io::Result<bool> {
    Ok(disposition::query(signo)?.sa_sigaction == libc::SIG_IGN)
}

/// A thread of this process, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(i32);

impl ThreadId {
    /// The calling thread, gettid(2).
    #[must_use]
    pub fn current() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

/// Sends `signo` to one thread of this process, tgkill(2). Zero sends nothing and checks.
///
/// What the signal does is up to its disposition, which is the process's.
///
/// # Errors
///
/// `EINVAL` (no signal's number), `ESRCH` (the thread has ended).
pub fn send_to_thread(thread: ThreadId, signo: i32) -> io::Result<()> {
    // SAFETY: tgkill takes three numbers and touches no memory of ours.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, process_id(), thread.0, signo) };
    check(i32::try_from(rc).unwrap_or(-1))?;
    Ok(())
}

fn open_pipe() -> Result<(OwnedFd, OwnedFd), SignalError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| {
        SignalError::System {
            source: error.into(),
        }
    })
}

fn check_number(signo: i32) -> Result<(), SignalError> {
    match signo {
        libc::SIGKILL | libc::SIGSTOP => Err(SignalError::Uncatchable { signo }),
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL => {
            Err(SignalError::Synchronous { signo })
        }
        1..=NUMBER_MAX => Ok(()),
        _ => Err(SignalError::NotASignal { signo }),
    }
}

fn process_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests;
