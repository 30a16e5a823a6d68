//! A connection with which its thread stays: it blocks until the exchange is done.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use windlass_core::{Disposition, Happened, Instant, Interest, Readiness};
use windlass_sys::poll::{self, PollFd};

use super::connection::{CrewConnection, Stepped, notifier};
use super::{Crew, Hand};
use crate::demultiplexer::poll::{events_of, readiness_of};
use crate::models::connection::{Host, JobRefused, JobSlot, Transport};
use crate::pool::Outcome;
use crate::session::{Job, JobResult, Notifier, Service};
use crate::thread_set::{SetContext, SetHandler};

/// See the module.
pub(super) struct HeldConnection<V: Service> {
    /// Out while its handler runs.
    connection: Option<CrewConnection<V>>,
    /// What the set watches it for.
    watched: Interest,
    /// What the set's timer is armed for.
    armed: Instant,
}

impl<V: Service> HeldConnection<V> {
    pub(super) fn new(connection: CrewConnection<V>) -> Self {
        Self {
            watched: connection.connection.interest(),
            armed: connection.connection.deadline(),
            connection: Some(connection),
        }
    }

    /// Has the set watch again, for what the connection waits for now.
    fn let_go(&mut self, connection: CrewConnection<V>, host: &HeldHost<'_, V>) {
        let (cx, event) = (host.cx, host.cx.event());
        // The calls fail if the connection is cut meanwhile.
        if host.interest != self.watched {
            self.watched = host.interest;
            let _ = cx.set_interest(event, host.interest);
        }
        if host.deadline != self.armed {
            self.armed = host.deadline;
            let _ = if host.deadline == Instant::FAR {
                cx.disarm(event).map(drop)
            } else {
                cx.arm_at(event, host.deadline)
            };
        }
        self.connection = Some(connection);
    }
}

impl<V: Service> SetHandler<Hand<V>> for HeldConnection<V> {
    fn handle_event(
        &mut self,
        hand: &mut Hand<V>,
        cx: &SetContext<'_, Hand<V>>,
        happened: Happened,
    ) -> Disposition {
        let Some(mut connection) = self.connection.take() else {
            debug_assert!(false, "it was put back");
            return Disposition::Remove;
        };
        if happened.timed_out {
            self.armed = Instant::FAR;
        }
        let crew = std::sync::Arc::clone(&hand.crew);
        let mut host = HeldHost {
            cx,
            crew: &crew,
            interest: self.watched,
            deadline: self.armed,
            job: None,
            goes_on: false,
        };
        let mut what = happened;
        let mut time = cx.now();
        loop {
            let now = hand.lane.now(time);
            if connection.step(&mut hand.lane, &mut host, what, now) == Stepped::Gone {
                return Disposition::Remove;
            }
            what = Happened::nothing(cx.event());
            if let Some((job, slot)) = host.job.take() {
                let Some((back, outcome)) = hand.do_job(connection, job) else {
                    return Disposition::Remove;
                };
                connection = back;
                slot.put(outcome);
                what.user = true;
            } else if std::mem::take(&mut host.goes_on) {
                what.user = true;
            } else if connection.connection.is_engaged() {
                let socket = connection.connection.transport().socket();
                what = host.block(hand, socket, what);
            } else {
                break;
            }
            if crew.book.is_cut() {
                return Disposition::Remove;
            }
            time = cx.clock();
        }
        self.let_go(connection, &host);
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        let connection = self.connection.as_ref()?;
        Some(connection.connection.transport().socket())
    }
}

impl<V: Service> Hand<V> {
    /// Does a job, in this thread. Others may cut the connection meanwhile: then it does not come
    /// back.
    fn do_job(
        &self,
        connection: CrewConnection<V>,
        job: Job,
    ) -> Option<(CrewConnection<V>, Outcome<JobResult>)> {
        let seat = self.seat();
        seat.set_report(self.lane.counts);
        if !seat.begin_job(connection, || self.crew.book.is_cut()) {
            return None;
        }
        let outcome = job.run_contained();
        Some((seat.end_job()?, outcome))
    }
}

/// The thread itself, as the connection's driver.
struct HeldHost<'a, V: Service> {
    cx: &'a SetContext<'a, Hand<V>>,
    crew: &'a Crew<V>,
    interest: Interest,
    deadline: Instant,
    /// To be done before anything else.
    job: Option<(Job, JobSlot)>,
    goes_on: bool,
}

impl<V: Service> HeldHost<'_, V> {
    /// Blocks until the socket is ready, the deadline is over, or the thread is called. `nothing`
    /// is what happened so far.
    fn block(&mut self, hand: &mut Hand<V>, socket: BorrowedFd<'_>, nothing: Happened) -> Happened {
        let mut what = nothing;
        hand.settle(self.cx.clock());
        // Unasked reports would come again and again. Urgent data is not waited for: it would
        // be reported until it is read as such.
        let interest = self.interest.without(Interest::PRIORITY);
        let raw = if interest.is_none() {
            -1
        } else {
            socket.as_raw_fd()
        };
        let bell = hand
            .seat()
            .bell()
            .map_or(-1, |bell| bell.as_fd().as_raw_fd());
        let mut fds = [
            PollFd::new(raw, events_of(interest)),
            PollFd::new(bell, poll::IN),
        ];
        match poll::poll(&mut fds, self.timeout()) {
            // A deadline, or an interruption.
            Ok(0) if self.deadline <= self.cx.clock() => {
                self.deadline = Instant::FAR;
                what.timed_out = true;
            }
            Ok(0) => {}
            Ok(_) => {
                what.readiness = readiness_of(fds[0].found());
                if fds[1].found() != 0 {
                    self.answer(hand);
                    // It looks whether it is to end.
                    what.user = true;
                }
            }
            // No memory: the next read or write is tried.
            Err(_) => what.readiness = Readiness::READ | Readiness::WRITE | Readiness::ERROR,
        }
        what
    }

    fn timeout(&self) -> Option<Duration> {
        let is_armed = self.deadline != Instant::FAR;
        is_armed.then(|| self.deadline.saturating_since(self.cx.clock()))
    }

    /// Does what others have called this thread for.
    fn answer(&self, hand: &mut Hand<V>) {
        if let Some(bell) = hand.seat().bell() {
            // It can't fail: it is open.
            let _ = bell.drain();
        }
        hand.run_posts();
    }
}

impl<V: Service> Host for HeldHost<'_, V> {
    fn notifier(&self) -> Notifier {
        notifier(self.cx.downgrade(), self.cx.event())
    }

    fn call_again(&mut self) {
        self.goes_on = true;
    }

    fn watch(&mut self, interest: Interest) {
        self.interest = interest;
    }

    fn arm(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn start_job(&mut self, job: Job, slot: JobSlot) -> Result<(), JobRefused> {
        self.job = Some((job, slot));
        Ok(())
    }

    fn ends_connections(&self) -> bool {
        self.crew.book.ends_connections()
    }
}
