//! What a set of threads that take turns to wait promises.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

#[path = "thread_set/exclusion.rs"]
mod exclusion;
#[path = "thread_set/life.rs"]
mod life;
#[path = "thread_set/steps.rs"]
mod steps;
#[path = "thread_set/support.rs"]
mod support;
#[path = "thread_set/waking.rs"]
mod waking;
