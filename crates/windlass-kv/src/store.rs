//! Store: one map from keys to values for all threads, divided into shards with a lock each.
//!
//! # Threads
//!
//! Sessions reach the store through an [`Access`], for as long as one call lasts. It keeps the locks
//! of the shards that the last command touched, so that the commands of one read of the socket cost
//! one lock together if there is one shard. A command on several keys locks all of their shards
//! first, in ascending order, and so is atomic.
//!
//! # Expiry
//!
//! Each shard has its deadlines in order. [`Store::next_deadline_ms`] is never later than the first
//! of all; whoever sets an earlier one [wakes](Store::on_earlier_deadline) the loop that keeps the
//! timer. A key that is past its deadline is also removed by whoever looks for it.

mod access;
mod shard;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use self::access::Access;
pub(crate) use self::shard::{SetDeadline, Shard};
use crate::config::Config;

/// As many locks as one command may need, held in an array.
pub(crate) const SHARDS_MAX: usize = 16;

/// No key has a deadline.
const NEVER_MS: u64 = u64::MAX;

/// Keys that one shard expires before its lock is given to others.
const EXPIRED_AT_ONCE_MAX: usize = 1024;

/// The keys and values of a server, and its counters. Shared by all of its threads.
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    /// Keyed at random, so that nobody can choose keys that collide.
    hasher: RandomState,
    config: Config,
    next_deadline_ms: AtomicU64,
    on_earlier_deadline: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(crate) counters: Counters,
}

/// What all threads count together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// When the first client came, in milliseconds since 1970.
    pub(crate) started_ms: AtomicU64,
    pub(crate) clients: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) commands: AtomicU64,
}

impl Counters {
    pub(crate) fn note_start(&self, now_ms: u64) {
        if self.started_ms.load(Ordering::Relaxed) == 0 {
            self.started_ms.store(now_ms, Ordering::Relaxed);
        }
    }
}

/// What the shards count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) keys: usize,
    pub(crate) keys_with_deadline: usize,
    pub(crate) expired: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let count = config.shards.clamp(1, SHARDS_MAX).next_power_of_two();
        Self {
            shards: (0..count).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            config,
            next_deadline_ms: AtomicU64::new(NEVER_MS),
            on_earlier_deadline: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Its limits.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many keys there are. Locks one shard after the other.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.totals().keys
    }

    /// When the first key expires, in milliseconds since 1970, if any does; may be too early.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let next = self.next_deadline_ms.load(Ordering::Acquire);
        (next != NEVER_MS).then_some(next)
    }

    /// Has `wake` called, from any thread, when a key was given an earlier deadline than
    /// [`next_deadline_ms`](Self::next_deadline_ms) was. Answers whether it is the first: one is
    /// enough.
    pub fn on_earlier_deadline(&self, wake: impl Fn() + Send + Sync + 'static) -> bool {
        self.on_earlier_deadline.set(Box::new(wake)).is_ok()
    }

    /// Removes keys whose deadline is before `now_ms`, at most 1,024 per shard; answers how many.
    /// If there are more, [`next_deadline_ms`](Self::next_deadline_ms) is still over.
    pub fn expire(&self, now_ms: u64) -> usize {
        // First, so that a deadline that is set meanwhile is either found below or noted anew.
        self.next_deadline_ms.store(NEVER_MS, Ordering::SeqCst);
        let (mut count, mut next) = (0, NEVER_MS);
        for index in 0..self.shards.len() {
            let mut shard = self.lock(index);
            count += shard.expire(now_ms, EXPIRED_AT_ONCE_MAX);
            next = next.min(shard.next_deadline_ms().unwrap_or(NEVER_MS));
        }
        self.next_deadline_ms.fetch_min(next, Ordering::SeqCst);
        count
    }

    /// Begins a call's use of the store.
    #[inline]
    pub(crate) fn access(&self) -> Access<'_> {
        Access::new(self)
    }

    /// What the shards count, one after the other.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for index in 0..self.shards.len() {
            self.lock(index).add_to(&mut totals);
        }
        totals
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Which shard a key with this hash is in. The map in it uses the bits at both ends.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        // A panic under the lock is a bug of ours; the other keys are as good as before.
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a deadline that was set; to be called without a lock.
    fn note_deadline(&self, deadline_ms: u64) {
        if deadline_ms < self.next_deadline_ms.load(Ordering::Relaxed) {
            let before = self
                .next_deadline_ms
                .fetch_min(deadline_ms, Ordering::SeqCst);
            if deadline_ms < before
                && let Some(wake) = self.on_earlier_deadline.get()
            {
                wake();
            }
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("shards", &self.shards.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
