//! Shard: a map of keys with their deadlines in order.
//!
//! Entries lie in one array, in which a removed one is replaced by the last; a table of hashes says
//! where. So a walk from the end to the start meets every entry that is there all the time, whatever
//! is inserted or removed between its steps: entries move towards the start only, never past the
//! walk.
//!
//! A key's deadline is the last millisecond of its life.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1;
use indexmap::map::raw_entry_v1::RawEntryMut;

use super::Totals;
use super::access::Hashed;
use crate::text::Text;

/// Memory is given back below one entry in so many, if it is worth it.
const SHRINK_RATIO: usize = 8;
const SHRINK_MIN: usize = 1024;

/// One part of the store. What is behind its deadline is never found.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// The hashes are the store's.
    map: IndexMap<Text, Entry, ()>,
    /// Of each entry that has one: its deadline, and its place in the map.
    deadlines: BTreeSet<(u64, usize)>,
    expired: u64,
    hits: u64,
    misses: u64,
}

#[derive(Debug)]
struct Entry {
    value: Text,
    deadline_ms: Option<u64>,
}

/// An entry's place, as long as none is inserted or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// What [`Shard::set`] does to an entry's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetDeadline {
    At(u64),
    Keep,
    Never,
}

/// Keys and values that were taken out.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// Dropped with it.
    _map: IndexMap<Text, Entry, ()>,
    _deadlines: BTreeSet<(u64, usize)>,
}

impl Shard {
    /// Finds a key.
    #[inline]
    pub(crate) fn find(&mut self, hashed: Hashed<'_>, now_ms: u64) -> Option<Place> {
        let Hashed { key, hash } = hashed;
        let found = self
            .map
            .raw_entry_v1()
            .index_from_hash(hash, |other| **other == *key);
        let place = Place(found?);
        if self.deadline_ms(place).is_some_and(|end| end < now_ms) {
            self.remove(place);
            self.expired += 1;
            return None;
        }
        Some(place)
    }

    /// Finds a key's value, and counts whether it was there.
    #[inline]
    pub(crate) fn get(&mut self, hashed: Hashed<'_>, now_ms: u64) -> Option<&Text> {
        let place = self.find(hashed, now_ms);
        if place.is_some() {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        place.map(|place| self.value(place))
    }

    /// Gives a key a value.
    #[inline]
    pub(crate) fn set(&mut self, hashed: Hashed<'_>, value: &[u8], deadline: SetDeadline) {
        let Hashed { key, hash } = hashed;
        let entry = self
            .map
            .raw_entry_mut_v1()
            .from_hash(hash, |other| **other == *key);
        let index = entry.index();
        match entry {
            RawEntryMut::Occupied(mut entry) => entry.get_mut().value.assign(value),
            RawEntryMut::Vacant(entry) => {
                let value = Text::new(value);
                let deadline_ms = None;
                entry.insert_hashed_nocheck(hash, Text::new(key), Entry { value, deadline_ms });
            }
        }
        match deadline {
            SetDeadline::At(deadline_ms) => self.set_deadline(Place(index), Some(deadline_ms)),
            SetDeadline::Keep => {}
            SetDeadline::Never => self.set_deadline(Place(index), None),
        }
    }

    /// Removes an entry; another one may take its place.
    pub(crate) fn remove(&mut self, place: Place) -> Text {
        self.set_deadline(place, None);
        let Place(index) = place;
        let last = self.map.len() - 1;
        if let Some(deadline_ms) = self.deadline_ms(Place(last)) {
            // It moves; if it is the same one it has none any more.
            self.deadlines.remove(&(deadline_ms, last));
            self.deadlines.insert((deadline_ms, index));
        }
        let (_, entry) = self.map.swap_remove_index(index).expect("a place exists");
        self.shrink();
        entry.value
    }

    #[inline]
    pub(crate) fn value(&self, place: Place) -> &Text {
        &self.entry(place).value
    }

    pub(crate) fn value_mut(&mut self, place: Place) -> &mut Text {
        &mut self.entry_mut(place).value
    }

    #[inline]
    pub(crate) fn deadline_ms(&self, place: Place) -> Option<u64> {
        self.entry(place).deadline_ms
    }

    #[inline]
    pub(crate) fn set_deadline(&mut self, place: Place, deadline_ms: Option<u64>) {
        let entry = self.entry_mut(place);
        let before = std::mem::replace(&mut entry.deadline_ms, deadline_ms);
        if before == deadline_ms {
            return;
        }
        let Place(index) = place;
        if let Some(before) = before {
            self.deadlines.remove(&(before, index));
        }
        if let Some(deadline_ms) = deadline_ms {
            self.deadlines.insert((deadline_ms, index));
        }
    }

    /// Walks over at most `count` entries below `end`, towards the start, and calls `visit` with the
    /// keys of those that are not expired; answers where to go on, 0 when all were met.
    pub(crate) fn walk(
        &self,
        end: usize,
        count: usize,
        now_ms: u64,
        mut visit: impl FnMut(&Text),
    ) -> usize {
        let end = end.min(self.map.len());
        let start = end.saturating_sub(count);
        for index in (start..end).rev() {
            if let Some((key, entry)) = self.map.get_index(index)
                && entry.deadline_ms.is_none_or(|end| end >= now_ms)
            {
                visit(key);
            }
        }
        start
    }

    /// Removes at most `count_max` entries whose deadline is before `now_ms`; answers how many.
    pub(crate) fn expire(&mut self, now_ms: u64, count_max: usize) -> usize {
        for count in 0..count_max {
            match self.deadlines.first() {
                Some(&(deadline_ms, index)) if deadline_ms < now_ms => self.remove(Place(index)),
                _ => return count,
            };
            self.expired += 1;
        }
        count_max
    }

    /// The earliest deadline of all.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline_ms, _)| deadline_ms)
    }

    /// Takes everything out, to be dropped when the lock was given back.
    pub(crate) fn take_all(&mut self) -> Removed {
        Removed {
            _map: std::mem::take(&mut self.map),
            _deadlines: std::mem::take(&mut self.deadlines),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn add_to(&self, totals: &mut Totals) {
        totals.keys += self.map.len();
        totals.keys_with_deadline += self.deadlines.len();
        totals.expired += self.expired;
        totals.hits += self.hits;
        totals.misses += self.misses;
    }

    #[inline]
    fn entry(&self, place: Place) -> &Entry {
        &self.map[place.0]
    }

    #[inline]
    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        &mut self.map[place.0]
    }

    /// Gives memory back when most entries are gone. What it costs was saved by as many removals.
    fn shrink(&mut self) {
        let (len, capacity) = (self.map.len(), self.map.capacity());
        if capacity > SHRINK_MIN && len < capacity / SHRINK_RATIO {
            self.map.shrink_to(len * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(number: &[u8; 8]) -> Hashed<'_> {
        let hash = u64::from_le_bytes(*number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Hashed { key: number, hash }
    }

    #[test]
    fn memory_is_given_back_when_most_keys_are_gone() {
        let mut shard = Shard::default();
        for number in 0..100_000_u64 {
            let deadline = SetDeadline::At(number);
            shard.set(hashed(&number.to_le_bytes()), b"v", deadline);
        }
        let full = shard.map.capacity();
        assert_eq!(shard.expire(99_000, usize::MAX), 99_000);
        assert!(shard.map.capacity() < full / 10);
        for number in 99_000..100_000_u64 {
            assert!(shard.find(hashed(&number.to_le_bytes()), 0).is_some());
        }
    }

    #[test]
    fn a_shard_is_the_same_after_everything_was_taken_out() {
        let mut shard = Shard::default();
        let key = 7_u64.to_le_bytes();
        shard.set(hashed(&key), b"v", SetDeadline::At(1));
        drop(shard.take_all());
        assert_eq!((shard.len(), shard.next_deadline_ms()), (0, None));
        assert_eq!(shard.find(hashed(&key), 0), None);
        shard.set(hashed(&key), b"w", SetDeadline::Never);
        assert_eq!(shard.expire(2, 1), 0);
        assert_eq!(shard.len(), 1);
    }
}
