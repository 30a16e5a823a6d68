//! The sans-I/O engine of Windlass: handle set, timers, ready queues, and the five steps of a turn.
//!
//! Nothing here makes a system call, reads a clock, takes a lock or knows what a descriptor is.
//! A driver hands in what happened (readiness, the time, signals) and asks what to do next (which
//! interests changed, how long it may wait, which handler runs). The same engine carries a
//! single-threaded event loop, a leader/followers thread set behind a mutex, and an event base
//! with its own locks.
//!
//! # One turn
//!
//! ```text
//!  prepare ──WaitPlan──▶ wait ──Waited──▶ activate ──Turn──▶ dispatch ──Call──▶ (handler runs)
//!     ▲                 (driver)                                ▲                    │
//!     └───────────────── finish ◀── nothing left ───────────────┴──── settle ◀───────┘
//! ```
//!
//! Each arrow is a token that is neither `Clone` nor `Copy`, so that no step runs twice and none
//! is skipped. A handler's payload is moved out of the engine while it runs: the engine is not
//! borrowed, and may be locked by other threads or changed by the handler itself.
//!
//! # Cost
//!
//! No hash map on the way from a report to its event; no allocation per event once the tables have
//! grown; timers cost O(1) amortised.

#![forbid(unsafe_code)]

mod demultiplexer;
mod engine;
mod event_table;
mod handle_set;
mod id;
mod interest;
mod ready_queue;
mod signal_set;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod time;
mod timer_queue;

pub use crate::demultiplexer::{
    Batch, Change, ChangeKind, EventDemultiplexer, Features, Notify, Report,
};
pub use crate::engine::config::{
    DispatchLimit, EngineConfig, FreshActivations, HandleSharing, PRIORITIES_MAX, RunMode,
};
pub use crate::engine::control::{Step, StopReason, TurnEnd};
pub use crate::engine::counters::Counters;
pub use crate::engine::dump::EventInfo;
pub use crate::engine::error::{EventError, InsertError, InsertErrorKind};
pub use crate::engine::token::{Call, Happened, InFlight, Settled, Turn, Wait, WaitPlan, Waited};
pub use crate::engine::watcher::{WatcherCall, WatcherCursor, WatcherId, WatcherKind};
pub use crate::engine::{Disposition, Engine};
pub use crate::event_table::{Accounting, CatchUp, EventSpec, Lifetime, Source, State, Timeout};
pub use crate::id::{EventId, HandleId, RawHandle};
pub use crate::interest::{Interest, Readiness, Trigger};
pub use crate::signal_set::SignalSet;
pub use crate::time::Instant;
pub use crate::timer_queue::{CommonTimeout, CommonTimeoutError, Due, TimerQueue};

/// The sketch of a driver compiles against this API.
#[cfg(doctest)]
mod sketches {
    #[doc = include_str!("../../../docs/driver-event-base.md")]
    struct EventBase;
}
