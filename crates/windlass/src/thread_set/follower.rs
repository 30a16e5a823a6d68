//! One thread's part in a set, step by step: it waits for an event, promotes a new leader, handles.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use windlass_core::{Call, Disposition, EventId, Happened, InFlight, Instant};

use super::SetKernel;
use super::handle_set::HandleSet;
use super::handler::{BoxedHandler, SetContext};
use super::kernel::ranks::MemberId;
use super::kernel::{Done, Promotion, Rested, Taken, Work};
use crate::event_loop::RunError;

/// The part of this thread in a [`ThreadSet`](super::ThreadSet), for a loop of the program's own:
/// made by [`follow`](super::ThreadSet::follow). When it is dropped the thread leaves, and the set
/// goes on with the others.
///
/// It stays in its thread:
///
/// ```compile_fail
/// # use windlass::thread_set::ThreadSet;
/// let set = ThreadSet::<()>::new()?;
/// let follower = set.follow();
/// std::thread::spawn(move || drop(follower));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Follower<S: 'static> {
    kernel: Arc<SetKernel<S>>,
    handles: HandleSet<S>,
    id: MemberId,
    has_begun: bool,
    /// What became of the last event; the kernel is told when the next one is asked for.
    done: Option<Done<BoxedHandler<S>>>,
    /// The kernel wakes the thread that has begun, and no other.
    stays: PhantomData<*const ()>,
}

/// An event that was taken by a thread which has not [promoted a new
/// leader](Self::promote_new_leader) yet. Its handler can't be called before that:
///
/// ```compile_fail
/// # use windlass::thread_set::ThreadSet;
/// let set = ThreadSet::<()>::new()?;
/// while let Some(led) = set.follow().wait_for_event()? {
///     led.handle(&mut ());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// nor is another leader promoted twice:
///
/// ```compile_fail
/// # use windlass::thread_set::ThreadSet;
/// let set = ThreadSet::<()>::new()?;
/// while let Some(led) = set.follow().wait_for_event()? {
///     led.promote_new_leader().handle(&mut ());
///     led.promote_new_leader().handle(&mut ());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// To drop it ends the set, as to drop a [`Promoted`] does.
#[must_use = "until it promotes a new leader, threads that sleep are not woken"]
pub struct Led<'a, S: 'static>(Held<'a, S>);

/// An event to handle, after the promotion of a new leader.
///
/// Handlers are not dropped unheard: if it is dropped in place of being [handled](Self::handle), by
/// an error or a panic, the set ends, as if the handler had panicked.
#[must_use = "to drop an event that is not handled ends the set"]
pub struct Promoted<'a, S: 'static>(Held<'a, S>);

/// An event in this thread's hands.
struct Held<'a, S: 'static> {
    follower: &'a mut Follower<S>,
    /// There until it is promoted.
    promotion: Option<Promotion<BoxedHandler<S>>>,
    /// There until it is handled.
    call: Option<Call<BoxedHandler<S>>>,
    now: Instant,
}

impl<S: 'static> Follower<S> {
    pub(super) fn new(kernel: Arc<SetKernel<S>>, id: MemberId) -> Self {
        Self {
            handles: HandleSet::new(Arc::clone(&kernel)),
            kernel,
            id,
            has_begun: false,
            done: None,
            stays: PhantomData,
        }
    }

    /// Answers an event that happened: one that is ready, or what the thread has waited for as the
    /// leader; until it can be that it is parked. Nothing: the set was [stopped](HandleSet::stop),
    /// or has nothing left to wait for.
    ///
    /// First it puts back the handler of the event before this one, whose handle is watched again
    /// from then on: between two calls is no time for long work.
    ///
    /// # Errors
    ///
    /// As [`ThreadSet::join`](super::ThreadSet::join).
    pub fn wait_for_event(&mut self) -> Result<Option<Led<'_, S>>, RunError> {
        loop {
            match self.next(Rested::Yes) {
                Work::Call(taken) => return Ok(Some(self.hold(taken))),
                Work::Called | Work::Rest => {}
                Work::Over => return result(&self.kernel).map(|()| None),
            }
        }
    }

    /// The handles that are waited for.
    #[must_use]
    pub fn handles(&self) -> &HandleSet<S> {
        &self.handles
    }

    #[inline]
    pub(super) fn next(&mut self, rested: Rested) -> Work<BoxedHandler<S>> {
        if !self.has_begun {
            self.has_begun = true;
            self.kernel.begin(self.id);
        }
        self.kernel.next(self.id, self.done.take(), rested)
    }

    #[inline]
    pub(super) fn hold(&mut self, taken: Taken<BoxedHandler<S>>) -> Led<'_, S> {
        let Taken {
            call,
            now,
            promotion,
        } = taken;
        Led(Held {
            follower: self,
            promotion: Some(promotion),
            call: Some(call),
            now,
        })
    }
}

/// How the set has ended, for the first who asks if that was an error.
pub(super) fn result<S>(kernel: &SetKernel<S>) -> Result<(), RunError> {
    match kernel.take_error() {
        None => Ok(()),
        Some(source) => Err(RunError::Wait {
            backend: kernel.poller.backend().name(),
            source,
        }),
    }
}

impl<S: 'static> Drop for Follower<S> {
    fn drop(&mut self) {
        self.kernel.leave(self.id, self.done.take());
    }
}

impl<'a, S: 'static> Led<'a, S> {
    /// The event that happened.
    #[must_use]
    pub fn event(&self) -> EventId {
        self.0.call().token.event()
    }

    /// What happened to it.
    #[must_use]
    pub fn happened(&self) -> Happened {
        self.0.call().happened
    }

    /// Wakes the thread that takes this one's place, if there is anything to do for it (see [what a
    /// promotion costs](super#what-it-costs)), and answers what this one has to handle.
    #[inline]
    pub fn promote_new_leader(mut self) -> Promoted<'a, S> {
        self.0.promote();
        Promoted(self.0)
    }
}

impl<S: 'static> Promoted<'_, S> {
    /// The event that happened.
    #[must_use]
    pub fn event(&self) -> EventId {
        self.0.call().token.event()
    }

    /// What happened to it.
    #[must_use]
    pub fn happened(&self) -> Happened {
        self.0.call().happened
    }

    /// Calls its handler with `state`.
    ///
    /// # Panics
    ///
    /// A panic of the handler ends the set and goes on from here; the handler is dropped.
    #[inline]
    pub fn handle(mut self, state: &mut S) {
        let call = self.0.call.take().expect("handled once: that consumes it");
        let now = self.0.now;
        self.0.follower.handle(state, call, now);
    }
}

impl<S: 'static> Held<'_, S> {
    fn call(&self) -> &Call<BoxedHandler<S>> {
        self.call.as_ref().expect("it is there until it is handled")
    }

    #[inline]
    fn promote(&mut self) {
        if let Some(promotion) = self.promotion.take() {
            self.follower.kernel.promote(promotion);
        }
    }
}

impl<S: 'static> Drop for Held<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.promote();
        if let Some(call) = self.call.take() {
            self.follower.give_up(call);
        }
    }
}

impl<S: 'static> Follower<S> {
    /// Calls one handler with nothing locked.
    #[inline]
    pub(super) fn handle(&mut self, state: &mut S, call: Call<BoxedHandler<S>>, now: Instant) {
        let Call {
            token,
            mut payload,
            happened,
        } = call;
        let cx = SetContext {
            handles: &self.handles,
            event: token.event(),
            now,
        };
        // Unwind safety: the handler is dropped after a panic, which goes on; the state is the
        // program's, as with any panic that it catches.
        let called = catch_unwind(AssertUnwindSafe(|| {
            payload.handle_event(state, &cx, happened)
        }));
        match called {
            Ok(answer) => self.done = Some(done(token, payload, Some(answer))),
            Err(panic) => {
                self.end_with(done(token, payload, None));
                resume_unwind(panic);
            }
        }
    }

    #[cold]
    fn give_up(&self, call: Call<BoxedHandler<S>>) {
        self.end_with(done(call.token, call.payload, None));
    }

    /// Ends the set, because of an event that was not handled to its end.
    #[cold]
    fn end_with(&self, done: Done<BoxedHandler<S>>) {
        self.kernel.stop();
        // The set has ended: it settles, and nothing else.
        let _over = self.kernel.next(self.id, Some(done), Rested::Yes);
    }
}

fn done<P>(token: InFlight, payload: P, answer: Option<Disposition>) -> Done<P> {
    Done {
        token,
        payload,
        answer,
    }
}

impl<S> fmt::Debug for Follower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for Led<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Led", f)
    }
}

impl<S> fmt::Debug for Promoted<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Promoted", f)
    }
}

impl<S> Held<'_, S> {
    fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = self.call.as_ref().map(|call| call.token.event());
        f.debug_struct(name)
            .field("event", &event)
            .finish_non_exhaustive()
    }
}
