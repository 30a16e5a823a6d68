//! How a connection ends: at a stop, at a deadline, in order after its last answer, by an error.

use windlass_core::Readiness;
use windlass_sys::net;

use super::host::{Host, Transport};
use super::{Connection, Gone, Phase, Step, StopTold, context};
use crate::models::lane::Lane;
use crate::session::{Next, Now, Service, Session};

impl<V: Service, T: Transport> Connection<V, T> {
    /// Lets the connection know of the stop, once its session is there.
    pub(super) fn tell_stop(&mut self, lane: &mut Lane<V>, host: &mut impl Host, now: Now) -> Step {
        if matches!(self.phase, Phase::Away) {
            self.stop = StopTold::Late;
            return Ok(());
        }
        self.stop = StopTold::Yes;
        match self.phase {
            // Fully answered: the peer's close is not waited for.
            Phase::Lingering { .. } => self.close_idle(lane),
            Phase::Closing { .. } => Ok(()),
            _ => self.stop(lane, host, now),
        }
    }

    fn stop(&mut self, lane: &mut Lane<V>, host: &mut impl Host, now: Now) -> Step {
        let unread = self.unread();
        let make = || host.notifier();
        let slots = (&mut self.output, &mut self.notifier);
        let mut session_cx = context(slots, &make, lane, now);
        let next = self.session.stop(&mut session_cx);
        let was_idle = matches!(next, Next::Close)
            && session_cx.output.is_empty()
            && self.transport.sending_bytes() == 0;
        self.follow(lane, host, next)?;
        if was_idle {
            return self.close_idle(lane);
        }
        self.go_on(lane, host, now, unread)
    }

    /// Closes without waiting for the peer to close too, unless it has just sent something: then
    /// the close would be a reset, which may wipe an answer that it has not read yet.
    pub(super) fn close_idle(&mut self, lane: &mut Lane<V>) -> Step {
        match self.transport.receive(&mut lane.input) {
            Ok(Some(count)) if count > 0 => Ok(()),
            _ => Err(Gone),
        }
    }

    pub(super) fn on_deadline(
        &mut self,
        lane: &mut Lane<V>,
        host: &mut impl Host,
        now: Now,
    ) -> Step {
        let time = now.monotonic;
        if let Phase::Lingering { until, .. } = self.phase {
            return if until <= time { Err(Gone) } else { Ok(()) };
        }
        if self.stall_deadline(lane) <= time && self.transport.is_stalled() {
            lane.counts.write_stalls += 1;
            let _ = net::set_linger_zero(self.transport.socket());
            return Err(Gone);
        }
        if let Phase::Queued(_) = self.phase
            && let Phase::Queued(job) = std::mem::replace(&mut self.phase, Phase::Reading)
        {
            self.start_job(lane, host, job)?;
        }
        if self
            .session
            .deadline()
            .is_some_and(|deadline| deadline <= time)
            && !matches!(self.phase, Phase::Closing { .. })
        {
            let unread = self.unread();
            let make = || host.notifier();
            let slots = (&mut self.output, &mut self.notifier);
            let mut session_cx = context(slots, &make, lane, now);
            let next = self.session.expire(&mut session_cx);
            self.follow(lane, host, next)?;
            if !matches!(self.phase, Phase::Closing { .. })
                && self
                    .session
                    .deadline()
                    .is_some_and(|deadline| deadline <= time)
            {
                // It would expire again and again.
                let left_bytes = lane.limits.linger_bytes_max;
                self.phase = Phase::Closing { left_bytes };
            }
            self.go_on(lane, host, now, unread)?;
        }
        Ok(())
    }

    /// Goes on closing, if that is what it does.
    #[inline]
    pub(super) fn settle(&mut self, lane: &Lane<V>, now: Now) -> Step {
        let Phase::Closing { left_bytes } = self.phase else {
            return Ok(());
        };
        if self.owes() {
            return Ok(());
        }
        if self.input_ended {
            return Err(Gone);
        }
        self.carry = Vec::new();
        if self.transport.shutdown_write().is_err() {
            return Err(Gone);
        }
        self.phase = Phase::Lingering {
            until: now.monotonic + lane.limits.linger_timeout,
            left_bytes,
        };
        Ok(())
    }

    /// How much more may be dropped of what the peer sends once the session ends.
    pub(super) fn left_bytes(&self, lane: &Lane<V>) -> u64 {
        match self.phase {
            Phase::Finishing { left_bytes } => left_bytes,
            _ => lane.limits.linger_bytes_max,
        }
    }

    /// Drops what the peer still sends, until it closes too or has sent too much.
    pub(super) fn discard(&mut self, lane: &mut Lane<V>) -> Step {
        let (left_bytes, is_last) = match &mut self.phase {
            Phase::Finishing { left_bytes } | Phase::Closing { left_bytes } => (left_bytes, false),
            Phase::Lingering { left_bytes, .. } => (left_bytes, true),
            _ => return Ok(()),
        };
        match self.transport.receive(&mut lane.input) {
            Ok(None) => {
                self.ready = self.ready.without(Readiness::READ);
                Ok(())
            }
            Ok(Some(count)) if count > 0 && count as u64 <= *left_bytes => {
                *left_bytes -= count as u64;
                self.note_received(count, lane.input.len());
                Ok(())
            }
            Ok(_) if is_last => Err(Gone),
            Ok(Some(count)) => {
                // The output is still owed.
                *left_bytes = 0;
                self.input_ended = count == 0;
                Ok(())
            }
            Err(_) if is_last => Err(Gone),
            Err(_) => self.fail(lane),
        }
    }

    pub(super) fn fail(&self, lane: &mut Lane<V>) -> Step {
        lane.counts.failed += 1;
        Err(Gone)
    }
}
