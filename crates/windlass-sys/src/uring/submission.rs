//! Submitting: entries on their way into the kernel, and the call that brings them there.

use std::io;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, opcode, squeue};

use super::{IGNORED, RETRY, Ring, Untried, WaitEnd};
use crate::operation::{OpId, Operation};
use crate::provided::BufferPools;

impl Ring {
    /// From here on this thread is the only one, if the kernel is to know.
    #[inline]
    pub(super) fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.io.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }

    /// Submits an operation, for the first time or again.
    #[inline]
    pub(super) fn submit(&mut self, id: OpId) {
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        if let Some(result) = flight.attempt() {
            return self.end(id, result);
        }
        match flight.entry(self.abilities) {
            Ok(entry) => self.push(entry.user_data(id.to_bits())),
            Err(error) => self.end(id, Err(error)),
        }
    }

    /// An operation is complete that the kernel has no entry of.
    #[cold]
    pub(super) fn end(&mut self, id: OpId, result: io::Result<usize>) {
        if let Some(flight) = self.flights.take(id) {
            self.ready.push_back(Untried::new(id, result, flight));
        }
    }

    /// Queues an entry; it is the kernel's from now on, whatever the next submissions say.
    #[inline]
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        if self.overflow.is_empty() {
            // SAFETY: What the entry points to is owned by its operation, which stays in
            // `self.flights` until its last answer; polls and cancels point to nothing.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                self.at_once.note_push();
                return;
            }
            if self.is_enabled {
                // Whether it fails or not: what does not fit then waits for the next.
                let _ = self.enter(0, None);
            }
        }
        self.overflow.push_back(entry);
        self.fill_queue();
    }

    /// Moves what waits in memory into the submission queue, as far as there is room.
    pub(super) fn fill_queue(&mut self) {
        if self.overflow.is_empty() {
            return;
        }
        let mut queue = self.io.submission();
        while let Some(entry) = self.overflow.front() {
            // SAFETY: As in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.at_once.note_push();
            self.overflow.pop_front();
        }
    }

    /// Takes an operation's entry out of what the kernel has not seen.
    pub(super) fn take_from_overflow(&mut self, id: OpId) -> bool {
        let data = id.to_bits();
        let at = self
            .overflow
            .iter()
            .position(|entry| entry.get_user_data() == data);
        at.and_then(|at| self.overflow.remove(at)).is_some()
    }

    /// Whether there is anything that only a system call brings on.
    #[inline]
    pub(super) fn must_enter(&mut self) -> bool {
        let queue = self.io.submission();
        !self.abilities.tells_of_work || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// One io_uring_enter(2) with all that is queued.
    #[inline]
    pub(super) fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<WaitEnd> {
        if let Some(error) = self.faults.pop_front() {
            return self.ended(Err(io::Error::from_raw_os_error(error)));
        }
        let count = self.io.submission().len() as u32;
        self.enter_with(count, want, timeout)
    }

    #[inline]
    pub(super) fn enter_with(
        &mut self,
        count: u32,
        want: u32,
        timeout: Option<Duration>,
    ) -> io::Result<WaitEnd> {
        let time = timeout.filter(|timeout| !timeout.is_zero()).map(timespec);
        let arguments = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        self.counters.enters += 1;
        // SAFETY: The queue's entries are valid, as `push` says, and `arguments` is of the type that
        // EXT_ARG announces and outlives the call.
        let result = unsafe {
            self.io
                .submitter()
                .enter(count, want, flags.bits(), Some(&arguments))
        };
        self.ended(result)
    }

    /// Sorts the kernel's answers. Whatever it says, entries that it did not take stay queued.
    #[inline]
    pub(super) fn ended(&mut self, result: io::Result<usize>) -> io::Result<WaitEnd> {
        let Err(error) = result else {
            return Ok(WaitEnd::Completions);
        };
        match error.raw_os_error() {
            Some(libc::ETIME) => Ok(WaitEnd::TimedOut),
            Some(libc::EINTR) => Ok(WaitEnd::Interrupted),
            // No memory for requests; or completions must be reaped first.
            Some(libc::EAGAIN | libc::EBUSY) => {
                self.counters.deferred += 1;
                Ok(WaitEnd::Later)
            }
            _ => Err(error),
        }
    }

    /// The kernel takes no entries for now: waits a little for completions, without spinning.
    #[cold]
    pub(super) fn retreat(&mut self, timeout: Option<Duration>) -> io::Result<WaitEnd> {
        if self.io.completion().is_empty() {
            let time = timeout.map_or(RETRY, |timeout| timeout.min(RETRY));
            let want = u32::from(!time.is_zero());
            self.enter_with(0, want, Some(time))?;
        }
        Ok(WaitEnd::Later)
    }

    /// Submits receives again whose pools have buffers.
    pub(super) fn resume_parked(&mut self, pools: &BufferPools) {
        if self.parked.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.parked) {
            match self.flights.get_mut(id).map(|flight| &flight.operation) {
                Some(Operation::ReceiveMultishot { pool, .. }) if !pools.has_room(*pool) => {
                    self.parked.push(id);
                }
                Some(_) => self.submit(id),
                None => {}
            }
        }
    }
}

pub(super) fn cancel_entry(data: u64) -> squeue::Entry {
    opcode::AsyncCancel2::new(CancelBuilder::user_data(data))
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(IGNORED)
}

pub(super) fn timespec(timeout: Duration) -> Timespec {
    // What does not fit is 292 years and more.
    let secs = timeout.as_secs().min(i64::MAX as u64 / 1_000_000_000);
    Timespec::new().sec(secs).nsec(timeout.subsec_nanos())
}
