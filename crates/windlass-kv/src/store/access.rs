//! Access: the locks that one call of a session holds.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use super::{NEVER_MS, SHARDS_MAX, Shard, Store, Totals};

/// The use of the store during one call. Its locks end with it.
pub(crate) struct Access<'s> {
    store: &'s Store,
    guards: [Option<MutexGuard<'s, Shard>>; SHARDS_MAX],
    /// The bits of those that are there.
    held: u16,
    /// The earliest deadline that was set.
    earliest_ms: u64,
    /// Commands that were done, and are not counted yet.
    commands: u64,
}

const _: () = assert!(SHARDS_MAX <= u16::BITS as usize);

/// A key with its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) hash: u64,
}

impl<'s> Access<'s> {
    #[inline]
    pub(super) fn new(store: &'s Store) -> Self {
        Self {
            store,
            guards: [const { None }; SHARDS_MAX],
            held: 0,
            earliest_ms: NEVER_MS,
            commands: 0,
        }
    }

    /// The store itself, to count, or for its limits. Its locks may be held here.
    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    /// Locks the shard of `key`.
    #[inline]
    pub(crate) fn shard<'k>(&mut self, key: &'k [u8]) -> (&mut Shard, Hashed<'k>) {
        let hash = self.store.hash(key);
        let shard = self.shard_at(self.store.shard_of(hash));
        (shard, Hashed { key, hash })
    }

    /// Locks the shards of all `keys`, until the next command.
    pub(crate) fn lock_all_of<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let wanted = if self.store.shards.len() == 1 {
            1
        } else {
            keys.map(|key| self.store.shard_of(self.store.hash(key)))
                .fold(0, |wanted, index| wanted | 1 << index)
        };
        self.lock(wanted);
    }

    /// Locks all shards, and answers them in order.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Shard> {
        let count = self.store.shards.len();
        // 16 ones at most.
        self.lock(((1_u32 << count) - 1) as u16);
        self.guards.iter_mut().flatten().map(|guard| &mut **guard)
    }

    /// Locks shard `index`, if there are so many.
    pub(crate) fn nth(&mut self, index: usize) -> Option<&mut Shard> {
        (index < self.store.shards.len()).then(|| self.shard_at(index))
    }

    /// Notes that a key was given a deadline.
    pub(crate) fn note_deadline(&mut self, deadline_ms: u64) {
        self.earliest_ms = self.earliest_ms.min(deadline_ms);
    }

    /// Notes that a command was done.
    #[inline]
    pub(crate) fn note_command(&mut self) {
        self.commands += 1;
    }

    /// What the shards count. Gives the locks back first.
    pub(crate) fn totals(&mut self) -> Totals {
        self.release();
        self.store.totals()
    }

    /// How many commands were done in all, but for those that others have not counted yet.
    pub(crate) fn command_count(&mut self) -> u64 {
        self.count_commands();
        self.store.counters.commands.load(Ordering::Relaxed)
    }

    fn count_commands(&mut self) {
        let commands = std::mem::take(&mut self.commands);
        let counter = &self.store.counters.commands;
        counter.fetch_add(commands, Ordering::Relaxed);
    }

    /// Gives all locks back.
    pub(crate) fn release(&mut self) {
        if self.held != 0 {
            self.guards = [const { None }; SHARDS_MAX];
            self.held = 0;
        }
    }

    #[inline]
    fn shard_at(&mut self, index: usize) -> &mut Shard {
        if self.held & 1 << index == 0 {
            self.lock(1 << index);
        }
        self.guards[index].as_mut().expect("its lock was taken")
    }

    /// Holds at least the locks of the `wanted` bits; those that were held for less are given back
    /// first, as locks are taken in ascending order only.
    fn lock(&mut self, wanted: u16) {
        if self.held & wanted == wanted {
            return;
        }
        self.release();
        let mut left = wanted;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            self.guards[index] = Some(self.store.lock(index));
            left &= left - 1;
        }
        self.held = wanted;
    }
}

impl Drop for Access<'_> {
    #[inline]
    fn drop(&mut self) {
        self.release();
        self.count_commands();
        if self.earliest_ms != NEVER_MS {
            self.store.note_deadline(self.earliest_ms);
        }
    }
}
