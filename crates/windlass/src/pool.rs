//! The worker pool: a bounded set of threads for what may block or compute, so that loops need not
//! (the half-sync/half-async pattern).
//!
//! A job is a closure that runs in a worker; what comes of it goes to its completion, as an
//! [`Outcome`]. [`Reactor::submit`](crate::event_loop::Reactor::submit), from a loop or a handler,
//! makes the completion an event of that loop. [`WorkerPool::submit`] is for drivers of other
//! kinds: the completion runs in the worker.
//!
//! # What is promised
//!
//! 1. Exactly once: the completion of an accepted job is called once, whatever workers, cancels and
//!    shutdown do at the same time.
//! 2. No help needed: an accepted job starts as soon as a worker can run it, whether or not other
//!    jobs come. Jobs start in the order in which they were accepted.
//! 3. Bounded: no more than `threads + queue_max` jobs; beyond that the job comes back in the error.
//! 4. Contained: a job that panics is reported as such. A completion that panics, or a value whose
//!    drop does, is counted ([`PoolCounters::contained_panics`]). The worker lives on.
//! 5. No hostages: a job that does not end keeps nobody waiting: it can be cancelled while it runs,
//!    shutdown has a limit, and dropping the pool waits for nothing.
//!
//! # Threads
//!
//! `threads_min` are started with the pool, the others when a job finds none idle: that submission
//! pays for pthread_create(3). For an even cost let `threads_min` be `threads`. Signal masks are those
//! of the thread that starts them. They do not survive a fork.
//!
//! # Cost
//!
//! One allocation per job (three more through a loop), one lock to submit and one to take the next
//! job; a wake-up, futex(2), only if a worker sleeps. Meant for jobs of 10 µs and more.

mod config;
mod error;
mod job_handle;
mod queue;
mod shutdown;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io, thread};

use self::queue::{Ended, JobQueue, Limits, Pushed, Refusal};
pub(crate) use self::task::{Call, Work};
use self::task::{Ran, Task, TypedTask};
use crate::session::{Job, JobResult};

pub use self::config::PoolConfig;
pub use self::error::{SubmitError, SubmitErrorKind};
pub use self::job_handle::{Cancel, JobHandle};
pub use self::shutdown::{Drain, ShutdownReport};
pub use self::task::Outcome;

/// A handle of a worker pool; clones are handles of the same pool. Any thread may use it.
///
/// Dropping the last one closes the pool: jobs that wait are cancelled (in the dropping thread),
/// jobs that run go on and are reported when they end, and nobody waits for them. Job handles do
/// not count.
///
/// ```
/// use std::sync::mpsc;
/// use windlass::pool::{Outcome, PoolConfig, WorkerPool};
///
/// let pool = WorkerPool::new(PoolConfig::default())?;
/// let (sender, receiver) = mpsc::channel();
/// pool.submit(
///     || (1..=20_u64).product::<u64>(),
///     move |outcome| sender.send(outcome).expect("the receiver is there"),
/// )?;
/// assert!(matches!(receiver.recv()?, Outcome::Done(2_432_902_008_176_640_000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WorkerPool {
    owner: Arc<Owner>,
}

/// Numbers of a pool, of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCounters {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that run, including those that were cancelled meanwhile.
    pub running: usize,
    /// Threads, idle ones included.
    pub threads: usize,
    /// Jobs that ran to their end (or a panic) since the pool was made.
    pub finished: u64,
    /// Completions that panicked, and values that did when they were dropped.
    pub contained_panics: u64,
    /// How often a thread could not be started. Its job waits for another thread.
    pub spawn_failures: u64,
}

impl WorkerPool {
    /// Makes a pool and starts its first threads.
    ///
    /// # Errors
    ///
    /// If a thread can't be started: pthread_create(3).
    ///
    /// # Panics
    ///
    /// If `threads` is 0, or the name contains a NUL.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        assert!(config.threads > 0, "a worker pool has at least one thread");
        assert!(
            !config.name.contains('\0'),
            "a worker pool's name has no NUL"
        );
        let workers_min = config.threads_min.clamp(1, config.threads);
        let limits = Limits {
            queue_max: config.queue_max,
            workers_max: config.threads,
            workers_min,
            idle_timeout: config.idle_timeout,
        };
        let shared = Arc::new(Shared {
            queue: JobQueue::new(limits, workers_min),
            contained_panics: AtomicU64::new(0),
            spawn_failures: AtomicU64::new(0),
            spawn_count: AtomicU64::new(0),
            config,
        });
        // If one fails, the drop of this ends the others.
        let owner = Arc::new(Owner { shared });
        for _ in 0..workers_min {
            owner.shared.spawn_worker()?;
        }
        Ok(Self { owner })
    }

    /// Has a worker do `job` and call `done` with what comes of it.
    ///
    /// `done` is called exactly once: by the worker; or, if the job is cancelled, by whoever
    /// cancels it, shuts the pool down or drops its last handle. It should be short, as it holds up
    /// one of these. It may submit and cancel.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) and [`Full`](SubmitErrorKind::Full); both closures come
    /// back. A job counts until its `done` has returned. That a thread can't be started is no
    /// error: the job waits for those that there are.
    pub fn submit<T, F, D>(&self, job: F, done: D) -> Result<JobHandle, SubmitError<(F, D)>>
    where
        T: 'static,
        F: FnOnce() -> T + Send + 'static,
        D: FnOnce(Outcome<T>) + Send + 'static,
    {
        self.submit_work(Call(job), done)
            .map_err(|error| error.map(|(call, done)| (call.0, done)))
    }

    /// As [`submit`](Self::submit), for a session's job ([`Next::Job`](crate::session::Next::Job)).
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit); the job comes back, to be submitted later or run at once.
    pub fn submit_job<D>(&self, job: Job, done: D) -> Result<JobHandle, SubmitError<(Job, D)>>
    where
        D: FnOnce(Outcome<JobResult>) + Send + 'static,
    {
        self.submit_work(job, done)
    }

    /// The pool's numbers.
    #[must_use]
    pub fn counters(&self) -> PoolCounters {
        let shared = &self.owner.shared;
        let census = shared.queue.census();
        PoolCounters {
            waiting: census.waiting,
            running: census.running,
            threads: census.workers,
            finished: census.finished,
            contained_panics: shared.contained_panics.load(Ordering::Relaxed),
            spawn_failures: shared.spawn_failures.load(Ordering::Relaxed),
        }
    }

    /// What the pool was made with.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.owner.shared.config
    }

    pub(crate) fn submit_work<W, D>(
        &self,
        work: W,
        done: D,
    ) -> Result<JobHandle, SubmitError<(W, D)>>
    where
        W: Work,
        D: FnOnce(Outcome<W::Output>) + Send + 'static,
    {
        let shared = &self.owner.shared;
        let task = Arc::new(TypedTask::new(work, done));
        let queued: Arc<dyn Task> = Arc::clone(&task) as _;
        match shared.queue.push(queued) {
            Ok(Pushed {
                ticket,
                start_worker,
            }) => {
                if start_worker && shared.spawn_worker().is_err() {
                    // Not this job's failure: at least one worker is there to take it.
                    shared.spawn_failures.fetch_add(1, Ordering::Relaxed);
                }
                Ok(JobHandle::new(task, ticket, Arc::clone(shared)))
            }
            Err((refusal, queued)) => {
                drop(queued);
                let rejected = Arc::into_inner(task)
                    .and_then(TypedTask::into_parts)
                    .expect("the queue gave its reference back and nothing else had one");
                let kind = match refusal {
                    Refusal::Closed => SubmitErrorKind::Closed,
                    Refusal::Full => SubmitErrorKind::Full {
                        queue_max: shared.queue.limits().queue_max,
                    },
                };
                Err(SubmitError { kind, rejected })
            }
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("config", self.config())
            .field("counters", &self.counters())
            .finish()
    }
}

/// What all pool handles own together: the right to submit.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(Drain::Cancel);
    }
}

/// What pool handles, workers and job handles share.
struct Shared {
    queue: JobQueue<Arc<dyn Task>>,
    contained_panics: AtomicU64,
    spawn_failures: AtomicU64,
    /// For the threads' names.
    spawn_count: AtomicU64,
    config: PoolConfig,
}

impl Shared {
    /// Starts a worker, which the queue has counted already.
    fn spawn_worker(self: &Arc<Self>) -> io::Result<()> {
        let number = self.spawn_count.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{}-{number}", self.config.name);
        let mut builder = thread::Builder::new().name(name);
        if let Some(stack_bytes) = self.config.stack_bytes {
            builder = builder.stack_size(stack_bytes);
        }
        let shared = Arc::clone(self);
        match builder.spawn(move || shared.work()) {
            // Its end is noted by the queue; nobody joins it.
            Ok(thread) => drop(thread),
            Err(error) => {
                self.queue.worker_failed();
                return Err(error);
            }
        }
        Ok(())
    }

    /// The life of a worker.
    fn work(&self) {
        let mut ended = None;
        while let Some((ticket, task)) = self.queue.next(ended) {
            let ran = task.run(&self.contained_panics);
            ended = Some(Ended {
                ticket,
                finished: ran == Ran::Yes,
            });
        }
    }
}
