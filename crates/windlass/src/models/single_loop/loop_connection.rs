//! A connection as a handler of a loop.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use windlass_core::{Disposition, Happened, Instant, Interest};

use super::book::Entry;
use super::state::ServerState;
use crate::event_loop::{Context, EventHandler, WakeFlag};
use crate::models::connection::{Connection, Host, JobRefused, JobSlot, Transport};
use crate::models::jobs::JobSite;
use crate::session::{Job, Notifier, Service};

pub(super) type Cx<'c, V> = Context<'c, 'static, ServerState<V>>;

/// One connection of a loop.
pub(super) struct LoopConnection<V: Service> {
    connection: Connection<V>,
    entry: Entry,
}

impl<V: Service> LoopConnection<V> {
    pub(super) fn new(connection: Connection<V>, entry: Entry) -> Self {
        Self { connection, entry }
    }
}

impl<V: Service> Drop for LoopConnection<V> {
    fn drop(&mut self) {
        self.entry.note_end(|| self.connection.summary());
    }
}

impl<V: Service> EventHandler<'static, ServerState<V>> for LoopConnection<V> {
    fn handle_event(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        happened: Happened,
    ) -> Disposition {
        step_in_loop(&mut self.connection, state, cx, happened)
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.transport().socket())
    }
}

/// Steps a connection whose event's handler runs.
#[inline]
pub(super) fn step_in_loop<V: Service, T: Transport>(
    connection: &mut Connection<V, T>,
    state: &mut ServerState<V>,
    cx: &mut Cx<'_, V>,
    happened: Happened,
) -> Disposition {
    let now = state.now(cx);
    let ends_connections = state.ends_connections();
    let ServerState {
        lane,
        jobs,
        wake_flag,
        ..
    } = state;
    let mut host = LoopHost {
        cx,
        jobs,
        wake_flag,
        ends_connections,
    };
    if connection.step(lane, &mut host, happened, now).is_err() {
        state.forget_connection(cx);
        return Disposition::Remove;
    }
    Disposition::Keep
}

/// The loop, as the connection's driver. All calls concern the event whose handler runs, so none
/// fails because that is gone.
struct LoopHost<'a, 'c, V: Service> {
    cx: &'a mut Cx<'c, V>,
    jobs: &'a JobSite,
    wake_flag: &'a Arc<WakeFlag>,
    ends_connections: bool,
}

impl<V: Service> Host for LoopHost<'_, '_, V> {
    fn notifier(&self) -> Notifier {
        let (flag, event) = (Arc::clone(self.wake_flag), self.cx.event());
        Notifier::new(move || flag.complete(event))
    }

    fn call_again(&mut self) {
        let event = self.cx.event();
        let _ = self.cx.activate(event, 1);
    }

    #[inline]
    fn watch(&mut self, interest: Interest) {
        let event = self.cx.event();
        let _ = self.cx.set_interest(event, interest);
    }

    #[inline]
    fn arm(&mut self, deadline: Instant) {
        let event = self.cx.event();
        let _ = if deadline == Instant::FAR {
            self.cx.disarm(event).map(drop)
        } else {
            self.cx.arm_at(event, deadline)
        };
    }

    fn start_job(&mut self, job: Job, slot: JobSlot) -> Result<(), JobRefused> {
        let event = self.cx.event();
        let pool = match self.jobs {
            JobSite::Pool(pool) => pool,
            JobSite::Loop => {
                slot.put(job.run_contained());
                self.call_again();
                return Ok(());
            }
            JobSite::Workers(workers) => {
                let flag = Arc::clone(self.wake_flag);
                workers.do_job(
                    job,
                    Box::new(move |outcome| {
                        slot.put(outcome);
                        flag.complete(event);
                    }),
                );
                return Ok(());
            }
        };
        let submitted = self.cx.submit_job(pool, job, move |_, cx, outcome| {
            slot.put(outcome);
            // Gone: the connection ended meanwhile.
            let _ = cx.activate(event, 1);
        });
        submitted.map(drop).map_err(JobRefused::from)
    }

    fn ends_connections(&self) -> bool {
        self.ends_connections
    }
}
