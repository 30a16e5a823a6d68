//! What a connection needs of the driver that calls it, and of what carries its bytes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{Instant, Interest};
use windlass_sys::net;

use super::flush::{FlushError, Flushed, flush};
use crate::pool::{Outcome, SubmitError, SubmitErrorKind};
use crate::session::{Job, JobFailed, JobResult, Notifier, Output};

/// The driver of one connection, during a call.
pub(in crate::models) trait Host {
    /// Makes what has this connection called from any thread: a [`step`](super::Connection::step)
    /// with `user` set. It does nothing when the connection is gone.
    fn notifier(&self) -> Notifier;

    /// Has the connection stepped again, with `user` set, after others had their turn.
    fn call_again(&mut self);

    /// Has the connection stepped when its socket is ready for `interest`.
    fn watch(&mut self, interest: Interest);

    /// Has the connection stepped at `deadline`, with `timed_out` set, in place of any other
    /// deadline; [`Instant::FAR`] is none.
    fn arm(&mut self, deadline: Instant);

    /// Has `job` done. What comes of it is put into `slot`, and then the connection is stepped with
    /// `user` set.
    fn start_job(&mut self, job: Job, slot: JobSlot) -> Result<(), JobRefused>;

    /// Whether a graceful stop is under way, and listeners are closed.
    fn ends_connections(&self) -> bool;
}

/// Why a job was not started.
#[derive(Debug)]
pub(in crate::models) enum JobRefused {
    /// Nobody will ever do it.
    Closed,
    /// There is no room for it now.
    Full(Job),
}

impl<D> From<SubmitError<(Job, D)>> for JobRefused {
    fn from(error: SubmitError<(Job, D)>) -> Self {
        match error.kind {
            SubmitErrorKind::Full { .. } => Self::Full(error.rejected.0),
            // The pool is shut down: nobody will do it.
            _ => Self::Closed,
        }
    }
}

/// Where a job's result waits for its connection.
#[derive(Clone, Default)]
pub(in crate::models) struct JobSlot(Arc<Mutex<Option<JobResult>>>);

impl JobSlot {
    /// Puts in what came of the job.
    pub(in crate::models) fn put(&self, outcome: Outcome<JobResult>) {
        let result = match outcome {
            Outcome::Done(result) => result,
            // Neither is a result that a session gave out: it takes them for a failure.
            Outcome::Panicked(panic) => Box::new(JobFailed::Panicked(panic)),
            Outcome::Cancelled => Box::new(JobFailed::Cancelled),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    pub(super) fn take(&self) -> Option<JobResult> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for JobSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSlot")
    }
}

/// What carries a connection's bytes.
pub(in crate::models) trait Transport: 'static {
    /// Takes what has come, as far as there is room; none if there is nothing, 0 at the end.
    ///
    /// # Errors
    ///
    /// If the peer is gone.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<usize>>;

    /// Takes what can be taken of `output`, which is then not the connection's business any more.
    ///
    /// # Errors
    ///
    /// If the peer is gone, or a file is too short.
    fn flush(&mut self, output: &mut Output, sent_bytes: &mut u64) -> Result<Flushed, FlushError>;

    /// How much of the output that was taken has not left yet: the connection must not end then.
    fn sending_bytes(&self) -> u64 {
        0
    }

    /// Whether output that was taken can't be sent: the next flush says why.
    fn has_failed(&self) -> bool {
        false
    }

    /// Whether the peer has taken nothing since the connection last knew that it had, though there
    /// was something to take. If that is not known yet, the driver steps the connection with
    /// `timed_out` set when it is.
    fn is_stalled(&mut self) -> bool {
        true
    }

    /// Whether [`is_stalled`](Self::is_stalled) has been asked and is not known yet.
    fn is_probing(&self) -> bool {
        false
    }

    /// Closes the sending side.
    ///
    /// # Errors
    ///
    /// If the peer is gone.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// The socket, to be watched and asked for its peer.
    fn socket(&self) -> BorrowedFd<'_>;
}

/// A non-blocking socket, owned by the connection or shared with who may shut it down: bytes pass
/// when it is ready.
impl<F: AsFd + Send + 'static> Transport for F {
    #[inline]
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        net::recv(self.as_fd(), room)
    }

    #[inline]
    fn flush(&mut self, output: &mut Output, sent_bytes: &mut u64) -> Result<Flushed, FlushError> {
        flush(self.as_fd(), output, sent_bytes)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        net::shutdown_write(self.as_fd())
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}
