//! Model checks of the queue: all interleavings within loom's bounds. What is left behind shows as a
//! deadlock: the model waits for it without a limit.

use std::sync::Arc;

use super::{Dispatch, Taken, WorkQueue};
use crate::sync::{Condvar, Mutex, lock};

fn check(preemptions_max: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(model);
}

/// Tasks 0 to 3, and one post per worker.
struct Model {
    queue: WorkQueue<usize, ()>,
    done: Mutex<Done>,
    changed: Condvar,
    /// Task 0 does not end before this one has run.
    blocks_until: Option<usize>,
}

#[derive(Default)]
struct Done {
    tasks: [bool; 4],
    /// By worker.
    posts: [usize; 2],
}

impl Model {
    fn start(dispatch: Dispatch, workers: usize, blocks_until: Option<usize>) -> Arc<Self> {
        let model = Arc::new(Self {
            queue: WorkQueue::new(workers, dispatch),
            done: Mutex::new(Done::default()),
            changed: Condvar::new(),
            blocks_until,
        });
        for worker in 0..workers {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || model.work(worker));
        }
        model
    }

    fn work(&self, worker: usize) {
        loop {
            match self.queue.take(worker) {
                Taken::End => break,
                Taken::Post(()) => lock(&self.done).posts[worker] += 1,
                Taken::Task(task) => {
                    let mut done = lock(&self.done);
                    assert!(!done.tasks[task], "task {task} was done twice");
                    done.tasks[task] = true;
                    drop(done);
                    self.changed.notify_all();
                    if let (0, Some(other)) = (task, self.blocks_until) {
                        self.wait(|done| done.tasks[other]);
                    }
                }
            }
            self.changed.notify_all();
        }
        self.queue.note_end();
    }

    fn wait(&self, holds: impl Fn(&Done) -> bool) {
        let mut done = lock(&self.done);
        while !holds(&done) {
            done = self.changed.wait(done).expect("no panic under the lock");
        }
    }

    fn end(&self) {
        let (tasks, posts) = self.queue.close();
        assert!(tasks.is_empty() && posts.is_empty(), "all was seen");
        self.queue.wait_for_workers(None);
    }
}

#[test]
fn loom_pf_14_a_task_behind_one_that_blocks_is_done_by_another_worker() {
    check(3, || {
        let model = Model::start(Dispatch::SharedQueue, 2, Some(1));
        model.queue.push_batch(&mut vec![0, 1]);
        model.wait(|done| done.tasks[0] && done.tasks[1]);
        model.end();
    });
}

#[test]
fn loom_pf_14_pushes_of_two_threads_are_both_seen() {
    check(2, || {
        let model = Model::start(Dispatch::SharedQueue, 2, Some(1));
        let other = Arc::clone(&model);
        loom::thread::spawn(move || other.queue.push(1).expect("open"));
        model.queue.push(0).expect("open");
        model.wait(|done| done.tasks[0] && done.tasks[1]);
        model.end();
    });
}

#[test]
fn loom_each_worker_in_turn_sees_its_tasks() {
    check(3, || {
        let model = Model::start(Dispatch::RoundRobin, 2, Some(1));
        model.queue.push_batch(&mut vec![0, 1]);
        model.wait(|done| done.tasks[0] && done.tasks[1]);
        model.queue.push_batch(&mut vec![2]);
        model.wait(|done| done.tasks[2]);
        model.end();
    });
}

#[test]
fn loom_a_post_reaches_its_worker_beside_tasks() {
    check(2, || {
        let model = Model::start(Dispatch::SharedQueue, 2, None);
        model.queue.push(2).expect("open");
        model.queue.post(1, ()).expect("open");
        model.queue.post(0, ()).expect("open");
        model.wait(|done| done.tasks[2] && done.posts == [1, 1]);
        model.end();
    });
}

#[test]
fn loom_what_a_close_finds_is_done_or_given_back() {
    check(3, || {
        let model = Model::start(Dispatch::SharedQueue, 1, None);
        let other = Arc::clone(&model);
        let pushed = loom::thread::spawn(move || other.queue.push(3).is_err());
        let (left, _) = model.queue.close();
        let refused = pushed.join().expect("no panic");
        model.queue.wait_for_workers(None);
        let ways = [!left.is_empty(), refused, lock(&model.done).tasks[3]];
        assert_eq!(ways.iter().filter(|&&way| way).count(), 1, "{ways:?}");
    });
}

#[test]
fn loom_nobody_waits_for_a_worker_that_may_never_end() {
    check(3, || {
        let queue = Arc::new(WorkQueue::<usize, ()>::new(1, Dispatch::SharedQueue));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (worker, opened) = (Arc::clone(&queue), Arc::clone(&gate));
        loom::thread::spawn(move || {
            worker.unbound(|| {
                let mut open = lock(&opened.0);
                while !*open {
                    open = opened.1.wait(open).expect("no panic under the lock");
                }
            });
            assert_eq!(worker.take(0), Taken::End);
            worker.note_end();
        });
        queue.close();
        queue.wait_for_workers(None);
        *lock(&gate.0) = true;
        gate.1.notify_all();
    });
}
