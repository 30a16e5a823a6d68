//! Notifiers: how what happens outside of a connection reaches its session.
//!
//! A session that waits for something that is neither input nor room for output (a job of another
//! connection, a message to be passed on, a producer of a streamed answer) takes a [`Notifier`]
//! and gives it away. Using it has the driver call
//! [`Session::advance`](crate::session::Session::advance) again, in the session's own thread.
//!
//! # Threads
//!
//! A notifier may be used from any thread, also when the connection is gone: then nothing happens.
//! Uses merge: after the last one at least one call begins.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Has a session called again. Cheap to clone; one atomic operation if a call is due already.
#[derive(Clone)]
pub struct Notifier(Arc<Shared<dyn Fn() + Send + Sync>>);

struct Shared<F: ?Sized> {
    pending: AtomicBool,
    wake: F,
}

impl Notifier {
    /// Makes a notifier for a driver: `wake` has it look after the connection. It is called from
    /// any thread, but once only until the driver [takes](Self::take) the notification.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            pending: AtomicBool::new(false),
            wake,
        }))
    }

    /// Has the session called.
    pub fn notify(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            (self.0.wake)();
        }
    }

    /// For the driver, before it calls the session: whether there was a notification. Takes it.
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.pending.load(Ordering::Relaxed) && self.0.pending.swap(false, Ordering::AcqRel)
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier")
            .field("pending", &self.0.pending)
            .finish_non_exhaustive()
    }
}

/// Where a session gets its notifier: made at the first request, and then kept by the driver.
pub struct Wakeups<'a> {
    slot: &'a mut Option<Notifier>,
    make: &'a dyn Fn() -> Notifier,
}

impl<'a> Wakeups<'a> {
    /// Hands out what is in `slot`, filled by `make` at the first request.
    pub fn new(slot: &'a mut Option<Notifier>, make: &'a dyn Fn() -> Notifier) -> Self {
        Self { slot, make }
    }

    /// The connection's notifier.
    pub fn notifier(&mut self) -> Notifier {
        self.slot.get_or_insert_with(self.make).clone()
    }

    /// The same, for a session within the session.
    pub fn reborrow(&mut self) -> Wakeups<'_> {
        Wakeups {
            slot: self.slot,
            make: self.make,
        }
    }
}

impl fmt::Debug for Wakeups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups")
            .field("notifier", &self.slot)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn notifications_merge_until_they_are_taken() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let notifier = Notifier::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert!(!notifier.take());
        notifier.notify();
        notifier.notify();
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        assert!(notifier.take() && !notifier.take());
        notifier.notify();
        assert_eq!(wakes.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn notifier_is_made_once() {
        let mut slot = None;
        let made = std::cell::Cell::new(0);
        let make = || {
            made.set(made.get() + 1);
            Notifier::new(|| {})
        };
        let mut wakeups = Wakeups::new(&mut slot, &make);
        wakeups.notifier().notify();
        assert!(wakeups.reborrow().notifier().take());
        assert_eq!(made.get(), 1);
    }
}
