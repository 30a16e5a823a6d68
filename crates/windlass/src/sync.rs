//! The shim through which cross-thread kernels reach atomics and locks: std's, or loom's when a
//! model check is built (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic;

#[cfg(not(loom))]
pub(crate) use std::sync::atomic;
