//! Errors of the engine's calls.

use core::fmt;

use crate::id::RawHandle;

/// An event that could not be inserted; gives its payload back.
pub struct InsertError<P> {
    /// Why.
    pub kind: InsertErrorKind,
    /// The payload that was to be inserted.
    pub payload: P,
}

/// Why an event could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertErrorKind {
    /// The table has no room for another event.
    Full,
    /// A handle number is negative.
    HandleNegative {
        /// The number.
        raw: RawHandle,
    },
    /// The handle is watched with the other trigger already.
    MixedTriggers {
        /// The handle.
        raw: RawHandle,
    },
    /// The priority does not exist.
    PriorityRange {
        /// The one asked for.
        priority: u8,
        /// How many exist.
        priorities: u16,
    },
    /// No signal has this number.
    SignalRange {
        /// The number.
        number: i32,
    },
}

impl fmt::Display for InsertErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "insert an event: the event table is full"),
            Self::HandleNegative { raw } => write!(f, "watch handle {raw}: negative number"),
            Self::MixedTriggers { raw } => write!(
                f,
                "watch handle {raw}: all events of a handle must be level-triggered or all \
                 edge-triggered"
            ),
            Self::PriorityRange {
                priority,
                priorities,
            } => {
                write!(
                    f,
                    "insert an event of priority {priority}: there are {priorities}"
                )
            }
            Self::SignalRange { number } => write!(f, "watch signal {number}: not in 1 to 64"),
        }
    }
}

impl<P> fmt::Debug for InsertError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InsertError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Display for InsertError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<P> std::error::Error for InsertError<P> {}

/// A call that does not fit the event it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// The event is active, and this can't be changed then.
    Active,
    /// The event does not exist (any more).
    Gone,
    /// The priority does not exist.
    PriorityRange,
    /// The event watches no handle.
    NoHandle,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "change an event: it is active",
            Self::Gone => "change an event: it does not exist any more",
            Self::PriorityRange => "change an event's priority: it does not exist",
            Self::NoHandle => "change an event's interest: it watches no handle",
        })
    }
}

impl std::error::Error for EventError {}
