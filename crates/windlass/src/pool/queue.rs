//! The job queue and who works on it: a bounded queue (the half-sync/half-async pattern's) with a
//! lock and a condition variable.
//!
//! # Invariants
//!
//! A worker that was started or is about to be, and runs no job, looks at the queue before it
//! sleeps or ends, under the lock: it is idle. Of the idle ones, `sleepers` are in their wait, and
//! `wakes` of those were notified by a push and have not come back yet.
//!
//! 1. If `sleepers > wakes`, so that somebody may sleep on, no more than `wakes` jobs wait: each
//!    push notifies as long as it is so. Hence a job is never left behind a sleeping worker.
//! 2. If more jobs wait than workers are idle, there are as many workers as may be, or one could
//!    not be started: each push that finds it otherwise asks for another. Hence a job never waits
//!    behind one that blocks, while a further worker could be had.
//! 3. `wakes <= sleepers`. A worker that comes back takes a wake along, even if it was another's:
//!    it looks for a job just as well. A wait that timed out is no different.
//!
//! A worker ends for want of jobs only when it has seen the queue empty, in the same critical
//! section in which it ceases to be idle.
//!
//! # Threads
//!
//! All of it is behind one lock, under which no code of the program runs: `J` is a reference count
//! or a number. The lock is taken once to push, once per job to hand one back and take the next.
//!
//! # Cost
//!
//! Jobs are kept by ticket: O(log n) to push, take, and forget from the middle. A push makes a
//! system call only if a worker sleeps.

#[cfg(all(test, loom))]
mod loom_model;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::pool::shutdown::Drain;
use crate::sync::{Condvar, Mutex, MutexGuard, Woken, lock, wait_until};

/// Names a job for the life of its pool; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What bounds a queue and its workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) queue_max: usize,
    pub(super) workers_max: usize,
    /// So many never end for want of jobs.
    pub(super) workers_min: usize,
    /// After how long without a job the others end.
    pub(super) idle_timeout: Option<Duration>,
}

/// Jobs that wait, jobs that run, and the workers between them.
pub(super) struct JobQueue<J> {
    state: Mutex<State<J>>,
    /// A job came, or the queue was closed: workers wait for it.
    work: Condvar,
    /// The last worker ended: shutdown waits for it.
    gone: Condvar,
    limits: Limits,
}

struct State<J> {
    waiting: BTreeMap<Ticket, J>,
    running: BTreeMap<Ticket, J>,
    ticket_next: u64,
    /// Started, or about to be, and not ended.
    workers: usize,
    /// Of these, in their wait.
    sleepers: usize,
    /// Of these, notified.
    wakes: usize,
    finished: u64,
    closed: bool,
}

/// A job that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct Pushed {
    pub(super) ticket: Ticket,
    /// Whether the caller must start a worker; it is counted already.
    pub(super) start_worker: bool,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Closed,
    Full,
}

/// A job that a worker took is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) ticket: Ticket,
    /// Whether it counts as finished.
    pub(super) finished: bool,
}

/// Numbers of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Census {
    pub(super) waiting: usize,
    pub(super) running: usize,
    pub(super) workers: usize,
    pub(super) finished: u64,
}

/// What is left of a queue that is given up.
pub(super) struct Leftovers<J> {
    /// Taken out; no worker will see them.
    pub(super) waiting: Vec<J>,
    pub(super) running: Vec<(Ticket, J)>,
}

impl<J: Clone> JobQueue<J> {
    /// An empty queue with `workers` workers that the caller is about to start.
    pub(super) fn new(limits: Limits, workers: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: BTreeMap::new(),
                running: BTreeMap::new(),
                ticket_next: 0,
                workers,
                sleepers: 0,
                wakes: 0,
                finished: 0,
                closed: false,
            }),
            work: Condvar::new(),
            gone: Condvar::new(),
            limits,
        }
    }

    /// Accepts a job, or gives it back.
    pub(super) fn push(&self, job: J) -> Result<Pushed, (Refusal, J)> {
        let Limits {
            queue_max,
            workers_max,
            ..
        } = self.limits;
        let mut state = self.lock();
        if state.closed {
            return Err((Refusal::Closed, job));
        }
        // Not the length of the queue alone: a burst must not be refused because workers that are
        // idle did not wake up yet.
        if state.waiting.len() + state.running.len() >= queue_max.saturating_add(workers_max) {
            return Err((Refusal::Full, job));
        }
        let ticket = Ticket(state.ticket_next);
        state.ticket_next += 1;
        state.waiting.insert(ticket, job);
        let idle = state.workers - state.running.len();
        let start_worker = state.waiting.len() > idle && state.workers < workers_max;
        state.workers += usize::from(start_worker);
        let wake = state.sleepers > state.wakes;
        state.wakes += usize::from(wake);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(Pushed {
            ticket,
            start_worker,
        })
    }

    /// A worker has done a job, or is new, and gets the next one: waits for it. `None`: the worker
    /// is to end, and counts no more.
    pub(super) fn next(&self, ended: Option<Ended>) -> Option<(Ticket, J)> {
        let mut state = self.lock();
        if let Some(Ended { ticket, finished }) = ended {
            state.running.remove(&ticket);
            state.finished += u64::from(finished);
        }
        let mut idle_deadline = None;
        let mut woken = Woken::Notified;
        loop {
            if let Some((ticket, job)) = state.waiting.pop_first() {
                state.running.insert(ticket, job.clone());
                return Some((ticket, job));
            }
            let surplus = state.workers > self.limits.workers_min;
            if state.closed || surplus && woken == Woken::TimedOut {
                break;
            }
            let deadline = match self.limits.idle_timeout {
                Some(timeout) if surplus => {
                    *idle_deadline.get_or_insert_with(|| Instant::now().checked_add(timeout))
                }
                _ => None,
            };
            state.sleepers += 1;
            (state, woken) = wait_until(&self.work, &self.state, state, deadline);
            state.sleepers -= 1;
            state.wakes = state.wakes.saturating_sub(1);
        }
        self.end_worker(state);
        None
    }

    /// A worker that was to be started could not be. Jobs that counted on it are taken by others,
    /// as soon as these can run.
    pub(super) fn worker_failed(&self) {
        self.end_worker(self.lock());
    }

    fn end_worker(&self, mut state: MutexGuard<'_, State<J>>) {
        state.workers -= 1;
        let last = state.workers == 0;
        drop(state);
        if last {
            self.gone.notify_all();
        }
    }

    /// Takes a job that waits out of the queue; does nothing if it does not.
    pub(super) fn forget(&self, ticket: Ticket) {
        let job = self.lock().waiting.remove(&ticket);
        // Without the lock.
        drop(job);
    }

    /// Accepts no more jobs. Answers those that wait, if they are not to be run: the caller
    /// cancels them. Workers end when there is nothing left for them.
    pub(super) fn close(&self, drain: Drain) -> Vec<J> {
        let mut state = self.lock();
        state.closed = true;
        state.wakes = state.sleepers;
        let jobs = match drain {
            Drain::Cancel => std::mem::take(&mut state.waiting),
            Drain::Run => BTreeMap::new(),
        };
        drop(state);
        self.work.notify_all();
        jobs.into_values().collect()
    }

    /// Waits until all workers have ended, of a queue that was closed, or until `deadline`.
    pub(super) fn wait_for_workers(&self, deadline: Option<Instant>) {
        let mut state = self.lock();
        let mut woken = Woken::Notified;
        while state.workers > 0 && woken != Woken::TimedOut {
            (state, woken) = wait_until(&self.gone, &self.state, state, deadline);
        }
    }

    /// Takes the jobs that wait out of the queue, and lists those that run.
    pub(super) fn give_up(&self) -> Leftovers<J> {
        let mut state = self.lock();
        Leftovers {
            waiting: std::mem::take(&mut state.waiting).into_values().collect(),
            running: (state.running.iter())
                .map(|(ticket, job)| (*ticket, job.clone()))
                .collect(),
        }
    }

    pub(super) fn is_running(&self, ticket: Ticket) -> bool {
        self.lock().running.contains_key(&ticket)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn census(&self) -> Census {
        let state = self.lock();
        Census {
            waiting: state.waiting.len(),
            running: state.running.len(),
            workers: state.workers,
            finished: state.finished,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        lock(&self.state)
    }
}
