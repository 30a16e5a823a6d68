//! Where the jobs of a loop's sessions are done.

use std::sync::Arc;

use crate::pool::{Outcome, WorkerPool};
use crate::session::{Job, JobResult};

/// Where the jobs are done that sessions off-load ([`Next::Job`](crate::session::Next::Job)), in
/// models of event loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jobs {
    /// At once, by the loop itself, which does nothing else meanwhile. Saves the hand-over of jobs
    /// that are known to be short; of long ones it shows what it costs when loops are blocked.
    InLoop,
    /// By the worker pool.
    #[default]
    InPool,
}

/// The same, for a loop's parts.
#[derive(Clone)]
pub(super) enum JobSite {
    Loop,
    Pool(WorkerPool),
    /// By the workers that call the sessions.
    Workers(Arc<dyn DoJobs>),
}

/// What is told when a job is done.
pub(super) type JobDone = Box<dyn FnOnce(Outcome<JobResult>) + Send>;

/// Those who do jobs beside other things.
pub(super) trait DoJobs: Send + Sync {
    /// Has `job` done, in another thread, and `done` called there. Neither is if they have ended.
    fn do_job(&self, job: Job, done: JobDone);
}
