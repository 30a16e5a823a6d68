//! The book of one loop's open connections: their number, and what those are at that are cut.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use windlass_core::Instant;

use crate::models::report::{ConnectionPhase, CutConnection};
use crate::models::room::Place;
use crate::session::Peer;

/// So many of those that are cut are written down.
const CUTS_MAX: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    open: Cell<usize>,
    /// While connections are cut: when, and which.
    cuts: RefCell<Option<Cuts>>,
}

#[derive(Debug)]
struct Cuts {
    time: Instant,
    list: Vec<CutConnection>,
}

/// A connection's entry: counts it as open, and takes its room, while it lives.
#[derive(Debug)]
pub(super) struct Entry {
    book: Rc<Book>,
    opened_at: Instant,
    _place: Place,
}

impl Book {
    pub(super) fn open_count(&self) -> usize {
        self.open.get()
    }

    pub(super) fn enter(self: &Rc<Self>, opened_at: Instant, place: Place) -> Entry {
        self.open.set(self.open.get() + 1);
        Entry {
            book: Rc::clone(self),
            opened_at,
            _place: place,
        }
    }

    /// Runs `cut`; answers how many connections that ended, and what the first ones were at.
    pub(super) fn watch_cuts(
        &self,
        time: Instant,
        cut: impl FnOnce(),
    ) -> (usize, Vec<CutConnection>) {
        let before = self.open.get();
        let list = Vec::new();
        self.cuts.replace(Some(Cuts { time, list }));
        cut();
        let list = self.cuts.take().map_or(Vec::new(), |cuts| cuts.list);
        (before - self.open.get(), list)
    }
}

impl Entry {
    /// For a connection that ends: writes down what it is at, if it is being cut.
    pub(super) fn note_end(&self, state: impl FnOnce() -> (Peer, ConnectionPhase, u64)) {
        if let Some(cuts) = &mut *self.book.cuts.borrow_mut()
            && cuts.list.len() < CUTS_MAX
        {
            let (peer, phase, queued_bytes) = state();
            let age: Duration = cuts.time.saturating_since(self.opened_at);
            cuts.list.push(CutConnection {
                peer,
                phase,
                age,
                queued_bytes,
            });
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.book.open.set(self.book.open.get() - 1);
    }
}
