//! Sends that are over when the kernel has taken their entries, and of which it answers failures
//! only: what is small and fits into the socket's buffer, as nearly every answer of a server does.
//!
//! An answer that says nothing new costs its place in the queue, and ends the wait that was to find
//! the next request. Such a send asks for none (`IOSQE_CQE_SKIP_SUCCESS`), and does not wait
//! (`MSG_DONTWAIT`): the kernel tries it within io_uring_enter(2), and whatever went wrong is in
//! the queue of completions when that call returns. What was taken and has no answer there is sent.

use std::collections::VecDeque;
use std::io;

use super::Ring;
use super::flight::{Flight, Stage};
use crate::operation::{Completion, OpId, Operation, Outcome};

/// The sends at once whose ends are not told yet.
#[derive(Debug, Default)]
pub(super) struct AtOnce {
    /// The oldest first, with the numbers of their entries.
    sends: VecDeque<(u64, OpId)>,
    /// How many entries the submission queue has been given.
    pushed: u64,
    /// Somebody waits for those with lower numbers.
    hurried_to: u64,
}

impl AtOnce {
    /// The submission queue was given an entry.
    #[inline]
    pub(super) fn note_push(&mut self) {
        self.pushed += 1;
    }

    /// The ring is new.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Ring {
    /// As [`start`](Self::start), for a send whose good end nobody waits for: if the socket takes
    /// all of it at once, that ends no [`wait`](Self::wait), and is told by the
    /// [`reap`](Self::reap) after the wait that has submitted it. If nothing but such sends is in
    /// flight, the next wait does not wait. For small payloads: of more than fits into the socket's
    /// buffer, what was sent is the result. Operations other than [`Operation::Send`] are started
    /// as usual.
    #[inline]
    pub fn start_at_once(&mut self, operation: Operation) -> OpId {
        let is_possible = matches!(operation, Operation::Send { .. })
            && self.owner.is_this_process()
            // Some kernels before 6.1 may lose count of what was sent of a send that then would wait.
            && self.abilities.tells_of_work
            && self.overflow.is_empty()
            && !self.io.submission().is_full();
        if !is_possible {
            return self.start(operation);
        }
        let id = self.flights.insert(Flight::at_once(operation));
        let number = self.at_once.pushed;
        self.submit(id);
        // Without an entry it has failed already.
        if self.at_once.pushed > number {
            self.at_once.sends.push_back((number, id));
        }
        id
    }

    /// Has no [`wait`](Self::wait) wait until the end of `id` is told, if it was started
    /// [at once](Self::start_at_once): somebody waits for it after all.
    pub fn hurry(&mut self, id: OpId) {
        if let Some(flight) = self.flights.get_mut(id)
            && flight.stage == Stage::AtOnce
        {
            self.at_once.hurried_to = self.at_once.pushed;
        }
    }

    /// Whether the end of a send at once is to be told, rather than waited for what else comes.
    #[inline]
    pub(super) fn is_hurried(&self) -> bool {
        let Some((oldest, _)) = self.at_once.sends.front() else {
            return false;
        };
        *oldest < self.at_once.hurried_to || self.at_once.sends.len() == self.flights.len()
    }

    /// Hands out the sends at once that the kernel has taken, when all its answers were looked at.
    #[inline]
    pub(super) fn conclude_at_once(&mut self, mut sink: impl FnMut(Completion)) {
        if self.at_once.sends.is_empty() {
            return;
        }
        let taken = self.at_once.pushed - self.io.submission().len() as u64;
        while let Some((number, id)) = self.at_once.sends.front().copied()
            && number < taken
        {
            self.at_once.sends.pop_front();
            if let Some(completion) = self.sent_at_once(id) {
                sink(completion);
            }
        }
    }

    /// The completion of a send that the kernel has taken; none if it has answered.
    #[inline]
    fn sent_at_once(&mut self, id: OpId) -> Option<Completion> {
        if self.flights.get_mut(id)?.stage != Stage::AtOnce {
            return None;
        }
        let operation = self.flights.remove(id)?.operation;
        let result: io::Result<Outcome> = match &operation {
            Operation::Send { payload, .. } => Ok(Outcome::Bytes(payload.as_slice().len())),
            _ => Ok(Outcome::Done),
        };
        Some(Completion {
            id,
            result,
            operation: Some(operation),
        })
    }
}
