//! The wheel: buckets of entries by the highest digit in which their tick differs from the horizon.

use super::Entry;

/// Bits of a nanosecond deadline below one tick: 2^14 ns, about 16 microseconds.
const TICK_BITS: u32 = 14;
/// Bits of one digit.
const DIGIT_BITS: u32 = 6;
const DIGITS: usize = 1 << DIGIT_BITS;
/// Enough digits for every 64-bit deadline: 14 + 9 * 6 = 68 bits.
pub(super) const LEVELS: usize = 9;
/// Emptied arrays that are kept for the next bucket in need, and how large each may be.
const SPARE_COUNT_MAX: usize = 256;
const SPARE_LEN_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Wheel {
    /// No entry has a tick at or before it.
    horizon: u64,
    /// Which buckets of a level hold anything.
    occupied: [u64; LEVELS],
    buckets: Vec<Bucket>,
    spares: Vec<Vec<Entry>>,
}

#[derive(Debug)]
struct Bucket {
    entries: Vec<Entry>,
    /// No entry is earlier. Exact while none was dropped.
    earliest: u64,
}

/// A bucket's place: `level * 64 + digit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Place {
    /// Whether its entries differ only within one tick.
    pub(super) fn is_finest(self) -> bool {
        self.0 < DIGITS
    }
}

impl Wheel {
    /// Queues `entry`; refuses one that is at or before the horizon's tick.
    #[inline]
    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        let tick = entry.deadline >> TICK_BITS;
        if tick <= self.horizon {
            return false;
        }
        let level = (63 - (tick ^ self.horizon).leading_zeros()) / DIGIT_BITS;
        let digit = (tick >> (level * DIGIT_BITS)) as usize % DIGITS;
        let level = level as usize;
        if self.buckets.is_empty() {
            self.buckets.resize_with(LEVELS * DIGITS, || Bucket {
                entries: Vec::new(),
                earliest: u64::MAX,
            });
        }
        let bucket = &mut self.buckets[level * DIGITS + digit];
        if bucket.entries.capacity() == 0
            && let Some(spare) = self.spares.pop()
        {
            bucket.entries = spare;
        }
        bucket.entries.push(entry);
        bucket.earliest = bucket.earliest.min(entry.deadline);
        self.occupied[level] |= 1 << digit;
        true
    }

    /// The bucket whose entries are earlier than all others', if any entry is queued.
    pub(super) fn first(&self) -> Option<Place> {
        let level = self.occupied.iter().position(|&digits| digits != 0)?;
        Some(Place(
            level * DIGITS + self.occupied[level].trailing_zeros() as usize,
        ))
    }

    pub(super) fn len_of(&self, place: Place) -> usize {
        self.buckets[place.0].entries.len()
    }

    /// No entry of the bucket is earlier than this.
    pub(super) fn lower_bound(&self, place: Place) -> u64 {
        self.buckets[place.0].earliest
    }

    /// Empties the bucket into `taken`, which must be empty; its memory goes to the bucket.
    pub(super) fn take(&mut self, place: Place, taken: &mut Vec<Entry>) {
        let bucket = &mut self.buckets[place.0];
        core::mem::swap(&mut bucket.entries, taken);
        bucket.earliest = u64::MAX;
        put_aside(&mut self.spares, bucket);
        self.occupied[place.0 / DIGITS] &= !(1 << (place.0 % DIGITS));
    }

    /// Moves the horizon to the first bucket that starts at or before `now` and takes its entries;
    /// without such a bucket, to `now`.
    pub(super) fn advance(&mut self, now: u64, taken: &mut Vec<Entry>) -> Option<Place> {
        let now_tick = now >> TICK_BITS;
        if let Some(place) = self.first() {
            let start = self.start_of(place);
            if start <= now_tick {
                self.horizon = start;
                self.take(place, taken);
                return Some(place);
            }
        }
        // All that is queued is later than this tick, and stays where it is: a digit of the
        // horizon above an entry's level can't have changed without passing the entry.
        self.horizon = self.horizon.max(now_tick);
        None
    }

    /// Whether the horizon is so far behind that it is worth moving: by all of the finest level.
    #[inline]
    pub(super) fn is_behind(&self, now: u64) -> bool {
        now >> TICK_BITS > self.horizon.saturating_add(DIGITS as u64)
    }

    /// The last nanosecond of the horizon's tick.
    pub(super) fn horizon_end(&self) -> u64 {
        self.horizon << TICK_BITS | ((1 << TICK_BITS) - 1)
    }

    /// The last nanosecond of the range of a bucket that [`advance`](Self::advance) just took.
    pub(super) fn end_of(&self, place: Place) -> u64 {
        let bits = (place.0 / DIGITS) as u32 * DIGIT_BITS + TICK_BITS;
        let low = 1_u64.checked_shl(bits).map_or(u64::MAX, |size| size - 1);
        self.horizon << TICK_BITS | low
    }

    /// Returns the memory of entries that were taken.
    pub(super) fn give_back(&mut self, taken: &mut Vec<Entry>) {
        taken.clear();
        if taken.capacity() > SPARE_LEN_MAX {
            *taken = self.spares.pop().unwrap_or_default();
        }
    }

    /// Drops the entries that `keep` refuses; answers how many are left.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) -> usize {
        let mut kept = 0;
        for (at, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.entries.retain(|&entry| keep(entry));
            kept += bucket.entries.len();
            bucket.earliest = bucket
                .entries
                .iter()
                .map(|entry| entry.deadline)
                .min()
                .unwrap_or(u64::MAX);
            if bucket.entries.is_empty() {
                self.occupied[at / DIGITS] &= !(1 << (at % DIGITS));
                put_aside(&mut self.spares, bucket);
            }
        }
        kept
    }

    /// Drops all entries, telling `drop_entry` of each.
    pub(super) fn clear(&mut self, mut drop_entry: impl FnMut(Entry)) {
        for level in 0..LEVELS {
            let mut digits = core::mem::take(&mut self.occupied[level]);
            while digits != 0 {
                let bucket = &mut self.buckets[level * DIGITS + digits.trailing_zeros() as usize];
                digits &= digits - 1;
                bucket.entries.drain(..).for_each(&mut drop_entry);
                bucket.earliest = u64::MAX;
                put_aside(&mut self.spares, bucket);
            }
        }
    }

    /// The first tick of the bucket's range.
    fn start_of(&self, place: Place) -> u64 {
        let shift = (place.0 / DIGITS) as u32 * DIGIT_BITS;
        let digit = (place.0 % DIGITS) as u64;
        // The digits above are the horizon's; the top level has none.
        let above = self.horizon.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        above | digit << shift
    }
}

/// Takes an empty bucket's memory: kept for another if it is modest and there is room.
fn put_aside(spares: &mut Vec<Vec<Entry>>, bucket: &mut Bucket) {
    let entries = core::mem::take(&mut bucket.entries);
    if (1..=SPARE_LEN_MAX).contains(&entries.capacity()) && spares.len() < SPARE_COUNT_MAX {
        spares.push(entries);
    }
}
