//! Lanes that many threads share: each has one while it calls a session, and none while it waits.
//!
//! A lane of its own for each of thousands of threads would cost a service's shared part (caches,
//! scratch memory) and an input buffer for each connection.
//!
//! # Threads
//!
//! A lane is on the shelf or in one thread's hands. What is posted to one in a thread's hands is
//! done by that thread when it puts it back. The lock is never held while code of the program runs.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use windlass_core::Instant;
use windlass_sys::clock;

use crate::models::lane::Lane;
use crate::models::lane_thread::LaneThread;
use crate::models::limits::Limits;
use crate::models::report::ServerReport;
use crate::models::server::Visit;
use crate::session::Service;

/// See the module.
pub(super) struct Lanes<V: Service> {
    shelf: Mutex<Shelf<V>>,
    /// A lane was put back while threads waited for one.
    back: Condvar,
    /// What lanes are made with that are taken for the first time.
    service: Arc<V>,
    limits: Limits,
}

struct Shelf<V: Service> {
    lanes: Box<[Slot<V>]>,
    /// Those on the shelf; the last one put back is taken first, as its memory is warm.
    free: Vec<usize>,
    waiting: usize,
}

struct Slot<V: Service> {
    /// None if a thread has it, or if it was never made.
    lane: Option<Box<Lane<V>>>,
    /// For whoever has it.
    visits: Vec<Visit<V>>,
}

/// A lane in a thread's hands.
pub(super) struct Taken<V: Service> {
    pub(super) lane: Box<Lane<V>>,
    index: usize,
}

impl<V: Service> Lanes<V> {
    pub(super) fn new(count: usize, service: Arc<V>, limits: Limits) -> Self {
        let slots = (0..count).map(|_| Slot {
            lane: None,
            visits: Vec::new(),
        });
        Self {
            shelf: Mutex::new(Shelf {
                lanes: slots.collect(),
                free: (0..count).rev().collect(),
                waiting: 0,
            }),
            back: Condvar::new(),
            service,
            limits,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.shelf().lanes.len()
    }

    /// Takes a lane; waits while all are in use.
    ///
    /// # Panics
    ///
    /// If the service panics as it makes its shared part.
    pub(super) fn take(&self) -> Taken<V> {
        let mut shelf = self.shelf();
        let index = loop {
            if let Some(index) = shelf.free.pop() {
                break index;
            }
            shelf.waiting += 1;
            shelf = self
                .back
                .wait(shelf)
                .unwrap_or_else(PoisonError::into_inner);
            shelf.waiting -= 1;
        };
        let lane = shelf.lanes[index].lane.take();
        drop(shelf);
        let lane = lane.unwrap_or_else(|| self.make(index));
        Taken { lane, index }
    }

    /// Makes lane `index` for the thread that has just taken it.
    #[cold]
    fn make(&self, index: usize) -> Box<Lane<V>> {
        // Unwind safety: the panic goes on, and nothing was changed but the shelf.
        let made = catch_unwind(AssertUnwindSafe(|| {
            Box::new(Lane::new(Arc::clone(&self.service), self.limits))
        }));
        made.unwrap_or_else(|panic| {
            // The next one tries again.
            self.lay(self.shelf(), index, None);
            resume_unwind(panic)
        })
    }

    /// Puts a lane back, after what was posted to it meanwhile.
    pub(super) fn put(&self, taken: Taken<V>) {
        let Taken { mut lane, index } = taken;
        loop {
            let mut shelf = self.shelf();
            let visits = mem::take(&mut shelf.lanes[index].visits);
            if visits.is_empty() {
                self.lay(shelf, index, Some(lane));
                return;
            }
            drop(shelf);
            for visit in visits {
                call(visit, &mut lane);
            }
        }
    }

    fn lay(&self, mut shelf: MutexGuard<'_, Shelf<V>>, index: usize, lane: Option<Box<Lane<V>>>) {
        shelf.lanes[index].lane = lane;
        shelf.free.push(index);
        let wake = shelf.waiting > 0;
        drop(shelf);
        if wake {
            self.back.notify_one();
        }
    }

    /// Calls `visit` with lane `index`, in this thread, or in the one that has it when it puts it
    /// back.
    pub(super) fn visit(&self, index: usize, visit: Visit<V>) {
        let mut shelf = self.shelf();
        let Some(at) = shelf.free.iter().position(|&free| free == index) else {
            shelf.lanes[index].visits.push(visit);
            return;
        };
        shelf.free.remove(at);
        let lane = shelf.lanes[index].lane.take();
        drop(shelf);
        let mut lane = lane.unwrap_or_else(|| self.make(index));
        call(visit, &mut lane);
        self.put(Taken { lane, index });
    }

    /// What all lanes on the shelf counted.
    pub(super) fn report(&self) -> ServerReport {
        let shelf = self.shelf();
        let lanes = shelf.lanes.iter().filter_map(|slot| slot.lane.as_ref());
        lanes.map(|lane| lane.counts).sum()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf<V>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls the program's closure. A panic is counted.
fn call<V: Service>(visit: Visit<V>, lane: &mut Lane<V>) {
    let now = lane.now(now());
    // Unwind safety: the lane's shared part is the service's, as with a session's panic.
    let called = catch_unwind(AssertUnwindSafe(|| visit(&mut LaneThread { lane, now })));
    lane.counts.panics += u64::from(called.is_err());
}

/// On the clock of the event loops.
pub(super) fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_ns())
}
