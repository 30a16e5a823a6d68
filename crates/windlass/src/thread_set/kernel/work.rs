//! What passes between the kernel and a thread of its set: what that is to do, and what became of it.

use std::io;

use windlass_core::{Call, Disposition, InFlight, InsertErrorKind, Instant};

use crate::sync::thread::Thread;

/// What a thread is to do.
#[derive(Debug)]
pub(in crate::thread_set) enum Work<P> {
    /// [Promote](super::Kernel::promote), then handle this; what became of it goes into the next call.
    Call(Taken<P>),
    /// Somebody [called](super::Kernel::call) this thread.
    Called,
    /// The set has ended.
    Over,
    /// Nothing: see to what is to be done before the thread waits, and say so in the next call.
    Rest,
}

/// An event that a thread took.
#[derive(Debug)]
pub(in crate::thread_set) struct Taken<P> {
    pub(in crate::thread_set) call: Call<P>,
    /// When the wait ended that brought it.
    pub(in crate::thread_set) now: Instant,
    pub(in crate::thread_set) promotion: Promotion<P>,
}

/// What comes before the handler of an event that was taken: the thread that takes the place of
/// this one was chosen, and nobody else will wake it.
#[derive(Debug)]
#[must_use = "until it is promoted, the thread that was chosen sleeps"]
pub(in crate::thread_set) struct Promotion<P> {
    pub(super) wake: Wake,
    /// To be dropped after.
    pub(super) released: Vec<P>,
}

/// An event that could not be registered.
#[derive(Debug)]
pub(in crate::thread_set) struct Refused<P> {
    pub(in crate::thread_set) kind: RefusedKind,
    pub(in crate::thread_set) payload: Option<P>,
}

#[derive(Debug)]
pub(in crate::thread_set) enum RefusedKind {
    Demultiplexer(io::Error),
    Engine(InsertErrorKind),
}

/// What became of a call.
#[derive(Debug)]
pub(in crate::thread_set) struct Done<P> {
    pub(in crate::thread_set) token: InFlight,
    pub(in crate::thread_set) payload: P,
    /// None: it panicked.
    pub(in crate::thread_set) answer: Option<Disposition>,
}

/// Whether a thread has seen to what is to be done before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread_set) enum Rested {
    No,
    Yes,
}

/// Whom to wake when the lock is released.
#[derive(Debug, Default)]
pub(super) struct Wake {
    pub(super) thread: Option<Thread>,
    pub(super) leader: bool,
}
