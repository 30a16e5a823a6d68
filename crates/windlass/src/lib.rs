//! The event loop, sessions and concurrency models of Windlass.
//!
//! | to … | use |
//! | --- | --- |
//! | run a loop over your program's state | [`EventLoop`](event_loop::EventLoop) |
//! | watch a descriptor, owned (`T`) or borrowed (`&T`) | [`on_readable`], [`on_writable`], [`watch`] |
//! | be called later, or periodically | [`after`], [`every`], [`timer`] and [`arm_after`] |
//! | catch a signal, read lines | [`on_signal`], [`on_line`] |
//! | change or remove what was registered | [`Reactor`]'s methods, from any handler too |
//! | call into the loop from another thread | [`poster`], [`waker`] |
//! | start operations, be called when they are complete | [`start`], and [`proactor`] |
//! | run what blocks or computes | [`WorkerPool`](pool::WorkerPool) and [`submit`] |
//! | find out which handler is slow or stuck | [`slow_handlers`], [`watch_for_stuck_handlers`] |
//! | write a protocol without I/O | [`session::Session`] and [`session::Service`] |
//! | serve it, from one loop or one per core | [`models::SingleLoop`], [`models::MultiLoop`] |
//! | have several threads take turns to wait (leader/followers) | [`thread_set::ThreadSet`] |
//!
//! HTTP is a service in a crate of its own, `windlass-http`; the engine below, for loops of one's
//! own, is `windlass-core`.
//!
//! [`Reactor`]: event_loop::Reactor
//! [`after`]: event_loop::Reactor::after
//! [`arm_after`]: event_loop::Reactor::arm_after
//! [`every`]: event_loop::Reactor::every
//! [`on_line`]: event_loop::Reactor::on_line
//! [`on_readable`]: event_loop::Reactor::on_readable
//! [`on_signal`]: event_loop::Reactor::on_signal
//! [`on_writable`]: event_loop::Reactor::on_writable
//! [`poster`]: event_loop::Reactor::poster
//! [`slow_handlers`]: event_loop::Reactor::slow_handlers
//! [`start`]: event_loop::Reactor::start
//! [`submit`]: event_loop::Reactor::submit
//! [`timer`]: event_loop::Reactor::timer
//! [`waker`]: event_loop::Reactor::waker
//! [`watch`]: event_loop::Reactor::watch
//! [`watch_for_stuck_handlers`]: event_loop::Reactor::watch_for_stuck_handlers

#![forbid(unsafe_code)]

pub mod demultiplexer;
pub mod event_loop;
pub mod files;
pub mod models;
pub mod pool;
pub mod proactor;
pub mod session;
mod sync;
pub mod thread_set;

pub use windlass_core::{
    Accounting, CatchUp, CommonTimeout, CommonTimeoutError, Counters, DispatchLimit, Disposition,
    EngineConfig, EventDemultiplexer, EventError, EventId, EventInfo, Features, FreshActivations,
    HandleSharing, Happened, InsertErrorKind, Instant, Interest, Lifetime, Notify, Readiness,
    RunMode, Source, State, StopReason, Timeout, Trigger, WatcherId,
};
