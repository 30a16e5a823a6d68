//! Room for connections: the limit that all loops of a server share.
//!
//! # Threads
//!
//! An acceptor that finds no room leaves a note and looks again; whoever gives room back looks for
//! notes. Both are sequentially consistent, so at least one sees the other: no acceptor waits while
//! there is room.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::EventId;

use crate::event_loop::WakeFlag;

/// How many connections there are, and how many there may be.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    /// Those of each loop.
    loads: Box<[AtomicUsize]>,
    connections_max: AtomicUsize,
    /// Whether there are notes.
    is_awaited: AtomicBool,
    /// The acceptors that wait for room, each with its driver.
    awaited: Mutex<Vec<(Arc<dyn Activates>, EventId)>>,
}

/// A driver, as one who has room reaches it from any thread.
pub(super) trait Activates: fmt::Debug + Send + Sync {
    /// Has the handler of `event` called.
    fn activate(&self, event: EventId);
}

impl Activates for WakeFlag {
    fn activate(&self, event: EventId) {
        self.complete(event);
    }
}

/// Room for one connection in one loop; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    index: usize,
}

impl Room {
    pub(super) fn new(loops: usize, connections_max: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            loads: (0..loops).map(|_| AtomicUsize::new(0)).collect(),
            connections_max: AtomicUsize::new(connections_max),
            is_awaited: AtomicBool::new(false),
            awaited: Mutex::default(),
        }
    }

    /// Takes room for a connection of loop `index`. If there is none, `acceptor` will be activated
    /// by its `driver` when there is.
    pub(super) fn take<D: Activates + 'static>(
        self: &Arc<Self>,
        index: usize,
        driver: &Arc<D>,
        acceptor: EventId,
    ) -> Option<Place> {
        if let Some(place) = self.try_take(index) {
            return Some(place);
        }
        {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.push((Arc::clone(driver) as _, acceptor));
            self.is_awaited.store(true, Ordering::SeqCst);
        }
        // The note may stay: then the acceptor looks once for nothing.
        self.try_take(index)
    }

    /// The loop with the fewest connections, of those from `first` on; of several the one that comes
    /// first from `start` on.
    pub(super) fn least_loaded(&self, first: usize, start: usize) -> usize {
        let count = self.loads.len() - first;
        let loads = (0..count).map(|step| first + (start - first + step) % count);
        let least = loads.min_by_key(|&index| self.loads[index].load(Ordering::Relaxed));
        least.unwrap_or_default()
    }

    /// Changes how many connections there may be. If there are more, those stay.
    pub(super) fn set_connections_max(&self, connections_max: usize) {
        self.connections_max
            .store(connections_max, Ordering::SeqCst);
        // Who waits looks again: there may be room now.
        self.tell();
    }

    fn try_take(self: &Arc<Self>, index: usize) -> Option<Place> {
        let taken = self
            .taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                (taken < self.connections_max.load(Ordering::SeqCst)).then_some(taken + 1)
            });
        taken.is_ok().then(|| {
            self.loads[index].fetch_add(1, Ordering::Relaxed);
            let room = Arc::clone(self);
            Place { room, index }
        })
    }

    #[cold]
    fn tell(&self) {
        let awaited = {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_awaited.store(false, Ordering::SeqCst);
            std::mem::take(&mut *awaited)
        };
        for (driver, acceptor) in awaited {
            driver.activate(acceptor);
        }
    }
}

impl Place {
    /// Whose place it is.
    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let room = &self.room;
        room.loads[self.index].fetch_sub(1, Ordering::Relaxed);
        room.taken.fetch_sub(1, Ordering::SeqCst);
        if room.is_awaited.load(Ordering::SeqCst) {
            room.tell();
        }
    }
}
