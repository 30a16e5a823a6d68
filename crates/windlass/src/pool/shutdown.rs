//! How a pool ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pool::job_handle::Cancel;
use crate::pool::queue::Leftovers;
use crate::pool::task::Task;
use crate::pool::{Shared, WorkerPool};

/// What becomes of the jobs that wait when a pool is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// They are cancelled.
    #[default]
    Cancel,
    /// They are run.
    Run,
}

/// What a [`shutdown`](WorkerPool::shutdown) came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct ShutdownReport {
    /// How many jobs ran to their end (or a panic) meanwhile.
    pub finished: u64,
    /// How many had not started and will not run.
    pub cancelled: u64,
    /// How many still run, in threads that were let go.
    pub abandoned: u64,
}

impl WorkerPool {
    /// Accepts no more jobs, cancels those that wait, and waits up to `limit` for those that run.
    ///
    /// Those that still run then are abandoned: what comes of them will be dropped, their
    /// completions are called with [`Cancelled`](super::Outcome::Cancelled), and their threads are
    /// let go; a process can end while they run. With a limit of zero nothing is waited for.
    ///
    /// When it returns, the completion of each job was called, or is being called by another
    /// thread; and if none was abandoned, all threads have ended but for their very last
    /// instructions. A second call, or one at the same time, does no harm.
    ///
    /// # Threads
    ///
    /// Blocks: not for handlers of a loop, unless with a limit of zero. A job of the pool itself
    /// that calls this waits for itself, and so for the whole limit, for ever if that is
    /// `Duration::MAX`.
    pub fn shutdown(&self, limit: Duration) -> ShutdownReport {
        self.shutdown_with(Drain::Cancel, limit)
    }

    /// As [`shutdown`](Self::shutdown); `drain` says what becomes of the jobs that wait. If they are
    /// to be run, those that did not start within `limit` are cancelled.
    pub fn shutdown_with(&self, drain: Drain, limit: Duration) -> ShutdownReport {
        let deadline = Instant::now().checked_add(limit);
        let shared = &self.owner.shared;
        let finished_before = shared.queue.census().finished;
        let mut cancelled = shared.close(drain);
        shared.queue.wait_for_workers(deadline);
        let Leftovers { waiting, running } = shared.queue.give_up();
        cancelled += shared.cancel_all(waiting);
        for (_, task) in &running {
            // Whatever it answers: the completion was called, once.
            let _ = task.cancel(&shared.contained_panics);
        }
        // A job that ended at this very moment is not abandoned.
        let abandoned = running
            .iter()
            .filter(|(ticket, _)| shared.queue.is_running(*ticket))
            .count();
        ShutdownReport {
            finished: shared.queue.census().finished - finished_before,
            cancelled,
            abandoned: abandoned as u64,
        }
    }

    /// Accepts no more jobs, and returns at once: jobs that run go on and are reported when they
    /// end, those that wait are cancelled or run, and the threads end when nothing is left.
    ///
    /// Dropping the last pool handle is `close(Drain::Cancel)`.
    pub fn close(&self, drain: Drain) {
        self.owner.shared.close(drain);
    }

    /// Whether the pool accepts no more jobs.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.owner.shared.queue.is_closed()
    }
}

impl Shared {
    /// Closes the queue; answers how many jobs were cancelled.
    pub(super) fn close(&self, drain: Drain) -> u64 {
        let waiting = self.queue.close(drain);
        self.cancel_all(waiting)
    }

    fn cancel_all(&self, tasks: Vec<Arc<dyn Task>>) -> u64 {
        let prevented = tasks
            .iter()
            .map(|task| task.cancel(&self.contained_panics))
            .filter(|cancel| *cancel == Cancel::Prevented);
        prevented.count() as u64
    }
}
