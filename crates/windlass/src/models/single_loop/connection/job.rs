//! Jobs of a connection: handed to the pool, tried again when that is full.

use std::cell::Cell;
use std::rc::Rc;

use super::{Connection, Cx, Phase, Step};
use crate::models::single_loop::state::ServerState;
use crate::pool::{Outcome, SubmitErrorKind};
use crate::session::{Job, JobFailed, Service};

impl<V: Service> Connection<V> {
    pub(super) fn has_job(&self) -> bool {
        matches!(self.phase, Phase::Working(_) | Phase::Queued(_))
    }

    /// Hands a job to the pool; its result activates this connection's event.
    pub(super) fn start_job(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        job: Job,
    ) -> Step {
        let result = Rc::new(Cell::new(None));
        let (event, slot) = (cx.event(), Rc::clone(&result));
        let submitted = cx.submit_job(&state.pool, job, move |_, cx, outcome| {
            slot.set(Some(match outcome {
                Outcome::Done(result) => result,
                // Neither is a result that a session gave out: it takes them for a failure.
                Outcome::Panicked(panic) => Box::new(JobFailed::Panicked(panic)),
                Outcome::Cancelled => Box::new(JobFailed::Cancelled),
            }));
            // Gone: the connection ended meanwhile.
            let _ = cx.activate(event, 1);
        });
        self.phase = match submitted {
            Ok(_) => Phase::Working(result),
            Err(error) if matches!(error.kind, SubmitErrorKind::Full { .. }) => {
                Phase::Queued(error.rejected.0)
            }
            // The pool is shut down: nobody will do it.
            Err(_) => return self.fail(state),
        };
        Ok(())
    }
}
