//! What a connection waits for: its interest, the edges that it has to remember, and its timer.

use std::time::Duration;

use windlass_core::{Instant, Interest, Readiness, Trigger};

use super::host::{Host, Transport};
use super::{Connection, Phase};
use crate::models::lane::Lane;
use crate::session::{Now, Service, Session};

/// When a job that found the pool full is tried again.
const POOL_RETRY: Duration = Duration::from_millis(2);

impl<V: Service, T: Transport> Connection<V, T> {
    /// What to ask for to read. With edges also the peer's close, and urgent data, at which a read
    /// stops: if neither was reported, a read that filled less than its room has taken all there
    /// was, and what comes later is reported.
    pub(super) fn reading(trigger: Trigger) -> Interest {
        if trigger == Trigger::Edge {
            Interest::READ | Interest::PEER_CLOSED | Interest::PRIORITY
        } else {
            Interest::READ
        }
    }

    /// Notes whether there may be more to read: a full buffer may have left some, and so may any
    /// read when a close or urgent data was reported, or when the socket is not TCP (a Unix
    /// socket's reads end where descriptors were sent).
    #[inline]
    pub(super) fn note_received(&mut self, count: usize, room_len: usize) {
        let more =
            Readiness::PEER_CLOSED | Readiness::HANG_UP | Readiness::ERROR | Readiness::PRIORITY;
        let all = self.is_tcp && count < room_len && !self.ready.intersects(more);
        if count == 0 || all {
            self.ready = self.ready.without(Readiness::READ);
        }
    }

    /// Whether its session goes on when the output has drained.
    pub(super) fn waits_for_room(&self) -> bool {
        matches!(self.phase, Phase::Flushing | Phase::Finishing { .. })
    }

    /// Whether the queued output has drained so far that its producer may go on.
    pub(super) fn is_low(&self, lane: &Lane<V>) -> bool {
        self.output.as_ref().is_none_or(|output| output.is_low())
            && self.transport.sending_bytes() <= lane.limits.output.low_bytes
    }

    /// Whether output has not left yet.
    pub(super) fn owes(&self) -> bool {
        self.output.is_some() || self.transport.sending_bytes() > 0
    }

    /// Notes that the peer has taken some of the output that was taken from the queue.
    pub(in crate::models) fn note_progress(&mut self, now: Now) {
        self.progress_at = now.monotonic;
    }

    /// When the peer will have taken nothing for too long.
    pub(super) fn stall_deadline(&self, lane: &Lane<V>) -> Instant {
        match lane.limits.write_stall_timeout {
            Some(timeout) if self.owes() && !self.transport.is_probing() => {
                self.progress_at + timeout
            }
            _ => Instant::FAR,
        }
    }

    /// Watches for what it waits for now; what it is ready for already and edges do not report
    /// again has its turn later.
    #[inline]
    pub(super) fn update_interest(&mut self, lane: &Lane<V>, host: &mut impl Host) {
        let edge = self.trigger == Trigger::Edge;
        let reads_on = matches!(self.phase, Phase::Reading)
            && self.output.is_none()
            && !self.input_ended
            && !self.ready.intersects(Readiness::READ);
        if edge && reads_on && self.interest == Self::reading(self.trigger) {
            self.paused = false;
            return;
        }
        if edge && matches!(self.phase, Phase::Away) && self.output.is_none() {
            return;
        }
        let (mut full, mut low) = (false, true);
        if let Some(output) = &self.output {
            (full, low) = (output.is_full(), output.is_low());
        }
        self.paused = full || self.paused && !low;
        let reads = match self.phase {
            Phase::Reading => !self.input_ended && !self.paused,
            Phase::Waiting => {
                !self.input_ended && !self.paused && self.carry.len() < lane.input.len()
            }
            Phase::Finishing { left_bytes } | Phase::Closing { left_bytes } => {
                !self.input_ended && left_bytes > 0
            }
            Phase::Lingering { .. } => true,
            _ => false,
        };
        let mut interest = Interest::NONE;
        if reads {
            interest |= Self::reading(self.trigger);
        }
        if self.output.is_some() {
            interest |= Interest::WRITE;
        }
        if edge && interest.is_none() && matches!(self.phase, Phase::Waiting) {
            // Errors and hang-ups come with any interest; this one is told of once.
            interest = Interest::PEER_CLOSED;
        }
        if interest != self.interest {
            self.interest = interest;
            host.watch(interest);
        }
        if !edge {
            self.ready = Readiness::NONE;
        } else if self.ready.intersects(Readiness::READ) && interest.contains(Interest::READ)
            || self.ready.intersects(Readiness::WRITE) && interest.contains(Interest::WRITE)
        {
            host.call_again();
        }
    }

    /// Arms the event's timer for the first of its deadlines.
    #[inline]
    pub(super) fn update_deadline(&mut self, lane: &Lane<V>, host: &mut impl Host, now: Now) {
        let mut deadline = match self.phase {
            Phase::Lingering { until, .. } => until,
            Phase::Closing { .. } => Instant::FAR,
            Phase::Queued(_) => now.monotonic + POOL_RETRY,
            // What is armed stays: at most it finds that nothing is due.
            Phase::Away => self.armed,
            _ => self.session.deadline().unwrap_or(Instant::FAR),
        };
        if self.owes() {
            deadline = deadline.min(self.stall_deadline(lane));
        }
        // A later deadline needs no other timer: at the old one it is seen that nothing is due.
        // So a connection that is served again and again leaves its timer alone.
        if deadline == self.armed || deadline > self.armed && deadline != Instant::FAR {
            return;
        }
        self.armed = deadline;
        host.arm(deadline);
    }
}
