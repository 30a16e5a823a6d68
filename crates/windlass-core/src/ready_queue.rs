//! Ready queues: the active events of each priority, in order of activation.
//!
//! Doubly linked through the event table's slots: pushing, popping and taking one out of the
//! middle cost O(1) and never allocate.

use crate::event_table::EventTable;
use crate::id::NONE;

#[derive(Debug)]
pub(crate) struct ReadyQueues {
    queues: Vec<Queue>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    /// Turns in which other events ran while this one waited.
    passed_over: u32,
}

impl ReadyQueues {
    pub(crate) fn new(priorities: u16) -> Self {
        let empty = Queue {
            first: NONE,
            last: NONE,
            passed_over: 0,
        };
        Self {
            queues: vec![empty; usize::from(priorities)],
            len: 0,
        }
    }

    /// How many events are queued.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn push(&mut self, events: &mut EventTable, index: u32) {
        let slot = events.slot_mut(index);
        let queue = &mut self.queues[usize::from(slot.priority)];
        let last = core::mem::replace(&mut queue.last, index);
        slot.previous = last;
        slot.next = NONE;
        if last == NONE {
            queue.first = index;
        } else {
            events.slot_mut(last).next = index;
        }
        self.len += 1;
    }

    /// Takes out the event that is first in its priority.
    #[inline]
    pub(crate) fn pop_first(&mut self, events: &mut EventTable, priority: u8, index: u32) {
        let queue = &mut self.queues[usize::from(priority)];
        let next = core::mem::replace(&mut events.slot_mut(index).next, NONE);
        queue.first = next;
        if next == NONE {
            queue.last = NONE;
            queue.passed_over = 0;
        } else {
            events.slot_mut(next).previous = NONE;
        }
        self.len -= 1;
    }

    /// Takes out an event that is queued.
    #[inline]
    pub(crate) fn unlink(&mut self, events: &mut EventTable, index: u32) {
        let slot = events.slot_mut(index);
        let (previous, next, priority) = (slot.previous, slot.next, slot.priority);
        (slot.previous, slot.next) = (NONE, NONE);
        let queue = &mut self.queues[usize::from(priority)];
        if previous == NONE {
            queue.first = next;
        } else {
            events.slot_mut(previous).next = next;
        }
        if next == NONE {
            queue.last = previous;
        } else {
            events.slot_mut(next).previous = previous;
        }
        self.len -= 1;
    }

    /// The event that was activated first in this priority.
    #[inline]
    pub(crate) fn first(&self, priority: u8) -> Option<u32> {
        let first = self.queues[usize::from(priority)].first;
        (first != NONE).then_some(first)
    }

    /// The priority to run now: the most urgent that has an active event; or, with a bound on
    /// starvation, the one that was passed over most often, if that was beyond the bound.
    pub(crate) fn choose(&mut self, starvation_limit: Option<u32>) -> Option<u8> {
        if self.len == 0 {
            return None;
        }
        if self.queues.len() == 1 {
            return Some(0);
        }
        let mut chosen = self.queues.iter().position(|queue| queue.first != NONE)?;
        if let Some(limit) = starvation_limit {
            // Whoever waited longest, so that the bound holds for each, the most urgent included.
            let mut longest = limit;
            for (at, queue) in self.queues.iter_mut().enumerate() {
                if queue.first == NONE {
                    queue.passed_over = 0;
                    continue;
                }
                queue.passed_over = queue.passed_over.saturating_add(1);
                if queue.passed_over > longest {
                    longest = queue.passed_over;
                    chosen = at;
                }
            }
            self.queues[chosen].passed_over = 0;
        }
        // At most 256 priorities exist.
        Some(chosen as u8)
    }
}
