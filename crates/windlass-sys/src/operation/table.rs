//! The table of operations in flight: a place and a generation for each.

use crate::operation::OpId;

/// So many generations before one comes again in a place: the id's highest bit stays zero.
const GENERATIONS: u32 = 1 << 31;

/// Things by [`OpId`]. An id names nothing from the removal on, also when its place is used again.
///
/// All calls take constant time, but that the table grows.
#[derive(Debug)]
pub struct OpTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

impl<T> OpTable<T> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts `entry` in.
    ///
    /// # Panics
    ///
    /// If there are 2^32 - 1 already.
    #[inline]
    pub fn insert(&mut self, entry: T) -> OpId {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.slots[slot as usize];
            place.entry = Some(entry);
            return OpId::new(slot, place.generation);
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 operations in flight");
        self.slots.push(Slot {
            generation: 0,
            entry: Some(entry),
        });
        OpId::new(slot, 0)
    }

    /// What `id` names, if it is still there.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation == id.generation() {
            slot.entry.as_mut()
        } else {
            None
        }
    }

    /// Whether `id` names something.
    #[must_use]
    pub fn contains(&self, id: OpId) -> bool {
        let slot = self.slots.get(id.slot());
        slot.is_some_and(|slot| slot.generation == id.generation() && slot.entry.is_some())
    }

    /// Takes out what `id` names.
    #[inline]
    pub fn remove(&mut self, id: OpId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation != id.generation() {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        // The place fits into 32 bits, as it was given out by `insert`.
        self.free.push(id.slot() as u32);
        Some(entry)
    }

    /// Takes out what `id` names, and keeps its place until [`release`](Self::release): for an
    /// operation that has ended and whose last completion is not handed out yet. Others keep
    /// records in the same place until then.
    pub fn take(&mut self, id: OpId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation != id.generation() {
            return None;
        }
        slot.entry.take()
    }

    /// Frees the place of what was [taken](Self::take).
    pub fn release(&mut self, id: OpId) {
        if let Some(slot) = self.slots.get_mut(id.slot())
            && slot.generation == id.generation()
            && slot.entry.is_none()
        {
            slot.generation = (slot.generation + 1) % GENERATIONS;
            // The place fits into 32 bits, as it was given out by `insert`.
            self.free.push(id.slot() as u32);
        }
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> Vec<(OpId, T)> {
        let ids: Vec<OpId> = self.ids().collect();
        ids.into_iter()
            .filter_map(|id| Some((id, self.remove(id)?)))
            .collect()
    }

    /// All ids, in no particular order.
    pub fn ids(&self) -> impl Iterator<Item = OpId> + '_ {
        (0_u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.entry.is_some())
            .map(|(index, slot)| OpId::new(index, slot.generation))
    }

    /// How many there are, with those whose places are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for OpTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_id_names_nothing_after_its_removal() {
        let mut table = OpTable::new();
        let first = table.insert("a");
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b");
        assert_eq!(second.slot(), first.slot());
        assert_ne!(second, first);
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get_mut(second), Some(&mut "b"));
        assert!(!table.contains(OpId::from_bits(u64::MAX >> 1)));
    }

    #[test]
    fn a_place_is_kept_until_it_is_released() {
        let mut table = OpTable::new();
        let first = table.insert("a");
        assert_eq!(table.take(first), Some("a"));
        assert!(!table.contains(first) && table.take(first).is_none());
        let second = table.insert("b");
        assert_ne!(second.slot(), first.slot());
        table.release(first);
        table.release(first);
        table.release(second);
        assert_eq!((table.len(), table.get_mut(second)), (1, Some(&mut "b")));
        assert_eq!(table.insert("c").slot(), first.slot());
        assert_ne!(table.insert("d").slot(), first.slot());
    }

    #[test]
    fn generations_come_round_within_their_bits() {
        let mut table = OpTable::new();
        let id = table.insert(());
        table.slots[0].generation = GENERATIONS - 1;
        let last = OpId::new(0, GENERATIONS - 1);
        assert_eq!(last.to_bits() >> 63, 0);
        assert_eq!(table.remove(last), Some(()));
        assert_eq!(table.insert(()), id);
    }

    #[test]
    fn it_does_what_a_map_does() {
        let mut table = OpTable::new();
        let mut model = BTreeMap::new();
        let mut seed = 7_u64;
        for step in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 62 < 2 || model.is_empty() {
                assert!(model.insert(table.insert(step), step).is_none());
            } else {
                let at = (seed >> 33) as usize % model.len();
                let id = *model.keys().nth(at).expect("in range");
                assert_eq!(table.remove(id), model.remove(&id));
            }
            assert_eq!(table.len(), model.len());
        }
        let left: BTreeMap<OpId, i32> = table.drain().into_iter().collect();
        assert_eq!(left, model);
        assert!(table.is_empty());
    }
}
