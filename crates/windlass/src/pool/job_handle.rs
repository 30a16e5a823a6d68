//! The handle of a job: cancels it.

use std::fmt;
use std::sync::Arc;

use crate::pool::Shared;
use crate::pool::queue::Ticket;
use crate::pool::task::Task;

/// A job that was accepted. Dropping the handle changes nothing; it keeps no pool open.
#[derive(Clone)]
pub struct JobHandle {
    task: Arc<dyn Task>,
    ticket: Ticket,
    shared: Arc<Shared>,
}

/// What a [`cancel`](JobHandle::cancel) came to. After each of them the job's completion has been
/// called, or is being called by another thread: exactly once, whatever happens at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// The job had not started and will not run; its place in the queue is free. Its completion was
    /// called with [`Cancelled`](super::Outcome::Cancelled).
    Prevented,
    /// The job runs and goes on, in its worker; what comes of it will be dropped. Its completion
    /// was called with [`Cancelled`](super::Outcome::Cancelled), at once: nobody has to wait for
    /// the job.
    Running,
    /// The completion was called before: the job ended, or was cancelled.
    Complete,
}

impl JobHandle {
    pub(super) fn new(task: Arc<dyn Task>, ticket: Ticket, shared: Arc<Shared>) -> Self {
        Self {
            task,
            ticket,
            shared,
        }
    }

    /// Cancels the job, if it is not over. The completion of one that was submitted to the pool is
    /// called here, in this thread, before this returns; that of one that was submitted through a
    /// loop is called by its loop, in a turn to come.
    ///
    /// From any thread, also from handlers, jobs and completions. Takes the pool's lock for a
    /// moment: O(log n) in the jobs that wait.
    pub fn cancel(&self) -> Cancel {
        // First of all the place is freed: the completion may submit another job. From here on no
        // worker takes the task, or one has and finds out in it that it is over.
        self.shared.queue.forget(self.ticket);
        self.task.cancel(&self.shared.contained_panics)
    }
}

impl fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
