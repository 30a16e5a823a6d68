//! Common timeouts: a FIFO for each length that many timers share.
//!
//! Equal lengths armed in the order of time are due in that order: appending keeps the queue
//! sorted.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

use super::Entry;
use crate::time::Instant;

/// A length that many timers share, made by [`TimerQueue::common_timeout`](super::TimerQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommonTimeout(u8);

impl CommonTimeout {
    /// How many different lengths one queue can have.
    pub const COUNT_MAX: usize = 256;

    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_number(number: u8) -> Self {
        Self(number)
    }
}

/// No further length can be made common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonTimeoutError {
    /// The length that was asked for.
    pub length: Duration,
}

impl fmt::Display for CommonTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = CommonTimeout::COUNT_MAX;
        write!(
            f,
            "make {:?} a common timeout: {max} lengths are common already",
            self.length
        )
    }
}

impl std::error::Error for CommonTimeoutError {}

#[derive(Debug, Default)]
pub(super) struct CommonQueues {
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    length: Duration,
    /// By deadline, ascending; dead ones in between.
    entries: VecDeque<Entry>,
    last: u64,
    /// Looking for dead entries is worth it at this length.
    compact_at: usize,
}

const COMPACT_AT_LEAST: usize = 256;

impl CommonQueues {
    pub(super) fn timeout(
        &mut self,
        length: Duration,
    ) -> Result<CommonTimeout, CommonTimeoutError> {
        let found = self.queues.iter().position(|queue| queue.length == length);
        let at = found.unwrap_or(self.queues.len());
        if at >= CommonTimeout::COUNT_MAX {
            return Err(CommonTimeoutError { length });
        }
        if found.is_none() {
            let entries = VecDeque::new();
            self.queues.push(Queue {
                length,
                entries,
                last: 0,
                compact_at: COMPACT_AT_LEAST,
            });
        }
        // Less than 256, as checked.
        Ok(CommonTimeout(at as u8))
    }

    /// The length after `now`, but never before the queue's last.
    pub(super) fn deadline(&mut self, timeout: CommonTimeout, now: Instant) -> u64 {
        let queue = &mut self.queues[usize::from(timeout.0)];
        queue.last = queue.last.max((now + queue.length).as_nanos());
        queue.last
    }

    pub(super) fn push(
        &mut self,
        timeout: CommonTimeout,
        entry: Entry,
        is_live: impl Fn(Entry) -> bool,
    ) {
        let queue = &mut self.queues[usize::from(timeout.0)];
        if queue.entries.len() >= queue.compact_at {
            queue.entries.retain(|&entry| is_live(entry));
            queue.compact_at = COMPACT_AT_LEAST.max(2 * queue.entries.len());
        }
        queue.entries.push_back(entry);
    }

    /// The earliest live entry; dead ones in front are dropped.
    pub(super) fn next(&mut self, is_live: impl Fn(Entry) -> bool) -> Option<Entry> {
        let mut earliest: Option<Entry> = None;
        for queue in &mut self.queues {
            while let Some(&entry) = queue.entries.front() {
                if is_live(entry) {
                    if earliest.is_none_or(|earliest| entry.deadline < earliest.deadline) {
                        earliest = Some(entry);
                    }
                    break;
                }
                queue.entries.pop_front();
            }
        }
        earliest
    }

    /// Hands every entry that is due to `meet`; answers whether there was one.
    pub(super) fn expire(&mut self, now: u64, mut meet: impl FnMut(Entry)) -> bool {
        let mut any = false;
        for queue in &mut self.queues {
            while let Some(&entry) = queue.entries.front() {
                if entry.deadline > now {
                    break;
                }
                queue.entries.pop_front();
                meet(entry);
                any = true;
            }
        }
        any
    }

    pub(super) fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.entries.clear();
        }
    }
}
