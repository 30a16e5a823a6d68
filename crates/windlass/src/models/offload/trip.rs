//! What travels between a loop and its workers, and where it comes back.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass_core::Instant;

use crate::models::jobs::{DoJobs, JobDone};
use crate::models::server::Visit;
use crate::models::work_queue::WorkQueue;
use crate::session::{
    Input, Job, Notifier, Now, Output, Progress, Service, Session, SessionContext, Wakeups,
};
use crate::sync::{Mutex, lock};

/// The queue between a loop and its workers.
pub(in crate::models) type Queue<V> = WorkQueue<Errand<V>, Visit<V>>;

/// What a worker is sent for.
pub(in crate::models) enum Errand<V: Service> {
    /// A session's own job, while the session is at home. It may take for ever.
    Job(Job, JobDone),
    /// A session that is to be called.
    Trip(Box<Trip<V::Session>>),
}

/// A session on its way, with what it is called with and what it answers.
pub(in crate::models) struct Trip<S> {
    pub(super) session: S,
    /// A copy of the connection's.
    pub(super) input: Vec<u8>,
    pub(super) input_ended: bool,
    /// Empty when the trip begins.
    pub(super) output: Output,
    /// What it came to, when it is back.
    pub(super) answer: Option<Answer>,
    /// The time of the turn in which it began.
    pub(super) turn: Instant,
    /// What the session has itself called by. Not the connection's own: that also tells of the
    /// trip's end, and the two must not be taken for each other.
    pub(super) notifier: Option<Notifier>,
    /// The connection's, and where the trip ends.
    pub(super) home: Home<S>,
}

/// What the call came to, or its panic.
pub(super) type Answer = Result<Progress, Box<dyn Any + Send>>;

/// How a trip comes home.
pub(super) struct Home<S> {
    pub(super) desk: Arc<Desk<S>>,
    pub(super) notifier: Notifier,
}

/// Where a session that comes back waits for its connection.
pub(super) struct Desk<S>(Mutex<OnDesk<S>>);

enum OnDesk<S> {
    /// The connection ended: nobody fetches anything.
    Gone,
    Nothing,
    Trip(Box<Trip<S>>),
}

impl<S> Desk<S> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(OnDesk::Nothing))
    }

    /// Fetches what is back.
    pub(super) fn take(&self) -> Option<Box<Trip<S>>> {
        match mem::replace(&mut *lock(&self.0), OnDesk::Nothing) {
            OnDesk::Trip(trip) => Some(trip),
            OnDesk::Gone | OnDesk::Nothing => None,
        }
    }

    /// The connection ends.
    pub(super) fn leave(&self) {
        let left = mem::replace(&mut *lock(&self.0), OnDesk::Gone);
        // Without the lock: it is the program's.
        drop(left);
    }

    fn is_left(&self) -> bool {
        matches!(*lock(&self.0), OnDesk::Gone)
    }

    fn put(&self, trip: Box<Trip<S>>) {
        let mut trip = Some(trip);
        {
            let mut on_desk = lock(&self.0);
            if !matches!(*on_desk, OnDesk::Gone)
                && let Some(trip) = trip.take()
            {
                *on_desk = OnDesk::Trip(trip);
            }
        }
        // Without the lock: it is the program's.
        drop(trip);
    }
}

impl<S: Session> Trip<S> {
    /// Whether it is for nobody any more.
    pub(super) fn is_idle(&self) -> bool {
        self.home.desk.is_left()
    }

    /// Calls the session, in a worker, and goes home.
    pub(super) fn make(mut self: Box<Self>, local: &mut S::Local, now: Now) {
        let Self {
            session,
            input,
            input_ended,
            output,
            notifier,
            home,
            ..
        } = &mut *self;
        let outer = &home.notifier;
        let make = || {
            let outer = outer.clone();
            Notifier::new(move || outer.notify())
        };
        let mut cx = SessionContext {
            local,
            output,
            now,
            wakeups: Wakeups::new(notifier, &make),
        };
        let input = Input {
            bytes: input,
            ended: *input_ended,
        };
        // Unwind safety: the panic goes on in the loop, which drops the session for it; the shared
        // part is the service's, as with any panic.
        let answer = catch_unwind(AssertUnwindSafe(|| session.advance(&mut cx, input)));
        self.answer = Some(answer);
        let desk = Arc::clone(&self.home.desk);
        let notifier = self.home.notifier.clone();
        desk.put(self);
        notifier.notify();
    }
}

impl<V: Service> DoJobs for Queue<V> {
    fn do_job(&self, job: Job, done: JobDone) {
        // If the workers have ended so has the server, and nobody waits for the result.
        drop(self.push(Errand::Job(job, done)));
    }
}

/// Does a session's own job, in a worker; what panics in it is told as its outcome.
pub(super) fn do_job(job: Job, done: JobDone) {
    done(job.run_contained());
}
