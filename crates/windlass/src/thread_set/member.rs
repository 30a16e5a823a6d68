//! A member of a set: one thread's part in it.

use std::sync::{Arc, Weak};

use super::SetKernel;
use super::follower::{Follower, result};
use super::kernel::ranks::MemberId;
use super::kernel::{Rested, Role, Work};
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

    /// What the thread runs; once.
    pub(crate) fn run(&self, state: &mut S, mut life: impl Life<S>) -> Result<(), RunError> {
        let mut follower = Follower::new(Arc::clone(&self.kernel), self.id);
        // Ends the set if one of the program's own closures panics.
        let guard = PanicGuard(&self.kernel);
        let mut rested = Rested::Yes;
        loop {
            match follower.next(rested) {
                Work::Call(taken) => {
                    // As `Led` and `Promoted` do, without the guards: nothing fails in between.
                    self.kernel.promote(taken.promotion);
                    follower.handle(state, taken.call, taken.now);
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
        result(&self.kernel)
    }

    /// What the thread of a dispatcher runs: it only waits.
    pub(crate) fn run_dispatcher(&self) -> Result<(), RunError> {
        self.kernel.begin(self.id);
        while !matches!(self.kernel.next(self.id, None, Rested::Yes), Work::Over) {}
        result(&self.kernel)
    }
}

/// Ends the set when a thread leaves it by a panic: nobody would do what it did.
struct PanicGuard<'a, S: 'static>(&'a SetKernel<S>);

impl<S: 'static> Drop for PanicGuard<'_, S> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
