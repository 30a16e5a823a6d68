//! One job: what is to be done, whom to tell, and who gets to tell it.
//!
//! # Invariants
//!
//! A job is waiting, then running, then over; or waiting, then over. The completion moves with the
//! stage: whoever makes the job over, under the stage's lock, has the completion and calls it,
//! without the lock. So it is called once, whatever worker, cancellers and shutdown do.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pool::job_handle::Cancel;
use crate::session::{Job, JobResult};
use crate::sync::{Mutex, lock};

/// How a job ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// It ran to its end, with this value.
    Done(T),
    /// It was cancelled: it did not run and will not, or it is running and what comes of it will be
    /// dropped.
    Cancelled,
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
}

impl<T> Outcome<T> {
    /// The job's value, if it has one.
    #[must_use]
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Cancelled | Self::Panicked(_) => None,
        }
    }
}

/// What a job does.
pub(crate) trait Work: Send + 'static {
    /// What comes of it.
    type Output: 'static;

    fn run(self) -> Self::Output;
}

/// A closure as work.
pub(crate) struct Call<F>(pub(crate) F);

impl<T: 'static, F: FnOnce() -> T + Send + 'static> Work for Call<F> {
    type Output = T;

    fn run(self) -> T {
        (self.0)()
    }
}

impl Work for Job {
    type Output = JobResult;

    fn run(self) -> JobResult {
        Self::run(self)
    }
}

/// A job without its types, shared by the queue, the worker and the handles.
pub(super) trait Task: Send + Sync {
    /// Does the work, unless it was cancelled, and calls the completion, unless that was called.
    /// Contains and counts panics.
    fn run(&self, panics: &AtomicU64) -> Ran;

    /// Cancels the job and calls its completion, unless that was called. Contains and counts
    /// panics.
    fn cancel(&self, panics: &AtomicU64) -> Cancel;
}

/// Whether a task's work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It was cancelled before.
    No,
    /// To its end, or to a panic.
    Yes,
}

/// A job with its types.
pub(super) struct TypedTask<W, D> {
    stage: Mutex<Stage<W, D>>,
}

enum Stage<W, D> {
    Waiting { work: W, done: D },
    Running { done: D },
    Over,
}

impl<W, D> TypedTask<W, D> {
    pub(super) fn new(work: W, done: D) -> Self {
        Self {
            stage: Mutex::new(Stage::Waiting { work, done }),
        }
    }

    /// What it was made of, if it did not start.
    pub(super) fn into_parts(self) -> Option<(W, D)> {
        match self.leave_stage() {
            Stage::Waiting { work, done } => Some((work, done)),
            Stage::Running { .. } | Stage::Over => None,
        }
    }

    /// Takes the work, if it is waiting.
    fn start(&self) -> Option<W> {
        let mut stage = lock(&self.stage);
        match mem::replace(&mut *stage, Stage::Over) {
            Stage::Waiting { work, done } => {
                *stage = Stage::Running { done };
                Some(work)
            }
            // A task is run once: what is not waiting is over.
            Stage::Running { .. } | Stage::Over => None,
        }
    }

    /// Makes it over; answers what it was before, and so who calls the completion.
    fn leave_stage(&self) -> Stage<W, D> {
        mem::replace(&mut *lock(&self.stage), Stage::Over)
    }
}

impl<W, D> Task for TypedTask<W, D>
where
    W: Work,
    D: FnOnce(Outcome<W::Output>) + Send,
{
    fn run(&self, panics: &AtomicU64) -> Ran {
        let Some(work) = self.start() else {
            return Ran::No;
        };
        // Unwind safety: the work is used up; what it shares with others is behind locks of theirs,
        // as it is Send, and its panic is reported.
        let outcome = match catch_unwind(AssertUnwindSafe(|| work.run())) {
            Ok(value) => Outcome::Done(value),
            Err(payload) => Outcome::Panicked(payload),
        };
        let stage = self.leave_stage();
        contain(panics, move || match stage {
            Stage::Running { done } => done(outcome),
            // Cancelled meanwhile: the outcome is dropped here, in the worker.
            Stage::Waiting { .. } | Stage::Over => drop(outcome),
        });
        Ran::Yes
    }

    fn cancel(&self, panics: &AtomicU64) -> Cancel {
        match self.leave_stage() {
            Stage::Waiting { work, done } => {
                // Apart: the completion is called even if dropping the work panics.
                contain(panics, || drop(work));
                contain(panics, || done(Outcome::Cancelled));
                Cancel::Prevented
            }
            Stage::Running { done } => {
                contain(panics, || done(Outcome::Cancelled));
                Cancel::Running
            }
            Stage::Over => Cancel::Complete,
        }
    }
}

/// Calls `run`, which is the program's code and must not end a worker or skip others' completions.
fn contain(panics: &AtomicU64, run: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else {
        return;
    };
    panics.fetch_add(1, Ordering::Relaxed);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload whose drop panics with another of that kind could go on for ever.
        mem::forget(another);
    }
}
