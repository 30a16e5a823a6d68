//! What the tests of the worker pool share.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use windlass::pool::{JobHandle, Outcome, PoolConfig, WorkerPool};

/// After so long something is stuck; nothing is measured by it.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

pub(crate) fn pool(threads: usize, queue_max: usize) -> WorkerPool {
    WorkerPool::new(PoolConfig {
        threads,
        queue_max,
        ..PoolConfig::default()
    })
    .unwrap()
}

/// A job that runs until its gate is dropped or opened.
pub(crate) struct Blocked {
    pub(crate) gate: Sender<()>,
    pub(crate) handle: JobHandle,
    pub(crate) outcome: Receiver<Outcome<&'static str>>,
}

/// Submits a job that blocks, and returns when it runs.
pub(crate) fn block(pool: &WorkerPool) -> Blocked {
    let (gate, closed) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let (sender, outcome) = mpsc::channel();
    let job = move || {
        started.send(()).unwrap();
        // Opened, or its owner is gone.
        let _ = closed.recv();
        "unblocked"
    };
    let handle = pool
        .submit(job, move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    running.recv_timeout(STUCK).unwrap();
    Blocked {
        gate,
        handle,
        outcome,
    }
}

/// A job that must not run.
pub(crate) fn submit_unwanted(pool: &WorkerPool) -> (JobHandle, Receiver<Outcome<()>>) {
    let (sender, outcome) = mpsc::channel();
    let job = || panic!("a cancelled job ran");
    let handle = pool
        .submit(job, move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    (handle, outcome)
}

pub(crate) fn told_once<T>(outcome: &Receiver<Outcome<T>>) -> Outcome<T> {
    let first = outcome.recv_timeout(STUCK).unwrap();
    // The completion was used up, and its sender with it, or will be in a moment.
    assert!(matches!(
        outcome.recv_timeout(STUCK),
        Err(mpsc::RecvTimeoutError::Disconnected)
    ));
    first
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < STUCK, "waited for: {what}");
        thread::yield_now();
    }
}
