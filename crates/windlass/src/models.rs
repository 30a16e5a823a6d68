//! Concurrency models: drivers that carry any [`Service`](crate::session::Service).
//!
//! Each model is a type with a builder. All obey the same [`Limits`] and the same graceful stop.
//!
//! | model | who waits | who reads and writes | who computes | choose it when |
//! | --- | --- | --- | --- | --- |
//! | [`SingleLoop`] | one thread | the same | the same; jobs in a pool | answers are short and nothing blocks |

mod limits;
mod single_loop;

pub use self::limits::{Limits, ServerReport};
pub use self::single_loop::{BindError, ServerState, SingleLoop, SingleLoopBuilder, StopHandle};
