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

#[cfg(all(test, loom))]
mod loom_model {
    //! `RUSTFLAGS="--cfg loom" cargo test -p windlass --lib --release loom`

    use std::sync::Arc;

    use super::Bell;
    use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use crate::sync::{Condvar, Mutex, lock};

    /// How a loop's first wait may end; later ones end by a wake-up.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Wait {
        /// At any moment, as if a handle had become ready; the wake-up may come later.
        ForAnything,
        /// By a wake-up only.
        ForWake,
    }

    /// Two producers and a loop; `fd_*` stands for the eventfd.
    #[derive(Default)]
    struct Model {
        bell: Bell,
        /// What the producers publish: with no ordering of its own, so that the bell's is tested.
        items: [AtomicBool; 2],
        fd_count: Mutex<usize>,
        fd_readable: Condvar,
        /// How often the loop fell asleep.
        sleeps: AtomicUsize,
        /// How often a producer wrote the channel.
        wakes: AtomicUsize,
    }

    impl Model {
        fn produce(&self, item: usize) {
            self.items[item].store(true, Ordering::Relaxed);
            if self.bell.ring() {
                self.wakes.fetch_add(1, Ordering::Relaxed);
                *lock(&self.fd_count) += 1;
                self.fd_readable.notify_one();
            }
        }

        /// Turns of a loop until it has seen both items. Work that is left behind shows as a
        /// deadlock: the loop waits without a limit.
        fn run(&self, mut wait: Wait) {
            let mut seen = 0;
            while seen < 2 {
                if self.bell.fall_asleep() {
                    self.sleeps.fetch_add(1, Ordering::Relaxed);
                    self.wait(wait);
                    wait = Wait::ForWake;
                    self.bell.wake_up();
                } else {
                    assert!(self.bell.has_work(), "it may sleep if there is none");
                }
                if !self.bell.has_work() {
                    continue;
                }
                self.bell.answer();
                for item in &self.items {
                    // Not a swap, which would see the newest without the bell's help.
                    if item.load(Ordering::Relaxed) {
                        item.store(false, Ordering::Relaxed);
                        seen += 1;
                    }
                }
            }
        }

        fn wait(&self, wait: Wait) {
            let mut count = lock(&self.fd_count);
            if wait == Wait::ForWake {
                while *count == 0 {
                    count = self.fd_readable.wait(count).expect("no panic");
                }
            } else {
                drop(count);
                loom::thread::yield_now();
                count = lock(&self.fd_count);
            }
            *count = 0;
        }
    }

    fn check(wait: Wait) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let model = Arc::new(Model::default());
            let producers = [0, 1].map(|item| {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || model.produce(item))
            });
            model.run(wait);
            for producer in producers {
                producer.join().expect("no panic");
            }
            let (sleeps, wakes) = (&model.sleeps, &model.wakes);
            assert!(
                wakes.load(Ordering::Relaxed) <= sleeps.load(Ordering::Relaxed),
                "at most one wake-up per sleep"
            );
        });
    }

    #[test]
    fn loom_work_wakes_a_sleeping_loop_once_and_is_seen() {
        check(Wait::ForWake);
    }

    #[test]
    fn loom_work_is_seen_when_something_else_ends_the_wait() {
        check(Wait::ForAnything);
    }
}
