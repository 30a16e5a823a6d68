//! The queue between a thread that does I/O and the workers that call sessions (the middle layer
//! of half-sync/half-async).
//!
//! Tasks go to whichever worker is free ([`Dispatch::SharedQueue`]) or to each worker in turn
//! ([`Dispatch::RoundRobin`]). Beside them each worker has posts of its own: what every one of
//! them must do, also if it has nothing else to do.
//!
//! # Bound
//!
//! The queue refuses nothing. Who pushes has one task per connection at most, so the limit of
//! connections is that of the queue.
//!
//! # Invariants
//!
//! Of the workers of one queue, `sleepers` are in their wait, and `wakes` of those were notified and
//! have not come back yet.
//!
//! 1. If `sleepers > wakes`, so that somebody may sleep on, no more than `wakes` tasks wait: each
//!    push notifies as long as it is so. Hence no task is left behind a sleeping worker.
//! 2. `wakes <= sleepers`. A worker that comes back takes a wake along, even if it was another's:
//!    it looks for a task just as well.
//! 3. A post, or the close, notifies all sleepers: the one that it is for is among them.
//!
//! # Threads
//!
//! Any thread may push, post and close. Each queue is behind one lock, under which no code of the
//! program runs or is dropped.
//!
//! # Cost
//!
//! A batch takes the lock once (once per task with a queue per worker), and makes at most one system
//! call per sleeping worker that it needs. A worker takes the lock once per task.

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, Woken, lock, wait_until};

/// Which worker gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dispatch {
    /// Each in turn, from a queue of its own. Workers share no lock; but what was given to one that
    /// is stuck waits for it, while others may be idle, and each has to be woken for its own part of
    /// a burst that one alone would have done: on one core that costs half as much again per short
    /// request as the shared queue.
    RoundRobin,
    /// Whichever is free first, from one queue that all wait at. One that is stuck holds up only
    /// what it does.
    #[default]
    SharedQueue,
}

/// See the module. `T` are the tasks, `P` the posts.
pub(super) struct WorkQueue<T, P> {
    /// One, or one per worker.
    queues: Box<[Queue<T, P>]>,
    workers: usize,
    /// Whose turn it is, with a queue per worker.
    turn: AtomicUsize,
    census: Mutex<Census>,
    /// A worker ended, or began what is not waited for.
    left: Condvar,
}

struct Queue<T, P> {
    state: Mutex<State<T, P>>,
    work: Condvar,
}

struct State<T, P> {
    tasks: VecDeque<T>,
    /// Each with the worker that it is for.
    posts: Vec<(usize, P)>,
    sleepers: usize,
    wakes: usize,
    closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Census {
    /// Workers that have not ended.
    alive: usize,
    /// Of these, such as do what may never end.
    unbound: usize,
}

/// What a worker gets.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Taken<T, P> {
    /// To end: the queue is closed.
    End,
    /// Of the worker's own.
    Post(P),
    Task(T),
}

impl<T, P> WorkQueue<T, P> {
    /// A queue for so many workers, at least one, that the caller is about to start.
    pub(super) fn new(workers: usize, dispatch: Dispatch) -> Self {
        let queues = match dispatch {
            Dispatch::RoundRobin => workers,
            Dispatch::SharedQueue => 1,
        };
        Self {
            queues: (0..queues).map(|_| Queue::new()).collect(),
            workers,
            turn: AtomicUsize::new(0),
            census: Mutex::new(Census {
                alive: workers,
                unbound: 0,
            }),
            left: Condvar::new(),
        }
    }

    /// How many workers it is for.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Has all of `tasks` done, in about this order. What is left in them is not done: the queue is
    /// closed.
    pub(super) fn push_batch(&self, tasks: &mut Vec<T>) {
        if let [queue] = &*self.queues {
            queue.push(tasks);
            return;
        }
        let first = self.turn.load(Ordering::Relaxed);
        let mut at = first;
        // Whose lock is taken once more per task is likely to be asleep, or to hold none.
        tasks.reverse();
        while let Some(task) = tasks.pop() {
            let queue = &self.queues[at % self.queues.len()];
            if let Err(task) = queue.push_one(task) {
                tasks.push(task);
                break;
            }
            at += 1;
        }
        tasks.reverse();
        // Two that push at once may give a worker two in a row: no harm.
        self.turn.store(at % self.queues.len(), Ordering::Relaxed);
    }

    /// Has one task done, or gives it back: the queue is closed.
    pub(super) fn push(&self, task: T) -> Result<(), T> {
        let at = match self.queues.len() {
            1 => 0,
            count => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        self.queues[at].push_one(task)
    }

    /// Has worker `worker` do `post`, also if it sleeps; or gives it back: the queue is closed.
    pub(super) fn post(&self, worker: usize, post: P) -> Result<(), P> {
        self.queue_of(worker).post(worker, post)
    }

    /// What there is for worker `worker`, if anything.
    pub(super) fn try_take(&self, worker: usize) -> Option<Taken<T, P>> {
        self.queue_of(worker).state().take(worker)
    }

    /// Waits until there is something for worker `worker`.
    pub(super) fn take(&self, worker: usize) -> Taken<T, P> {
        let queue = self.queue_of(worker);
        let mut state = queue.state();
        loop {
            if let Some(taken) = state.take(worker) {
                return taken;
            }
            state.sleepers += 1;
            (state, _) = wait_until(&queue.work, &queue.state, state, None);
            state.sleepers -= 1;
            state.wakes = state.wakes.saturating_sub(1);
        }
    }

    /// Has all workers end; answers the tasks and the posts that none has taken.
    pub(super) fn close(&self) -> (Vec<T>, Vec<P>) {
        let mut left = (Vec::new(), Vec::new());
        for queue in &self.queues {
            let mut state = queue.state();
            state.closed = true;
            state.wakes = state.sleepers;
            left.0.extend(state.tasks.drain(..));
            left.1.extend(state.posts.drain(..).map(|(_, post)| post));
            drop(state);
            queue.work.notify_all();
        }
        left
    }

    /// A worker has ended, or could not be started.
    pub(super) fn note_end(&self) {
        lock(&self.census).alive -= 1;
        self.left.notify_all();
    }

    /// Does what may take for ever, in a worker: nobody [waits](Self::wait_for_workers) for that.
    pub(super) fn unbound<R>(&self, run: impl FnOnce() -> R) -> R {
        lock(&self.census).unbound += 1;
        self.left.notify_all();
        let result = run();
        lock(&self.census).unbound -= 1;
        result
    }

    /// Waits until all workers have ended, of a queue that was closed, but for those that do what
    /// may take for ever; or until `deadline`. Answers whether all have.
    pub(super) fn wait_for_workers(&self, deadline: Option<Instant>) -> bool {
        let mut census = lock(&self.census);
        let mut woken = Woken::Notified;
        while census.alive > census.unbound && woken != Woken::TimedOut {
            (census, woken) = wait_until(&self.left, &self.census, census, deadline);
        }
        census.alive == 0
    }

    fn queue_of(&self, worker: usize) -> &Queue<T, P> {
        &self.queues[worker % self.queues.len()]
    }
}

impl<T, P> Queue<T, P> {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                tasks: VecDeque::new(),
                posts: Vec::new(),
                sleepers: 0,
                wakes: 0,
                closed: false,
            }),
            work: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T, P>> {
        lock(&self.state)
    }

    fn push(&self, tasks: &mut Vec<T>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.tasks.extend(tasks.drain(..));
        let wakes = state.wake_for_tasks();
        let all = wakes == state.sleepers;
        drop(state);
        self.wake(wakes, all);
    }

    fn push_one(&self, task: T) -> Result<(), T> {
        let mut state = self.state();
        if state.closed {
            return Err(task);
        }
        state.tasks.push_back(task);
        let wakes = state.wake_for_tasks();
        drop(state);
        self.wake(wakes, false);
        Ok(())
    }

    fn post(&self, worker: usize, post: P) -> Result<(), P> {
        let mut state = self.state();
        if state.closed {
            return Err(post);
        }
        state.posts.push((worker, post));
        state.wakes = state.sleepers;
        drop(state);
        self.work.notify_all();
        Ok(())
    }

    fn wake(&self, count: usize, all: bool) {
        if all && count > 1 {
            self.work.notify_all();
            return;
        }
        for _ in 0..count {
            self.work.notify_one();
        }
    }
}

impl<T, P> State<T, P> {
    fn take(&mut self, worker: usize) -> Option<Taken<T, P>> {
        if !self.posts.is_empty()
            && let Some(at) = self.posts.iter().position(|&(to, _)| to == worker)
        {
            return Some(Taken::Post(self.posts.remove(at).1));
        }
        if let Some(task) = self.tasks.pop_front() {
            return Some(Taken::Task(task));
        }
        self.closed.then_some(Taken::End)
    }

    /// How many are to be notified, so that for each task a worker is awake or there is no other;
    /// counts them as notified.
    fn wake_for_tasks(&mut self) -> usize {
        let wanted = self.tasks.len().min(self.sleepers);
        let more = wanted.saturating_sub(self.wakes);
        self.wakes += more;
        more
    }
}
