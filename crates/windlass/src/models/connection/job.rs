//! Jobs of a connection: handed to the driver, tried again when that has no room.

use super::host::{Host, JobRefused, JobSlot, Transport};
use super::{Connection, Phase, Step};
use crate::models::lane::Lane;
use crate::session::{Job, Service};

impl<V: Service, T: Transport> Connection<V, T> {
    pub(super) fn has_job(&self) -> bool {
        matches!(self.phase, Phase::Working(_) | Phase::Queued(_))
    }

    /// Hands a job to the driver; its result has this connection stepped.
    pub(super) fn start_job(&mut self, lane: &mut Lane<V>, host: &mut impl Host, job: Job) -> Step {
        if job.is_away() {
            self.phase = Phase::Away;
            return Ok(());
        }
        let slot = JobSlot::default();
        self.phase = match host.start_job(job, slot.clone()) {
            Ok(()) => Phase::Working(slot),
            Err(JobRefused::Full(job)) => Phase::Queued(job),
            Err(JobRefused::Closed) => return self.fail(lane),
        };
        Ok(())
    }
}
