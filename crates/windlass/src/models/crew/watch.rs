//! The watch over a crew: how far a stop has come, and which threads have ended.
//!
//! The thread that runs the server is none of the crew: it waits here, calls no session, and so cuts
//! at the deadline of a stop, and gives up, whatever the threads are stuck in. It does drop the
//! sessions that it cuts: one whose drop waits for a thread that is stuck holds it up as well.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::models::limits::END_PATIENCE;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stage: Stage,
    /// The threads that have ended, by index.
    ended: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Serving,
    /// What is left is cut then; none: that is too far away.
    Stopping { cut_at: Option<Instant> },
    /// Threads are waited for until then.
    Cut { give_up_at: Instant },
}

/// What the one who waits is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// To cut what is left: the deadline is over, or a thread has ended.
    Cut,
    /// Nothing more: the threads have ended, or are stuck.
    Over,
}

impl Watch {
    /// A stop has begun, which cuts what is left after `deadline`.
    pub(super) fn note_stop(&self, deadline: Duration) {
        let mut state = self.lock();
        if matches!(state.stage, Stage::Serving) {
            let cut_at = Instant::now().checked_add(deadline);
            state.stage = Stage::Stopping { cut_at };
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Connections were cut. Threads that do jobs are among those that are [excused](Self::wait)
    /// by now.
    pub(super) fn note_cut(&self) {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Cut { .. }) {
            let give_up_at = Instant::now() + END_PATIENCE;
            state.stage = Stage::Cut { give_up_at };
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A thread has ended.
    pub(super) fn note_end(&self, thread: usize) {
        self.lock().ended.push(thread);
        self.changed.notify_all();
    }

    /// Whether a thread has ended.
    pub(super) fn has_ended(&self, thread: usize) -> bool {
        self.lock().ended.contains(&thread)
    }

    /// Waits until something is due. Once connections are cut, threads that are `excused` are not
    /// waited for.
    pub(super) fn wait(&self, threads: &[usize], excused: impl Fn(usize) -> bool) -> Due {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let until = match state.stage {
                Stage::Cut { give_up_at } => {
                    let is_left = |&thread: &usize| {
                        let has_ended = state.ended.contains(&thread);
                        !has_ended && !excused(thread)
                    };
                    if give_up_at <= now || !threads.iter().any(is_left) {
                        return Due::Over;
                    }
                    Some(give_up_at)
                }
                // It does when the set has ended, or by a panic.
                _ if !state.ended.is_empty() => return Due::Cut,
                Stage::Stopping { cut_at } if cut_at.is_some_and(|at| at <= now) => {
                    return Due::Cut;
                }
                Stage::Stopping { cut_at } => cut_at,
                Stage::Serving => None,
            };
            state = match until {
                None => self.changed.wait(state),
                Some(until) => self
                    .changed
                    .wait_timeout(state, until - now)
                    .map(|(state, _)| state)
                    .map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
            }
            .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
