//! The error of a submission; gives back what was submitted.

use std::error::Error;
use std::fmt;

use windlass_core::InsertErrorKind;

/// A job that was not accepted; gives back what was handed in.
pub struct SubmitError<T = ()> {
    /// Why.
    pub kind: SubmitErrorKind,
    /// What was handed in: the job and its completion.
    pub rejected: T,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The pool is closed.
    Closed,
    /// The loop has no place for the completion's event.
    Engine(InsertErrorKind),
    /// All threads are busy and as many jobs wait as may.
    Full {
        /// How many that is.
        queue_max: usize,
    },
}

impl<T> SubmitError<T> {
    /// The same error about something else.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> SubmitError<U> {
        SubmitError {
            kind: self.kind,
            rejected: f(self.rejected),
        }
    }
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("submit a job: the pool is closed"),
            Self::Engine(kind) => kind.fmt(f),
            Self::Full { queue_max } => {
                write!(
                    f,
                    "submit a job: {queue_max} wait already, the most that may"
                )
            }
        }
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> fmt::Debug for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<T> Error for SubmitError<T> {}
