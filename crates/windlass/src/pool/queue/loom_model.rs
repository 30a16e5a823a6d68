//! Model checks of the queue, the workers and the task: all interleavings within loom's bounds.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p windlass --lib --release loom`
//!
//! A job that is left behind shows as a deadlock: the model waits for it without a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Ended, JobQueue, Limits, Pushed};
use crate::pool::job_handle::Cancel;
use crate::pool::shutdown::Drain;
use crate::pool::task::{Call, Outcome, Ran, Task, TypedTask};
use crate::sync::{Condvar, Mutex, lock};

const AT_ONCE: Option<std::time::Duration> = Some(std::time::Duration::ZERO);

fn check(preemptions_max: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(model);
}

/// Which jobs ran, and who waits for that.
#[derive(Default)]
struct Log {
    ran: Mutex<[bool; 3]>,
    changed: Condvar,
}

impl Log {
    fn note(&self, job: usize) {
        let mut ran = lock(&self.ran);
        assert!(!ran[job], "job {job} ran twice");
        ran[job] = true;
        drop(ran);
        self.changed.notify_all();
    }

    fn wait_for(&self, job: usize) {
        let mut ran = lock(&self.ran);
        while !ran[job] {
            ran = self.changed.wait(ran).expect("no panic under the lock");
        }
    }
}

struct Model {
    queue: JobQueue<usize>,
    log: Log,
    /// Job 0 does not end before this job has run.
    blocks_until: Option<usize>,
}

impl Model {
    fn new(limits: Limits, workers: usize, blocks_until: Option<usize>) -> Arc<Self> {
        let model = Arc::new(Self {
            queue: JobQueue::new(limits, workers),
            log: Log::default(),
            blocks_until,
        });
        for _ in 0..workers {
            model.start_worker();
        }
        model
    }

    fn start_worker(self: &Arc<Self>) {
        let model = Arc::clone(self);
        loom::thread::spawn(move || {
            let mut ended = None;
            while let Some((ticket, job)) = model.queue.next(ended) {
                model.log.note(job);
                if let (0, Some(other)) = (job, model.blocks_until) {
                    model.log.wait_for(other);
                }
                ended = Some(Ended {
                    ticket,
                    finished: true,
                });
            }
        });
    }

    fn push(self: &Arc<Self>, job: usize) {
        let Pushed { start_worker, .. } = self.queue.push(job).expect("room, and open");
        if start_worker {
            self.start_worker();
        }
    }

    fn end(&self) {
        assert!(
            self.queue.close(Drain::Cancel).is_empty(),
            "all jobs were seen"
        );
        self.queue.wait_for_workers(None);
    }
}

fn limits(workers_min: usize, workers_max: usize) -> Limits {
    Limits {
        queue_max: 8,
        workers_max,
        workers_min,
        idle_timeout: None,
    }
}

#[test]
fn loom_job_behind_one_that_blocks_gets_a_worker_of_its_own() {
    check(3, || {
        let model = Model::new(limits(1, 2), 1, Some(1));
        model.push(0);
        model.push(1);
        model.log.wait_for(0);
        model.log.wait_for(1);
        model.end();
    });
}

#[test]
fn loom_each_of_two_producers_has_its_job_started_by_a_sleeping_worker() {
    check(2, || {
        let model = Model::new(limits(2, 2), 2, Some(1));
        let producer = Arc::clone(&model);
        loom::thread::spawn(move || producer.push(1));
        model.push(0);
        model.log.wait_for(1);
        model.log.wait_for(0);
        model.end();
    });
}

#[test]
fn loom_push_to_a_worker_that_ends_for_want_of_jobs_is_not_lost() {
    check(4, || {
        let limits = Limits {
            idle_timeout: AT_ONCE,
            ..limits(0, 1)
        };
        let model = Model::new(limits, 1, None);
        model.push(0);
        model.log.wait_for(0);
        model.push(1);
        model.log.wait_for(1);
        model.end();
    });
}

#[test]
fn loom_push_between_a_sleeping_worker_and_one_that_times_out_is_not_lost() {
    check(3, || {
        let limits = Limits {
            idle_timeout: AT_ONCE,
            ..limits(1, 2)
        };
        let model = Model::new(limits, 2, Some(1));
        model.push(0);
        model.push(1);
        model.log.wait_for(1);
        model.log.wait_for(0);
        model.end();
    });
}

#[test]
fn loom_job_that_counted_on_a_worker_that_failed_to_start_is_taken_by_another() {
    check(3, || {
        let model = Model::new(limits(1, 2), 1, None);
        for job in 0..2 {
            let Pushed { start_worker, .. } = model.queue.push(job).expect("room, and open");
            if start_worker {
                model.queue.worker_failed();
            }
        }
        model.log.wait_for(0);
        model.log.wait_for(1);
        model.end();
    });
}

#[test]
fn loom_drain_runs_what_was_accepted_and_ends_all_workers() {
    check(3, || {
        let model = Model::new(limits(2, 2), 2, None);
        let producer = Arc::clone(&model);
        let pushed = loom::thread::spawn(move || producer.queue.push(0).is_ok());
        let rest = model.queue.close(Drain::Run);
        assert!(rest.is_empty());
        let accepted = pushed.join().expect("no panic");
        model.queue.wait_for_workers(None);
        assert_eq!(lock(&model.log.ran)[0], accepted);
        assert_eq!(model.queue.census().waiting, 0);
    });
}

/// One job, told exactly once, between a worker, a cancel, and a shutdown that gives up at once.
#[test]
fn loom_completion_is_called_once_between_worker_cancel_and_shutdown() {
    check(3, || {
        let told = Arc::new(AtomicUsize::new(0));
        let cancelled = Arc::new(AtomicUsize::new(0));
        let panics = Arc::new(AtomicU64::new(0));
        let queue: Arc<JobQueue<Arc<dyn Task>>> = Arc::new(JobQueue::new(limits(1, 1), 1));
        let done = {
            let (told, cancelled) = (Arc::clone(&told), Arc::clone(&cancelled));
            move |outcome: Outcome<u8>| {
                told.fetch_add(1, Ordering::Relaxed);
                if matches!(outcome, Outcome::Cancelled) {
                    cancelled.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let task: Arc<dyn Task> = Arc::new(TypedTask::new(Call(|| 7_u8), done));
        let Ok(Pushed { ticket, .. }) = queue.push(Arc::clone(&task)) else {
            unreachable!("room, and open");
        };
        let worker = {
            let (queue, panics) = (Arc::clone(&queue), Arc::clone(&panics));
            loom::thread::spawn(move || {
                let mut ended = None;
                let mut ran = Ran::No;
                while let Some((ticket, task)) = queue.next(ended) {
                    ran = task.run(&panics);
                    ended = Some(Ended {
                        ticket,
                        finished: ran == Ran::Yes,
                    });
                }
                ran
            })
        };
        let canceller = {
            let (queue, panics) = (Arc::clone(&queue), Arc::clone(&panics));
            loom::thread::spawn(move || {
                queue.forget(ticket);
                task.cancel(&panics)
            })
        };
        let mut prevented = 0;
        let mut any = 0;
        for task in queue.close(Drain::Cancel) {
            let cancel = task.cancel(&panics);
            prevented += usize::from(cancel == Cancel::Prevented);
            any += usize::from(cancel != Cancel::Complete);
        }
        for (_, task) in queue.give_up().running {
            let cancel = task.cancel(&panics);
            prevented += usize::from(cancel == Cancel::Prevented);
            any += usize::from(cancel != Cancel::Complete);
        }
        let cancel = canceller.join().expect("no panic");
        prevented += usize::from(cancel == Cancel::Prevented);
        any += usize::from(cancel != Cancel::Complete);
        let ran = worker.join().expect("no panic");
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert_eq!(cancelled.load(Ordering::Relaxed), any, "by whoever said so");
        assert_eq!(prevented, usize::from(ran == Ran::No), "or it ran");
        assert_eq!(queue.census().running, 0);
    });
}
