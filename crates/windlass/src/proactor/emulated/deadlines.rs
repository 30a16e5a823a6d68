//! Points in time at which operations go on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::Task;

/// A heap, the next first. What was cancelled stays in it until it is at the top or the greater
/// part is of that kind.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Reverse<Entry>>,
    cancelled: usize,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    task: Task,
}

/// Fewer are not worth the work.
const STALE_MIN: usize = 64;

impl Deadlines {
    /// `task` goes on after `delay`; never, if the clock does not reach so far.
    pub(super) fn push(&mut self, delay: Duration, task: Task) {
        if let Some(at) = Instant::now().checked_add(delay) {
            self.heap.push(Reverse(Entry { at, task }));
        }
    }

    /// A task that has a place here is gone. `is_live` tells of the others whether they are not.
    pub(super) fn note_cancelled(&mut self, mut is_live: impl FnMut(Task) -> bool) {
        self.cancelled += 1;
        if self.cancelled >= STALE_MIN && self.cancelled * 2 > self.heap.len() {
            self.heap.retain(|Reverse(entry)| is_live(entry.task));
            self.cancelled = 0;
        }
    }

    /// How long until the next.
    pub(super) fn until_next(&self) -> Option<Duration> {
        let Reverse(next) = self.heap.peek()?;
        Some(next.at.saturating_duration_since(Instant::now()))
    }

    /// Calls `due` with each that has come.
    pub(super) fn expire(&mut self, mut due: impl FnMut(Task)) {
        if self.heap.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse(next)) = self.heap.peek() {
            if next.at > now {
                return;
            }
            if let Some(Reverse(entry)) = self.heap.pop() {
                due(entry.task);
            }
        }
        self.cancelled = 0;
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.cancelled = 0;
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    use windlass_sys::operation::OpId;

    use super::*;

    fn task(number: u64) -> Task {
        Task::Single(OpId::from_bits(number))
    }

    #[test]
    fn they_come_in_order_and_not_before_their_time() {
        let mut deadlines = Deadlines::default();
        deadlines.push(Duration::MAX, task(9));
        assert_eq!(deadlines.until_next(), None);
        deadlines.push(Duration::from_secs(1000), task(3));
        deadlines.push(Duration::from_millis(3), task(2));
        deadlines.push(Duration::ZERO, task(1));
        let mut found = Vec::new();
        while found.len() < 2 {
            deadlines.expire(|task| found.push(task));
        }
        assert_eq!(found, [task(1), task(2)]);
        assert!(deadlines.until_next() > Some(Duration::from_secs(900)));
    }

    #[test]
    fn what_is_cancelled_does_not_pile_up() {
        let mut deadlines = Deadlines::default();
        for number in 0..100_000 {
            deadlines.push(Duration::from_secs(1000), task(number));
            if number > 0 {
                deadlines.note_cancelled(|one| one == task(0));
            }
        }
        assert!(deadlines.heap.len() <= 2 * STALE_MIN + 1);
        assert!(deadlines.heap.iter().any(|entry| entry.0.task == task(0)));
    }
}
