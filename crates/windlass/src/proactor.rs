//! The Proactor pattern: operations are started, and their completions are handled.
//!
//! A handler of the reactor is told that something could be done; a handler of the proactor is told
//! that it *was* done, and gets the buffer with the result. Operations ([`Operation`]) own all that
//! they need until then. They share a loop with ordinary events: timers, signals, posts and watched
//! descriptors work beside them, and their completions are dispatched in the same turns, by the
//! same rules (priorities, panics, the golden rule).
//!
//! # Two drivers, one meaning
//!
//! - [`Driver::Uring`]: the kernel does them, io_uring(7). The loop waits with the same ring that
//!   carries the operations, so that one system call per turn submits everything and waits.
//! - [`Driver::Emulated`]: the loop's own thread waits until an operation can be done, does it by an
//!   ordinary call, and reports the completion (the "simulated proactor"). Works everywhere; files
//!   are read, written and opened at once, which may block.
//!
//! Which one a loop uses is [configured](ProactorConfig), and [told](crate::event_loop::Reactor::proactor_driver),
//! with the reason if it is not io_uring.
//!
//! # Two ways to get completions
//!
//! 1. [`start`](crate::event_loop::Reactor::start) takes a closure for each operation.
//! 2. [`start_for`](crate::event_loop::Reactor::start_for) addresses completions to an event, made by
//!    [`completion_event`](crate::event_loop::Reactor::completion_event): its handler runs, and takes
//!    them with [`next_completion`](crate::event_loop::Reactor::next_completion). Nothing is
//!    allocated per operation; a server has one event for each connection, with its timer.
//!
//! # What holds
//!
//! - Each operation that was started has exactly one last completion, which brings it back; if its
//!   event was removed, it is cancelled and what it brings is dropped.
//! - An operation in flight keeps the loop running.
//! - Cancelling is a request: [`CancelOutcome`] says what it comes to.
//! - A loop that is dropped cancels what is in flight, and waits for it for at most a second; what
//!   the kernel does not give back then is leaked, never freed under it. Whether operations that
//!   were started and not yet submitted are begun at all is not said.
//! - After a fork, [`reinit`](crate::event_loop::Reactor::reinit) gives a child a ring of its own;
//!   what was in flight is completed as cancelled there, and goes on in the parent. Before it, a child
//!   can't wait with its parent's ring, nor start anything there: that is refused.
//!
//! # Threads
//!
//! All of it is the loop's thread's: operations are started, cancelled and completed there. Pools and
//! their buffers stay in it.
//!
//! # What is used of io_uring, and what is not
//!
//! Measured on Linux 6.18 over loopback, CPU time beside the plain way (docs/benchmarks.md):
//!
//! - Used: one issuer and deferred task work (0.80 of a ring without), multishot accept (0.88) and
//!   receive (0.9), pools of buffers (no memory for idle connections), completions of failures only,
//!   for cancels and for [quiet](crate::event_loop::Reactor::start_quietly_for) sends.
//! - On request only: [`SendZeroCopy`](Operation::SendZeroCopy), which costs 1.4 to 4.5 times as much
//!   below 1 MiB where the network copies after all, as loopback does.
//! - Not used: registered files (1.00), splices through a pipe for files (1.2 to 6 times a read and a
//!   send; sendfile(2) when the socket takes something is 0.4 to 0.9, and is what is done), and with
//!   them linked operations.
//!
//! ```
//! use std::sync::Arc;
//! use windlass::event_loop::EventLoop;
//! use windlass::proactor::{Operation, Position};
//!
//! let (reader, writer) = std::io::pipe()?;
//! let mut event_loop = EventLoop::<Vec<u8>>::new()?;
//! let read = Operation::Read {
//!     fd: Arc::new(reader.into()),
//!     buffer: Vec::with_capacity(64),
//!     position: Position::Current,
//! };
//! event_loop.start(read, |state, _cx, completion| *state = completion.into_buffer())?;
//! let write = Operation::Write {
//!     fd: Arc::new(writer.into()),
//!     payload: b"hello".to_vec().into(),
//!     position: Position::Current,
//! };
//! event_loop.start(write, |_, _, _| {})?;
//! let mut got = Vec::new();
//! event_loop.run(&mut got)?;
//! assert_eq!(got, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod choice;
mod emulated;
pub mod flags;
mod inbox;
mod waiter;

pub use windlass_sys::operation::{
    Access, Address, CancelOutcome, Completion, Create, MessageInfo, OpId, OpenOptions, Operation,
    Outcome, Payload, Position, Repeat, SharedFd, SyncExtent,
};
pub use windlass_sys::provided::{BUFFERS_MAX, PoolId, ProvidedBuffer};
pub use windlass_sys::uring::{Modes, RingOptions, Unavailable};

pub use self::choice::{
    Driver, DriverChoice, DriverError, ENVIRONMENT_VARIABLE, Fallback, ProactorConfig,
};
pub(crate) use self::choice::{OpenFailure, open};
pub(crate) use self::inbox::{Delivered, Inbox, Notice};
pub(crate) use self::waiter::Waiter;
