//! The end of a ring: dropped with operations in flight, or left behind by a fork.

use std::io;
use std::time::{Duration, Instant};

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};

use super::fork_guard::Owner;
use super::submission::timespec;
use super::{IGNORED, Reaped, Ring, Untried, setup};
use crate::operation::{Completion, OpId};
use crate::provided::BufferPools;

/// How long a ring that is dropped waits for what it has cancelled.
const GRACE: Duration = Duration::from_secs(1);
/// How long it waits before it asks again: an operation may have been submitted after the cancel.
const STEP: Duration = Duration::from_millis(10);

impl Ring {
    /// Replaces the ring by a new one, and answers everything that was in flight, as completed: in a
    /// child after a fork, where the old one is the parent's, which goes on with it, as cancelled. In
    /// the process that opened it, what is in flight is cancelled and waited for first.
    ///
    /// # Errors
    ///
    /// `EINVAL` (`pools` has one that was added with another ring); `EBUSY` (something does not end,
    /// or another thread waited before: it stays in flight). As [`open`](Self::open), and of the
    /// registration of `pools`: the old ring is of no use in a child then. In each case what
    /// did end is lost.
    pub fn reinit(&mut self, pools: &BufferPools) -> io::Result<Vec<Completion>> {
        if !pools.are_among(&self.pools) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut back = self.end_unseen();
        if self.is_in_child() || !self.is_enabled {
            // Here the kernel has seen nothing, or works on the parent's memory.
            for (id, flight) in self.flights.drain() {
                let result = flight.cancelled();
                back.push(Untried::new(id, result, flight).into_completion());
            }
        } else {
            self.end_flights(pools, &mut back);
            if !self.flights.is_empty() {
                // The old ring's buffers can't be given to a new one.
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
        }
        let (io, abilities) = setup::open(&self.options)?;
        let owner = Owner::this_process()?;
        self.is_enabled = !io.params().is_setup_single_issuer();
        // Closes the old one: the parent's stays open by its own descriptor.
        self.io = io;
        self.at_once.forget();
        self.abilities = abilities;
        self.owner = owner;
        self.pools.clear();
        pools.register_again(self)?;
        Ok(back)
    }

    fn is_in_child(&self) -> bool {
        !self.owner.is_this_process()
    }

    /// Ends what the kernel has not seen: it never begins.
    fn end_unseen(&mut self) -> Vec<Completion> {
        let unseen: Vec<OpId> = std::mem::take(&mut self.overflow)
            .iter()
            .map(|entry| OpId::from_bits(entry.get_user_data()))
            .chain(std::mem::take(&mut self.parked))
            .collect();
        for id in unseen {
            if let Some(flight) = self.flights.take(id) {
                let result = flight.cancelled();
                self.ready.push_back(Untried::new(id, result, flight));
            }
        }
        let ready: Vec<Untried> = self.ready.drain(..).collect();
        for untried in &ready {
            self.flights.release(untried.id);
        }
        ready.into_iter().map(Untried::into_completion).collect()
    }

    /// Cancels everything and waits for it; what comes back goes into `back`.
    fn end_flights(&mut self, pools: &BufferPools, back: &mut Vec<Completion>) {
        let ids: Vec<OpId> = self.flights.ids().collect();
        for id in ids {
            if let Some(flight) = self.flights.get_mut(id) {
                flight.cancel_asked = true;
            }
        }
        let deadline = Instant::now() + GRACE;
        while !self.flights.is_empty() && self.is_enabled {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cancel_all(left).is_err() {
                break;
            }
            let waited = self.wait(pools, Some(left.min(STEP)));
            let reaped = self.reap(pools, |reaped| {
                if let Reaped::Operation(completion) = reaped {
                    back.push(completion);
                }
            });
            if waited.is_err() || reaped.is_err() {
                break;
            }
        }
    }

    /// Asks the kernel to cancel everything that it has.
    fn cancel_all(&mut self, limit: Duration) -> io::Result<()> {
        if self.abilities.sync_cancel {
            let result = self
                .io
                .submitter()
                .register_sync_cancel(Some(timespec(limit)), CancelBuilder::any());
            return match result {
                // ENOENT: there was nothing, or it is complete; ETIME: some take longer.
                Err(error)
                    if !matches!(
                        error.raw_os_error(),
                        Some(libc::ENOENT | libc::ETIME | libc::EINTR)
                    ) =>
                {
                    Err(error)
                }
                _ => Ok(()),
            };
        }
        let ids: Vec<_> = self.flights.ids().collect();
        for id in ids {
            let entry: squeue::Entry = opcode::AsyncCancel::new(id.to_bits())
                .build()
                .user_data(IGNORED);
            self.push(entry);
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_in_child() {
            // The parent's kernel side works on the parent's memory: this copy is ours alone.
            return;
        }
        if !self.is_enabled {
            // Nothing was ever submitted.
            return;
        }
        drop(self.end_unseen());
        // What it brings is dropped: descriptors are closed, buffers freed.
        self.end_flights(&BufferPools::new(), &mut Vec::new());
        if self.flights.is_empty() {
            return;
        }
        // The kernel may be at these still: neither memory nor descriptors may be used for
        // anything else.
        for (_, flight) in self.flights.drain() {
            std::mem::forget(flight);
        }
        for memory in self.pools.drain(..) {
            std::mem::forget(memory);
        }
    }
}
