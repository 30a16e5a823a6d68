//! The bell: a loop sleeps only without work, and is rung at most once per sleep.
//!
//! One word of two bits. Work is published and looked for, sleep is announced and looked for, on
//! the same word: so of a producer and a loop that cross, at least one sees the other.

use crate::sync::atomic::{AtomicU8, Ordering};

/// Whether there is work, and whether the loop sleeps.
#[derive(Debug, Default)]
pub(super) struct Bell {
    word: AtomicU8,
}

const WORK: u8 = 1;
const ASLEEP: u8 = 2;

impl Bell {
    /// A producer has published work. Answers whether it must wake the loop.
    #[inline]
    pub(super) fn ring(&self) -> bool {
        // Takes ASLEEP away, so that one producer of a burst wakes.
        self.word.swap(WORK, Ordering::AcqRel) & ASLEEP != 0
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.word.load(Ordering::Acquire) & WORK != 0
    }

    /// The loop is about to do the work: what is published from now on rings again.
    #[inline]
    pub(super) fn answer(&self) {
        self.word.swap(0, Ordering::AcqRel);
    }

    /// The loop wants to wait; answers whether there is no work.
    #[inline]
    pub(super) fn fall_asleep(&self) -> bool {
        self.word
            .compare_exchange(0, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The loop is back from its wait, by whatever woke it.
    #[inline]
    pub(super) fn wake_up(&self) {
        // Fails if a producer took the word already: then there is work.
        let _ = self
            .word
            .compare_exchange(ASLEEP, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}
