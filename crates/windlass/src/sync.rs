//! The shim through which cross-thread kernels reach atomics and locks: std's, or loom's when a
//! model check is built (`--cfg loom`).
//!
//! Reference counts stay std's: loom's `Arc` can't hold a trait object.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(loom)]
pub(crate) use loom::thread;

#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::thread;

/// How a wait on a condition variable ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// By a notification, or by nothing: look again.
    Notified,
    /// The deadline is over.
    TimedOut,
}

/// Locks `mutex`. For kernels that call nobody else's code under their lock: what a panic left
/// behind is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `changed` until it is notified or `deadline` is over; without one, for as long as it
/// takes. May come back for nothing.
#[cfg(not(loom))]
pub(crate) fn wait_until<'a, T>(
    changed: &Condvar,
    _mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, Woken) {
    let Some(deadline) = deadline else {
        let guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        return (guard, Woken::Notified);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return (guard, Woken::TimedOut);
    }
    let (guard, result) = changed
        .wait_timeout(guard, left)
        .unwrap_or_else(PoisonError::into_inner);
    let woken = if result.timed_out() {
        Woken::TimedOut
    } else {
        Woken::Notified
    };
    (guard, woken)
}

/// As above. loom knows no time: a wait with a deadline times out, at any moment that the model
/// checker likes.
#[cfg(loom)]
pub(crate) fn wait_until<'a, T>(
    changed: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, Woken) {
    if deadline.is_none() {
        let guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        return (guard, Woken::Notified);
    }
    drop(guard);
    loom::thread::yield_now();
    (lock(mutex), Woken::TimedOut)
}

/// Sleeps for `limit`, or until the thread is unparked. May come back for nothing.
#[cfg(not(loom))]
pub(crate) fn park_timeout(limit: std::time::Duration) {
    thread::park_timeout(limit);
}

/// As above. loom knows no time: it comes back at any moment.
#[cfg(loom)]
pub(crate) fn park_timeout(_limit: std::time::Duration) {
    loom::thread::yield_now();
}
