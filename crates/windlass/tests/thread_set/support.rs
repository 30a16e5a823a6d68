//! Sets with threads of their own, and signs that tests wait for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse};
use windlass::thread_set::{ThreadSet, WhenEmpty};

/// What takes so long hangs: generous, as machines are loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A set that goes on until it is stopped.
pub(crate) fn set() -> ThreadSet<()> {
    ThreadSet::with_config(&BackendConfig::default(), WhenEmpty::GoOn).unwrap()
}

pub(crate) fn set_on(backend: Backend) -> ThreadSet<()> {
    let config = BackendConfig {
        force: Some(backend),
        environment: EnvironmentUse::Ignore,
        ..BackendConfig::default()
    };
    ThreadSet::with_config(&config, WhenEmpty::GoOn).unwrap()
}

/// Runs `count` threads of `set` and `program` beside them; then stops the set.
pub(crate) fn run<S: Default + 'static>(set: &ThreadSet<S>, count: usize, program: impl FnOnce()) {
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| set.join(&mut S::default()).unwrap());
        }
        // Ends the set also if the program fails.
        let _stop = Stop(set);
        program();
    });
}

struct Stop<'a, S: 'static>(&'a ThreadSet<S>);

impl<S: 'static> Drop for Stop<'_, S> {
    fn drop(&mut self) {
        self.0.handles().stop();
    }
}

/// Waits until `holds`.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::yield_now();
    }
}

/// A gate at which handlers block until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    pub(crate) blocked: AtomicU64,
}

impl Gate {
    pub(crate) fn pass(&self) {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        let (_open, timeout) = self
            .changed
            .wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open)
            .unwrap();
        assert!(!timeout.timed_out(), "the gate stays closed");
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}
