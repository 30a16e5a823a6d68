//! A member of a set: one thread's part in it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};

use windlass_core::{Call, Instant};

use super::SetKernel;
use super::handle_set::HandleSet;
use super::handler::{BoxedHandler, SetContext};
use super::kernel::ranks::MemberId;
use super::kernel::{Done, Rested, Role, Work};
use crate::event_loop::RunError;

/// What a thread does beside handling.
pub(crate) trait Life<S> {
    /// Whether it has something to do before it waits.
    fn rests(&mut self, _state: &S) -> bool {
        false
    }

    /// Called before it waits, if it has called handlers since it last was.
    fn rest(&mut self, _state: &mut S) {}

    /// Called after [`Member::call`].
    fn called(&mut self, _state: &mut S) {}
}

/// Handling is all.
impl<S> Life<S> for () {}

/// It only rests.
pub(super) struct Rests<F>(pub(super) F);

impl<S, F: FnMut(&mut S)> Life<S> for Rests<F> {
    fn rests(&mut self, _state: &S) -> bool {
        true
    }

    fn rest(&mut self, state: &mut S) {
        (self.0)(state);
    }
}

/// Calls a [`Member`], as long as the set lives.
pub(crate) struct Caller<S> {
    kernel: Weak<SetKernel<S>>,
    id: MemberId,
}

impl<S: 'static> Caller<S> {
    /// Has the thread call its [`Life::called`], soon, also if it waits.
    pub(crate) fn call(&self) {
        if let Some(kernel) = self.kernel.upgrade() {
            kernel.call(self.id);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Member<S> {
    kernel: Arc<SetKernel<S>>,
    id: MemberId,
}

impl<S: 'static> Member<S> {
    pub(super) fn new(kernel: Arc<SetKernel<S>>, role: Role) -> Self {
        let id = kernel.add_member(role);
        Self { kernel, id }
    }

    pub(crate) fn caller(&self) -> Caller<S> {
        Caller {
            kernel: Arc::downgrade(&self.kernel),
            id: self.id,
        }
    }

    /// What the thread runs.
    pub(crate) fn run(&self, state: &mut S, mut life: impl Life<S>) -> Result<(), RunError> {
        let handles = HandleSet::new(Arc::clone(&self.kernel));
        self.kernel.begin(self.id);
        // Ends the set if one of the program's own closures panics.
        let guard = PanicGuard(&handles);
        let mut done = None;
        let mut rested = Rested::Yes;
        loop {
            match self.kernel.next(self.id, done.take(), rested) {
                Work::Call(call, now) => {
                    done = Some(self.invoke(&handles, state, call, now));
                    if life.rests(state) {
                        rested = Rested::No;
                    }
                }
                Work::Called => life.called(state),
                Work::Rest => {
                    life.rest(state);
                    rested = Rested::Yes;
                }
                Work::Over => break,
            }
        }
        std::mem::forget(guard);
        self.result()
    }

    /// What the thread of a dispatcher runs: it only waits.
    pub(crate) fn run_dispatcher(&self) -> Result<(), RunError> {
        self.kernel.begin(self.id);
        while !matches!(self.kernel.next(self.id, None, Rested::Yes), Work::Over) {}
        self.result()
    }

    fn result(&self) -> Result<(), RunError> {
        match self.kernel.take_error() {
            None => Ok(()),
            Some(source) => Err(RunError::Wait {
                backend: self.kernel.poller.backend().name(),
                source,
            }),
        }
    }

    /// Calls one handler with nothing locked.
    #[inline]
    fn invoke(
        &self,
        handles: &HandleSet<S>,
        state: &mut S,
        call: Call<BoxedHandler<S>>,
        now: Instant,
    ) -> Done<BoxedHandler<S>> {
        let Call {
            token,
            mut payload,
            happened,
        } = call;
        let cx = SetContext {
            handles,
            event: token.event(),
            now,
        };
        // Unwind safety: the handler is dropped after a panic, which goes on; the state is the
        // program's, as with any panic that it catches.
        let called = catch_unwind(AssertUnwindSafe(|| {
            payload.handle_event(state, &cx, happened)
        }));
        match called {
            Ok(answer) => Done {
                token,
                payload,
                answer: Some(answer),
            },
            Err(panic) => {
                let answer = None;
                let done = Done {
                    token,
                    payload,
                    answer,
                };
                self.kernel.stop();
                // The set has ended: it settles, and nothing else.
                let _over = self.kernel.next(self.id, Some(done), Rested::Yes);
                resume_unwind(panic);
            }
        }
    }
}

/// Ends the set when a thread leaves it by a panic: nobody would do what it did.
struct PanicGuard<'a, S: 'static>(&'a HandleSet<S>);

impl<S: 'static> Drop for PanicGuard<'_, S> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
