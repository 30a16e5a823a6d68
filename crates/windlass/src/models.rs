//! Concurrency models: drivers that carry any [`Service`](crate::session::Service).
//!
//! Each model is a type with a builder. All obey the same [`Limits`] and the same graceful stop.
//!
//! ```no_run
//! use std::sync::Arc;
//! use windlass::models::SingleLoop;
//! use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};
//!
//! /// Sends back what it gets.
//! struct Echo;
//!
//! impl Session for Echo {
//!     type Local = ();
//!     fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
//!         cx.output.push(input.bytes);
//!         let next = if input.ended { Next::Close } else { Next::Read };
//!         Progress { consumed: input.bytes.len(), next }
//!     }
//! }
//!
//! struct EchoService;
//!
//! impl Service for EchoService {
//!     type Local = ();
//!     type Session = Echo;
//!     fn local(&self) {}
//!     fn open(&self, _local: &mut (), _peer: &Peer, _now: Now) -> Echo {
//!         Echo
//!     }
//! }
//!
//! let addr = "127.0.0.1:7007".parse()?;
//! let mut server = SingleLoop::builder(Arc::new(EchoService)).listen(addr).build()?;
//! println!("{}", server.run()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | model | who waits | who reads and writes | who computes | choose it when |
//! | --- | --- | --- | --- | --- |
//! | [`SingleLoop`] | one thread | the same | the same; jobs in a pool | answers are short and nothing blocks |
//! | [`MultiLoop`] | one thread per loop | the one whose loop has the connection | the same; jobs in a pool | the same, and one core is not enough |

mod group;
mod handle;
mod limits;
mod listening;
mod multi_loop;
mod report;
mod room;
mod single_loop;

pub use windlass_sys::net::UnixOptions;

pub use self::handle::{LoopHandle, StopHandle};
pub use self::limits::Limits;
pub use self::listening::BindError;
pub use self::multi_loop::{MultiLoop, MultiLoopBuilder};
pub use self::report::{ConnectionPhase, CutConnection, ServerReport};
pub use self::single_loop::{ServerState, SingleLoop, SingleLoopBuilder};
