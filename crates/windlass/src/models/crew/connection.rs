//! A connection as a handler of a set of threads.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use windlass_core::{Disposition, EventId, Happened, Instant, Interest};

use super::book::Entry;
use super::{Crew, Hand};
use crate::models::connection::{Connection, Host, JobRefused, JobSlot, Transport};
use crate::models::lane::Lane;
use crate::session::{Job, Notifier, Now, Service};
use crate::thread_set::{SetContext, SetHandler, WeakHandleSet};

/// One connection of a crew.
pub(super) struct CrewConnection<V: Service> {
    /// Its socket may have to be shut down by others, when its handler is stuck.
    pub(super) connection: Connection<V, Arc<OwnedFd>>,
    /// After the connection: whoever learns of its end finds the socket closed.
    entry: Entry<V>,
    has_ended: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    Gone,
    GoesOn,
}

impl<V: Service> CrewConnection<V> {
    pub(super) fn new(connection: Connection<V, Arc<OwnedFd>>, entry: Entry<V>) -> Self {
        Self {
            connection,
            entry,
            has_ended: false,
        }
    }

    /// Steps the connection.
    #[inline]
    pub(super) fn step(
        &mut self,
        lane: &mut Lane<V>,
        host: &mut impl Host,
        what: Happened,
        now: Now,
    ) -> Stepped {
        if self.connection.step(lane, host, what, now).is_ok() {
            return Stepped::GoesOn;
        }
        self.has_ended = true;
        Stepped::Gone
    }
}

impl<V: Service> Drop for CrewConnection<V> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.entry.note_cut(|| self.connection.summary());
        }
    }
}

impl<V: Service> SetHandler<Hand<V>> for CrewConnection<V> {
    fn handle_event(
        &mut self,
        hand: &mut Hand<V>,
        cx: &SetContext<'_, Hand<V>>,
        happened: Happened,
    ) -> Disposition {
        let now = hand.lane.now(cx.now());
        let mut host = SetHost {
            cx,
            crew: &hand.crew,
        };
        match self.step(&mut hand.lane, &mut host, happened, now) {
            Stepped::GoesOn => Disposition::Keep,
            Stepped::Gone => Disposition::Remove,
        }
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.transport().socket())
    }
}

/// The set, as the connection's driver. All calls concern the event whose handler runs; they fail
/// if that is cut meanwhile, which is no matter.
struct SetHost<'a, V: Service> {
    cx: &'a SetContext<'a, Hand<V>>,
    crew: &'a Crew<V>,
}

/// Has a connection called by its set, from any thread.
pub(super) fn notifier<V: Service>(handles: WeakHandleSet<Hand<V>>, event: EventId) -> Notifier {
    Notifier::new(move || activate(&handles, event))
}

fn activate<V: Service>(handles: &WeakHandleSet<Hand<V>>, event: EventId) {
    if let Some(handles) = handles.upgrade() {
        // Gone: the connection ended meanwhile.
        let _ = handles.activate(event);
    }
}

impl<V: Service> Host for SetHost<'_, V> {
    fn notifier(&self) -> Notifier {
        notifier(self.cx.downgrade(), self.cx.event())
    }

    fn call_again(&mut self) {
        let _ = self.cx.activate(self.cx.event());
    }

    fn watch(&mut self, interest: Interest) {
        let _ = self.cx.set_interest(self.cx.event(), interest);
    }

    fn arm(&mut self, deadline: Instant) {
        let event = self.cx.event();
        let _ = if deadline == Instant::FAR {
            self.cx.disarm(event).map(drop)
        } else {
            self.cx.arm_at(event, deadline)
        };
    }

    fn start_job(&mut self, job: Job, slot: JobSlot) -> Result<(), JobRefused> {
        let Some(pool) = &self.crew.pool else {
            return Err(JobRefused::Closed);
        };
        let (handles, event) = (self.cx.downgrade(), self.cx.event());
        let submitted = pool.submit_job(job, move |outcome| {
            slot.put(outcome);
            activate(&handles, event);
        });
        submitted.map(drop).map_err(JobRefused::from)
    }

    fn ends_connections(&self) -> bool {
        self.crew.book.ends_connections()
    }
}
