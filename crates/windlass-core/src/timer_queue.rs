//! Timer queue: deadlines of events in O(1), expired in exact order.
//!
//! A hierarchical wheel whose buckets are unsorted arrays, in front of a small heap for what is
//! due within the current tick. Exactness does not depend on the tick: whatever expires is sorted
//! by deadline, then by order of arming.
//!
//! # How it works
//!
//! - The wheel has [`LEVELS`] levels of 64 buckets. A deadline goes to the level of the highest
//!   digit (base 64) in which its tick differs from the horizon's, so any 64-bit deadline fits and
//!   nothing ever wraps. The horizon moves only as far as the time handed in.
//! - An entry is 16 bytes, appended to its bucket: no pointer is followed. Disarming only marks the
//!   timer: its entry is dropped when met, or revived if the timer is armed again no earlier than
//!   it. Arming later than the entry says only writes the new deadline; the entry moves when met.
//! - Entries never exceed [`ENTRIES_PER_TIMER_MAX`] for each armed timer by more than
//!   [`DEAD_SLACK`]: then the dead ones are swept.
//! - Timers of equal length may go to a common queue, a FIFO of its own.
//!
//! # Cost
//!
//! Arm, re-arm, disarm: O(1), amortised over sweeps. Expire: O(log b) each in the size b of the
//! last bucket, plus at most one move per level. Next deadline: exact while the first bucket is
//! small ([`EXACT_LEN_MAX`]), else possibly too early by timers disarmed since.

mod common;
mod wheel;

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

pub use self::common::{CommonTimeout, CommonTimeoutError};

use self::common::CommonQueues;
use self::wheel::Wheel;
use crate::time::Instant;

/// Deadlines by timer index, and what is due.
///
/// Timers are named by small integers that the caller hands out (the engine's event slots); a
/// timer that was never armed costs nothing.
#[derive(Debug, Default)]
pub struct TimerQueue {
    slots: Vec<Slot>,
    /// State and tag of each timer, apart from its slot: all that a sweep and a disarm touch.
    marks: Vec<Mark>,
    wheel: Wheel,
    near: BinaryHeap<Reverse<Entry>>,
    common: CommonQueues,
    /// Orders armings: ties of equal deadlines run in this order.
    sequence: u64,
    armed_count: usize,
    /// Entries in wheel and near heap, dead ones included.
    entry_count: usize,
    /// The next deadline and whose it is, if known.
    next: Option<Next>,
    /// Scratch of `expire`.
    taken: Vec<Entry>,
}

/// A timer that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The deadline that was reached, in nanoseconds.
    pub deadline_ns: u64,
    sequence: u64,
    /// Which timer.
    pub index: u32,
}

impl Due {
    fn order(&self, other: &Self) -> Ordering {
        (self.deadline_ns, self.sequence).cmp(&(other.deadline_ns, other.sequence))
    }
}

/// Until when one timer runs.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// When it is due, if it is armed.
    deadline: u64,
    /// The deadline of its live entry, if it is queued; never later than `deadline` while armed.
    entry_deadline: u64,
    sequence: u64,
}

/// State and tag of one timer, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark(u32);

impl Mark {
    const ARMED: u32 = 1 << 31;
    /// An entry with this tag is in the wheel, the near heap or a common queue.
    const QUEUED: u32 = 1 << 30;
    /// That entry is in a common queue.
    const COMMON: u32 = 1 << 29;
    const TAG: u32 = Self::COMMON - 1;

    #[inline]
    fn is_armed(self) -> bool {
        self.0 & Self::ARMED != 0
    }

    /// Whether an entry is there that can be kept when its timer is armed again.
    #[inline]
    fn is_revivable(self) -> bool {
        self.0 & (Self::QUEUED | Self::COMMON) == Self::QUEUED
    }

    /// The tag of its live entry; every other entry of this timer is dead.
    #[inline]
    fn tag(self) -> u32 {
        self.0 & Self::TAG
    }

    /// Armed, with a fresh entry; the one before is dead.
    #[inline]
    fn with_entry(self, common: u32) -> Self {
        Self(self.0.wrapping_add(1) & Self::TAG | Self::ARMED | Self::QUEUED | common)
    }
}

/// The next deadline.
#[derive(Clone, Copy, Debug)]
struct Next {
    deadline: u64,
    /// Whose it is; `u32::MAX` if that is not known.
    index: u32,
}

/// A deadline of a timer as queued: still to be checked against the timer's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: u64,
    index: u32,
    tag: u32,
}

/// Buckets up to this length are scanned for their exact first deadline.
const EXACT_LEN_MAX: usize = 64;
/// Entries, dead ones included, for each armed timer that are put up with, and so many more.
const ENTRIES_PER_TIMER_MAX: usize = 3;
const DEAD_SLACK: usize = 1024;
/// Due timers in one bucket beyond which the bucket is split by level before it is sorted.
const SORT_LEN_MAX: usize = 512;

impl TimerQueue {
    /// An empty queue. Its clock starts at [`Instant::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many timers are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.armed_count
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.armed_count == 0
    }

    /// When `index` is due, if it is armed.
    #[must_use]
    pub fn deadline(&self, index: u32) -> Option<Instant> {
        let armed = self.marks.get(index as usize)?.is_armed();
        armed.then(|| Instant::from_nanos(self.slots[index as usize].deadline))
    }

    /// Makes room for `index`, so that arming it allocates nothing for it.
    pub fn reserve(&mut self, index: u32) {
        let len = index as usize + 1;
        if len > self.slots.len() {
            self.slots.resize(len, Slot::default());
            self.marks.resize(len, Mark::default());
        }
    }

    /// Arms `index` for `deadline`, in place of what it was armed for.
    ///
    /// A deadline in the past is due at the next [`expire`](Self::expire).
    #[inline]
    pub fn arm(&mut self, index: u32, deadline: Instant) {
        let deadline = deadline.as_nanos();
        self.reserve(index);
        self.sequence += 1;
        let slot = &mut self.slots[index as usize];
        let mark = &mut self.marks[index as usize];
        let was = *mark;
        slot.deadline = deadline;
        slot.sequence = self.sequence;
        if was.is_revivable() && slot.entry_deadline <= deadline {
            // The entry is met first and moves then.
            mark.0 |= Mark::ARMED;
        } else {
            *mark = was.with_entry(0);
            let tag = mark.tag();
            slot.entry_deadline = deadline;
            self.insert(Entry {
                deadline,
                index,
                tag,
            });
        }
        self.armed_count += usize::from(!was.is_armed());
        self.note_armed(index, deadline);
        self.sweep_if_worth_it();
    }

    /// Arms `index` for a common timeout: `timeout`'s length after `now`, in O(1) with no sorting.
    ///
    /// `now` must not go back between two calls for the same timeout; a smaller one counts as the
    /// last.
    ///
    /// # Panics
    ///
    /// If `timeout` is another queue's and this has none of that number.
    pub fn arm_common(&mut self, index: u32, timeout: CommonTimeout, now: Instant) -> Instant {
        self.disarm(index);
        self.reserve(index);
        self.sequence += 1;
        let deadline = self.common.deadline(timeout, now);
        self.slots[index as usize] = Slot {
            deadline,
            entry_deadline: deadline,
            sequence: self.sequence,
        };
        let mark = self.marks[index as usize].with_entry(Mark::COMMON);
        self.marks[index as usize] = mark;
        self.armed_count += 1;
        let marks = &self.marks;
        let entry = Entry {
            deadline,
            index,
            tag: mark.tag(),
        };
        self.common
            .push(timeout, entry, |entry| is_live(marks, entry));
        self.note_armed(index, deadline);
        Instant::from_nanos(deadline)
    }

    /// Makes a common timeout of this length; equal lengths give the same one.
    ///
    /// # Errors
    ///
    /// If [`CommonTimeout::COUNT_MAX`] different lengths were made already.
    pub fn common_timeout(
        &mut self,
        length: core::time::Duration,
    ) -> Result<CommonTimeout, CommonTimeoutError> {
        self.common.timeout(length)
    }

    /// Disarms `index`; answers whether it was armed.
    #[inline]
    pub fn disarm(&mut self, index: u32) -> bool {
        let Some(mark) = self.marks.get_mut(index as usize) else {
            return false;
        };
        if !mark.is_armed() {
            return false;
        }
        if mark.0 & Mark::COMMON == 0 {
            mark.0 &= !Mark::ARMED;
        } else {
            // A common queue drops its dead entries by the tag; nothing there is revived.
            *mark = Mark(mark.0.wrapping_add(1) & Mark::TAG);
        }
        self.armed_count -= 1;
        if self.next.is_some_and(|next| next.index == index) {
            self.next = None;
        }
        if self.armed_count == 0 {
            self.forget_entries();
        } else {
            self.sweep_if_worth_it();
        }
        true
    }

    /// The earliest deadline, or nothing if no timer is armed.
    ///
    /// Exact while few timers share its bucket; else never late, but possibly early by a timer
    /// that was disarmed or moved since (then an [`expire`](Self::expire) at that time corrects it).
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if self.armed_count == 0 {
            return None;
        }
        if self.next.is_none() {
            self.next = self.find_next();
        }
        self.next.map(|next| Instant::from_nanos(next.deadline))
    }

    /// Disarms all that is due at `now` and appends it to `due`, by deadline, ties in the order of
    /// arming. `now` going back is treated as no time having passed.
    pub fn expire(&mut self, now: Instant, due: &mut Vec<Due>) {
        self.expire_some(now, usize::MAX, due);
    }

    /// Whether [`expire`](Self::expire) has anything to do at `now`: a timer may be due, or the wheel
    /// wants to be moved.
    #[inline]
    #[must_use]
    pub fn may_expire(&self, now: Instant) -> bool {
        let now = now.as_nanos();
        self.armed_count > 0
            && (self.next.is_none_or(|next| next.deadline <= now) || self.wheel.is_behind(now))
    }

    /// As [`expire`](Self::expire), but stops at about `max`: the earliest of what is due, and all
    /// that shares a bucket with the last of them. The rest stays due.
    pub fn expire_some(&mut self, now: Instant, max: usize, due: &mut Vec<Due>) {
        if !self.may_expire(now) {
            return;
        }
        let now = now.as_nanos();
        let none_due = self.next.is_some_and(|next| next.deadline > now);
        let start = due.len();
        self.expire_near(now, due);
        let reached = self.expire_wheel(now, start.saturating_add(max), due);
        if none_due {
            // Only the horizon moved; the next deadline is still the next.
            return;
        }
        let (slots, marks) = (&self.slots, &mut self.marks);
        let from_common = self.common.expire(reached, |entry| {
            if let Some(slot) = take_if_due(slots, marks, entry, reached) {
                due.push(Due {
                    sequence: slot.sequence,
                    deadline_ns: slot.deadline,
                    index: entry.index,
                });
            }
        });
        if from_common {
            // Runs that are sorted already: the stable sort merges them.
            due[start..].sort_by(Due::order);
        }
        self.armed_count -= due.len() - start;
        self.next = None;
        if self.armed_count == 0 {
            self.forget_entries();
        }
    }

    /// Notes that `index` was armed: what is known of the next deadline may change.
    #[inline]
    fn note_armed(&mut self, index: u32, deadline: u64) {
        let fresh = Next { deadline, index };
        if self.armed_count == 1 {
            self.next = Some(fresh);
        } else if let Some(next) = self.next {
            if deadline <= next.deadline {
                self.next = Some(fresh);
            } else if next.index == index || next.index == u32::MAX {
                // It was the next, or may have been.
                self.next = None;
            }
        }
    }

    #[inline]
    fn insert(&mut self, entry: Entry) {
        self.entry_count += 1;
        if !self.wheel.insert(entry) {
            self.near.push(Reverse(entry));
        }
    }

    /// What of the near heap is due. All of it is earlier than all of the wheel.
    fn expire_near(&mut self, now: u64, due: &mut Vec<Due>) {
        let start = due.len();
        self.meet_near(now, due);
        sort_due(&mut due[start..]);
    }

    fn meet_near(&mut self, now: u64, due: &mut Vec<Due>) {
        let limit = now.min(self.wheel.horizon_end());
        while let Some(&Reverse(entry)) = self.near.peek() {
            if entry.deadline > now {
                break;
            }
            self.near.pop();
            self.meet(entry, limit, due);
        }
    }

    /// Moves the wheel's horizon up to `now`, bucket by bucket in the order of time, until `due` has
    /// `len_max` entries. Answers up to when all that is due was found.
    fn expire_wheel(&mut self, now: u64, len_max: usize, due: &mut Vec<Due>) -> u64 {
        let mut taken = core::mem::take(&mut self.taken);
        let mut reached = now.min(self.wheel.horizon_end());
        loop {
            if due.len() >= len_max {
                break;
            }
            let Some(place) = self.wheel.advance(now, &mut taken) else {
                reached = now;
                break;
            };
            let start = due.len();
            // Far more at once than a sort likes is split by level first.
            let split = taken.len() > SORT_LEN_MAX && !place.is_finest();
            // A timer that was moved on is due here only if no later bucket comes before it.
            let limit = if split {
                0
            } else {
                now.min(self.wheel.end_of(place))
            };
            reached = limit.max(now.min(self.wheel.horizon_end()));
            for &entry in &taken {
                self.meet(entry, limit, due);
            }
            self.meet_near(now, due);
            sort_due(&mut due[start..]);
            self.wheel.give_back(&mut taken);
        }
        self.taken = taken;
        reached
    }

    /// Handles an entry that left its queue: due by `limit`, moved on, or dead.
    #[inline]
    fn meet(&mut self, entry: Entry, limit: u64, due: &mut Vec<Due>) {
        self.entry_count -= 1;
        if let Some(slot) = take_if_due(&self.slots, &mut self.marks, entry, limit) {
            let (sequence, deadline_ns) = (slot.sequence, slot.deadline);
            due.push(Due {
                deadline_ns,
                sequence,
                index: entry.index,
            });
        } else if let Some(entry) = refresh(&mut self.slots, &mut self.marks, entry) {
            self.insert(entry);
        }
    }

    fn find_next(&mut self) -> Option<Next> {
        let near = self.next_near();
        let wheel = self.next_in_wheel();
        let marks = &self.marks;
        let common = self.common.next(|entry| is_live(marks, entry));
        let common = common.map(|entry| Next {
            deadline: entry.deadline,
            index: entry.index,
        });
        [near, wheel, common]
            .into_iter()
            .flatten()
            .min_by_key(|next| next.deadline)
    }

    /// The near heap's first live deadline; dead and moved entries at its top are handled.
    fn next_near(&mut self) -> Option<Next> {
        while let Some(&Reverse(entry)) = self.near.peek() {
            let (index, deadline) = (entry.index, entry.deadline);
            let armed = self.marks[index as usize].is_armed();
            if is_live(&self.marks, entry)
                && armed
                && self.slots[index as usize].deadline == deadline
            {
                return Some(Next { deadline, index });
            }
            self.near.pop();
            self.entry_count -= 1;
            if let Some(entry) = refresh(&mut self.slots, &mut self.marks, entry) {
                self.insert(entry);
            }
        }
        None
    }

    /// The wheel's first deadline: exact for a small first bucket, else a lower bound, of nobody
    /// in particular.
    fn next_in_wheel(&mut self) -> Option<Next> {
        loop {
            let place = self.wheel.first()?;
            if self.wheel.len_of(place) > EXACT_LEN_MAX {
                let deadline = self.wheel.lower_bound(place);
                return Some(Next {
                    deadline,
                    index: u32::MAX,
                });
            }
            let mut taken = core::mem::take(&mut self.taken);
            self.wheel.take(place, &mut taken);
            self.entry_count -= taken.len();
            let mut first: Option<Next> = None;
            for &entry in &taken {
                if let Some(entry) = refresh(&mut self.slots, &mut self.marks, entry) {
                    let (deadline, index) = (entry.deadline, entry.index);
                    if first.is_none_or(|first| deadline < first.deadline) {
                        first = Some(Next { deadline, index });
                    }
                    self.insert(entry);
                }
            }
            self.wheel.give_back(&mut taken);
            self.taken = taken;
            // If what stayed here is the first, nothing elsewhere is earlier; if all moved on or
            // was dead, look again.
            if self.wheel.len_of(place) > 0 {
                return first;
            }
        }
    }

    #[inline]
    fn sweep_if_worth_it(&mut self) {
        if self.entry_count > ENTRIES_PER_TIMER_MAX * self.armed_count + DEAD_SLACK {
            self.sweep();
        }
    }

    /// Drops all dead entries. Each was paid for by the call that made it dead.
    #[cold]
    fn sweep(&mut self) {
        let marks = &mut self.marks;
        let mut kept = self.wheel.retain(|entry| keep(marks, entry));
        self.near.retain(|&Reverse(entry)| keep(marks, entry));
        kept += self.near.len();
        self.entry_count = kept;
    }

    /// Nothing is armed: every entry is dead.
    #[cold]
    fn forget_entries(&mut self) {
        self.next = None;
        if self.entry_count > 0 {
            let marks = &mut self.marks;
            self.wheel.clear(|entry| {
                keep(marks, entry);
            });
            for Reverse(entry) in self.near.drain() {
                keep(marks, entry);
            }
            self.entry_count = 0;
        }
        self.common.clear();
    }
}

/// Whether `entry` is the one that its timer knows of.
fn is_live(marks: &[Mark], entry: Entry) -> bool {
    let mark = marks[entry.index as usize];
    mark.0 & Mark::QUEUED != 0 && mark.tag() == entry.tag
}

/// Disarms the timer of a live entry that is due; its entry is used up.
#[inline]
fn take_if_due(slots: &[Slot], marks: &mut [Mark], entry: Entry, limit: u64) -> Option<Slot> {
    let mark = &mut marks[entry.index as usize];
    if mark.tag() != entry.tag || !mark.is_armed() {
        return None;
    }
    let slot = slots[entry.index as usize];
    if slot.deadline > limit {
        return None;
    }
    *mark = Mark(mark.tag());
    Some(slot)
}

/// The entry as it should be queued now: with the timer's present deadline, or not at all.
fn refresh(slots: &mut [Slot], marks: &mut [Mark], entry: Entry) -> Option<Entry> {
    if !keep(marks, entry) {
        return None;
    }
    let slot = &mut slots[entry.index as usize];
    slot.entry_deadline = slot.deadline;
    Some(Entry {
        deadline: slot.deadline,
        ..entry
    })
}

/// Whether the entry is that of an armed timer; a disarmed one is told that its entry is gone.
#[inline]
fn keep(marks: &mut [Mark], entry: Entry) -> bool {
    let mark = &mut marks[entry.index as usize];
    if mark.tag() != entry.tag {
        return false;
    }
    if !mark.is_armed() {
        *mark = Mark(mark.tag());
        return false;
    }
    true
}

/// Sorts what one bucket gave.
fn sort_due(due: &mut [Due]) {
    if due.len() > 1 {
        due.sort_unstable_by(Due::order);
    }
}

#[cfg(test)]
mod tests;
