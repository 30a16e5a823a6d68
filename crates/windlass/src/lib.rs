//! The event loop, sessions and concurrency models of Windlass.
//!
//! Start with [`event_loop::EventLoop`].

#![forbid(unsafe_code)]

pub mod demultiplexer;
pub mod event_loop;
pub mod files;
pub mod models;
pub mod pool;
pub mod session;
mod sync;

pub use windlass_core::{
    Accounting, CatchUp, CommonTimeout, CommonTimeoutError, Counters, DispatchLimit, Disposition,
    EngineConfig, EventDemultiplexer, EventError, EventId, EventInfo, Features, FreshActivations,
    HandleSharing, Happened, InsertErrorKind, Instant, Interest, Lifetime, Notify, Readiness,
    RunMode, Source, State, StopReason, Timeout, Trigger, WatcherId,
};
