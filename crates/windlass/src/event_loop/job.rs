//! Jobs: what a worker pool does for a loop, and the event that its result comes back as.

use std::cell::Cell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::{Disposition, EventId, Happened, Instant, Lifetime};

use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterErrorKind;
use crate::event_loop::reactor::Reactor;
use crate::pool::{Call, JobHandle, Outcome, SubmitError, SubmitErrorKind, Work, WorkerPool};
use crate::session::{Job, JobResult};

/// Where a worker leaves what came of a job, for the loop.
type Outbox<T> = Arc<Mutex<Option<Outcome<T>>>>;

impl<'l, S: 'l> Reactor<'l, S> {
    /// Has a worker of `pool` do `job`, and calls `done` in this loop, in a turn to come, with what
    /// came of it. `done` stays in this thread: it need not be `Send`, and may borrow what the loop
    /// may.
    ///
    /// The event is that of the completion, and one-shot: it can be given a
    /// [label](Self::set_label) and a [priority](Self::set_priority). Completions of one priority
    /// run in the order in which the jobs ended. The loop runs on while the job is out, unless the
    /// event is [disabled](Self::disable); then `done` is called if the loop runs on for other
    /// reasons. [Removing](Self::remove) the event, or dropping the loop, drops `done` uncalled;
    /// the job itself is not cancelled by that, and what comes of it is dropped.
    ///
    /// [`JobHandle::cancel`] works from everywhere, also from handlers; `done` is called in a
    /// turn to come then as well, without waiting for a job that runs.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) and [`Full`](SubmitErrorKind::Full), from the pool;
    /// [`Engine`](SubmitErrorKind::Engine) if this loop is full. Both closures come back.
    ///
    /// ```
    /// use windlass::event_loop::EventLoop;
    /// use windlass::pool::{PoolConfig, WorkerPool};
    ///
    /// let pool = WorkerPool::new(PoolConfig::default())?;
    /// let mut event_loop = EventLoop::<Option<u64>>::new()?;
    /// event_loop.submit(
    ///     &pool,
    ///     || (1..=1000).sum::<u64>(),
    ///     |sum: &mut Option<u64>, _cx, outcome| *sum = outcome.done(),
    /// )?;
    /// let mut sum = None;
    /// event_loop.run(&mut sum)?;
    /// assert_eq!(sum, Some(500_500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn submit<T, F, C>(
        &mut self,
        pool: &WorkerPool,
        job: F,
        done: C,
    ) -> Result<(EventId, JobHandle), SubmitError<(F, C)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        C: FnOnce(&mut S, &mut Context<'_, 'l, S>, Outcome<T>) + 'l,
    {
        self.submit_work(pool, Call(job), done, Location::caller())
            .map_err(|error| error.map(|(call, done)| (call.0, done)))
    }

    /// As [`submit`](Self::submit), for a session's job ([`Next::Job`](crate::session::Next::Job)).
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit); the job comes back, to be submitted later.
    #[track_caller]
    pub fn submit_job<C>(
        &mut self,
        pool: &WorkerPool,
        job: Job,
        done: C,
    ) -> Result<(EventId, JobHandle), SubmitError<(Job, C)>>
    where
        C: FnOnce(&mut S, &mut Context<'_, 'l, S>, Outcome<JobResult>) + 'l,
    {
        self.submit_work(pool, job, done, Location::caller())
    }

    fn submit_work<W, C>(
        &mut self,
        pool: &WorkerPool,
        work: W,
        done: C,
        place: &'static Location<'static>,
    ) -> Result<(EventId, JobHandle), SubmitError<(W, C)>>
    where
        W: Work<Output: Send>,
        C: FnOnce(&mut S, &mut Context<'_, 'l, S>, Outcome<W::Output>) + 'l,
    {
        let outbox: Outbox<W::Output> = Arc::default();
        // Shared with the handler, so that it can be given back if the job is refused.
        let done = Rc::new(Cell::new(Some(done)));
        let event = match self.insert_completion(&outbox, &done, place) {
            Ok(event) => event,
            Err(kind) => {
                let rejected = (work, take_back(&done));
                return Err(SubmitError { kind, rejected });
            }
        };
        let flag = Arc::clone(self.remote.flag());
        let report = move |outcome| {
            *outbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            flag.complete(event);
        };
        match pool.submit_work(work, report) {
            Ok(handle) => Ok((event, handle)),
            Err(error) => {
                self.remove(event);
                Err(error.map(|(work, _)| (work, take_back(&done))))
            }
        }
    }

    /// Makes the event of a completion. It is pending, which keeps the loop running, until its
    /// handler is called or it is removed: the engine keeps this account.
    fn insert_completion<T: 'static, C>(
        &mut self,
        outbox: &Outbox<T>,
        done: &Rc<Cell<Option<C>>>,
        place: &'static Location<'static>,
    ) -> Result<EventId, SubmitErrorKind>
    where
        C: FnOnce(&mut S, &mut Context<'_, 'l, S>, Outcome<T>) + 'l,
    {
        let (outbox, done) = (Arc::clone(outbox), Rc::clone(done));
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| {
                let outcome = outbox.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(outcome) = outcome else {
                    // Activated by the program, before the job ended: it is still out.
                    return Disposition::Rearm;
                };
                if let Some(done) = done.take() {
                    done(state, cx, outcome);
                }
                Disposition::Remove
            },
        );
        let event = self
            .insert_user(handler, Lifetime::OneShot, place)
            .map_err(|error| match error.kind {
                RegisterErrorKind::Engine(kind) => SubmitErrorKind::Engine(kind),
                _ => unreachable!("a user event is refused by the engine only"),
            })?;
        // It exists, as it was just inserted, and has no timeout.
        let _ = self.engine.enable(event, Instant::ZERO);
        Ok(event)
    }
}

fn take_back<C>(done: &Cell<Option<C>>) -> C {
    done.take()
        .expect("a completion that was not called is there")
}
