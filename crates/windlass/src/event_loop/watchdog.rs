//! The watchdog: a thread that reports a handler that is still running after a limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use windlass_core::EventId;
use windlass_sys::clock;

use crate::event_loop::golden_rule::{Origin, Origins};
use crate::event_loop::reactor::Reactor;

/// A handler that is still running.
#[derive(Clone, Debug)]
pub struct StuckHandler {
    /// Its event.
    pub event: EventId,
    /// Where it comes from.
    pub origin: Origin,
    /// How long it has been running.
    pub running_for: Duration,
}

impl fmt::Display for StuckHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "handler {} has been running for {:?}",
            self.origin, self.running_for
        )
    }
}

/// Which handler runs, since when: written by the loop, read by the watchdog.
///
/// `since_ns` is written last and read first and last, so that an event is never reported with
/// another's time.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    event: AtomicU64,
    /// Zero: none runs.
    since_ns: AtomicU64,
}

impl Heartbeat {
    #[inline]
    pub(super) fn begin(&self, event: EventId) {
        // Who sees this event sees that the one before has ended.
        self.event.store(event.to_bits(), Ordering::Release);
        self.since_ns
            .store(clock::monotonic_coarse_ns(), Ordering::Release);
    }

    #[inline]
    pub(super) fn end(&self) {
        self.since_ns.store(0, Ordering::Release);
    }

    fn running(&self) -> Option<(EventId, u64)> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let event = EventId::from_bits(self.event.load(Ordering::Acquire));
        let same = self.since_ns.load(Ordering::Acquire) == since_ns;
        (since_ns != 0 && same).then_some((event, since_ns))
    }
}

/// A running watchdog; dropping it ends its thread.
#[derive(Debug)]
pub struct Watchdog {
    /// The process that has the thread; a child after a fork has not.
    process: u32,
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// Starts a thread that looks twice per `limit` which handler runs, and calls `report`, once,
    /// for one that has been running for longer. One watchdog per loop: a second replaces the
    /// first, which reports nothing more.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn watch_for_stuck_handlers<F>(
        &mut self,
        limit: Duration,
        report: F,
    ) -> io::Result<Watchdog>
    where
        F: FnMut(&StuckHandler) + Send + 'static,
    {
        let heartbeat = Arc::new(Heartbeat::default());
        let end = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = {
            let (heartbeat, end) = (Arc::clone(&heartbeat), Arc::clone(&end));
            let origins = self.origins.clone();
            Builder::new()
                .name("windlass-watchdog".into())
                .spawn(move || look(&heartbeat, &origins, &end, limit, report))?
        };
        if let Some(replaced) = self.heartbeat.replace(heartbeat) {
            // The handler that runs now, if one does, is the new one's.
            replaced.end();
        }
        Ok(Watchdog {
            process: std::process::id(),
            end,
            thread: Some(thread),
        })
    }
}

fn look(
    heartbeat: &Heartbeat,
    origins: &Origins,
    end: &(Mutex<bool>, Condvar),
    limit: Duration,
    mut report: impl FnMut(&StuckHandler),
) {
    let (ended, changed) = end;
    let mut reported = None;
    let mut guard = ended.lock().unwrap_or_else(PoisonError::into_inner);
    while !*guard {
        let pause = (limit / 2).max(Duration::from_millis(1));
        guard = changed
            .wait_timeout(guard, pause)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        let Some(running) = heartbeat.running() else {
            continue;
        };
        let running_for =
            Duration::from_nanos(clock::monotonic_coarse_ns().saturating_sub(running.1));
        if running_for > limit
            && reported != Some(running)
            && let Some(origin) = origins.get(running.0)
        {
            reported = Some(running);
            report(&StuckHandler {
                event: running.0,
                origin,
                running_for,
            });
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // Nobody would end, nor release the lock if it was held at the fork.
            std::mem::forget(self.thread.take());
            return;
        }
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the report ended it: there is nothing to join any more.
            let _ = thread.join();
        }
    }
}
