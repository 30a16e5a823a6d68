//! Room for connections: the limit that all loops of a server share.
//!
//! # Threads
//!
//! An acceptor that finds no room leaves a note and looks again; whoever gives room back looks for
//! notes. Both are sequentially consistent, so at least one sees the other: no acceptor waits while
//! there is room.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::EventId;

use crate::event_loop::WakeFlag;

/// How many connections there are, and how many there may be.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    connections_max: usize,
    /// Whether there are notes.
    is_awaited: AtomicBool,
    /// The acceptors that wait for room, each with its loop.
    awaited: Mutex<Vec<(Arc<WakeFlag>, EventId)>>,
}

/// Room for one connection; given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Room>);

impl Room {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            connections_max,
            is_awaited: AtomicBool::new(false),
            awaited: Mutex::default(),
        }
    }

    /// Takes room for a connection. If there is none, `acceptor` of the loop of `flag` will be
    /// activated when there is.
    pub(super) fn take(self: &Arc<Self>, flag: &Arc<WakeFlag>, acceptor: EventId) -> Option<Place> {
        if let Some(place) = self.try_take() {
            return Some(place);
        }
        {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.push((Arc::clone(flag), acceptor));
            self.is_awaited.store(true, Ordering::SeqCst);
        }
        // The note may stay: then the acceptor looks once for nothing.
        self.try_take()
    }

    fn try_take(self: &Arc<Self>) -> Option<Place> {
        let taken = self
            .taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                (taken < self.connections_max).then_some(taken + 1)
            });
        taken.is_ok().then(|| Place(Arc::clone(self)))
    }

    #[cold]
    fn tell(&self) {
        let awaited = {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            self.is_awaited.store(false, Ordering::SeqCst);
            std::mem::take(&mut *awaited)
        };
        for (flag, acceptor) in awaited {
            flag.complete(acceptor);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        if self.0.is_awaited.load(Ordering::SeqCst) {
            self.0.tell();
        }
    }
}
