//! The book of a crew: what is open, how far a stop has come, and what it cut.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use windlass_core::{EventId, Instant};
use windlass_sys::net;
use windlass_sys::wake::WakeFd;

use super::Hand;
use crate::models::report::{ConnectionPhase, CutConnection};
use crate::models::room::Place;
use crate::session::{Peer, Service};
use crate::thread_set::WeakHandleSet;

/// So many of those that are cut are written down.
const CUTS_MAX: usize = 32;

/// See the module. Its lock is held for single changes; the set is called without it.
pub(super) struct Book<V: Service> {
    handles: WeakHandleSet<Hand<V>>,
    /// Of the threads that stay with connections: they look up when one rings.
    bells: Vec<Arc<WakeFd>>,
    /// The phase once more, for a look in each call.
    phase: AtomicU8,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Listeners that are open, and one more until a stop has removed them.
    listeners: usize,
    open: usize,
    /// The connections by their events' slots; may name some that are gone.
    connections: Vec<Option<Noted>>,
    /// Those that were being handled when they were cut.
    lasting: Vec<Weak<OwnedFd>>,
    cut: u64,
    cuts: Vec<CutConnection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving = 0,
    /// Listeners are being closed.
    Closing,
    /// Nobody accepts any more; connections are told to end.
    Ending,
    /// What was left is cut.
    Cut,
}

/// A connection, as others than its handler know it.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub(super) event: EventId,
    pub(super) socket: Weak<OwnedFd>,
}

/// Whether a stop was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Already,
    Begins,
}

/// A connection's entry: counts it as open, and takes its room, while it lives.
pub(super) struct Entry<V: Service> {
    book: Arc<Book<V>>,
    opened_at: Instant,
    _place: Place,
}

impl<V: Service> Book<V> {
    pub(super) fn new(
        handles: WeakHandleSet<Hand<V>>,
        bells: Vec<Arc<WakeFd>>,
        listeners: usize,
    ) -> Self {
        Self {
            handles,
            bells,
            phase: AtomicU8::new(Phase::Serving as u8),
            state: Mutex::new(State {
                phase: Phase::Serving,
                listeners: listeners + 1,
                open: 0,
                connections: Vec::new(),
                lasting: Vec::new(),
                cut: 0,
                cuts: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter_phase(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Whether a stop is under way.
    pub(super) fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::Closing as u8
    }

    /// Whether connections are to end.
    #[inline]
    pub(super) fn ends_connections(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= Phase::Ending as u8
    }

    /// Whether connections that are still there are dropped.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Cut as u8
    }

    pub(super) fn open_count(&self) -> usize {
        self.lock().open
    }

    /// How many were cut, those that are still being handled included; and what the first ones were
    /// at.
    pub(super) fn cuts(&self) -> (u64, Vec<CutConnection>) {
        let state = self.lock();
        let left = match state.phase {
            Phase::Cut => state.open as u64,
            _ => 0,
        };
        (state.cut + left, state.cuts.clone())
    }

    pub(super) fn begin_stop(&self) -> Closing {
        let mut state = self.lock();
        if state.phase != Phase::Serving {
            return Closing::Already;
        }
        self.enter_phase(&mut state, Phase::Closing);
        Closing::Begins
    }

    /// One listener less, or the stop has removed all that were not in use. After the last one,
    /// connections are told to end.
    pub(super) fn note_listener_closed(&self) {
        let connections = {
            let mut state = self.lock();
            state.listeners -= 1;
            if state.listeners > 0 || state.phase != Phase::Closing {
                return;
            }
            self.enter_phase(&mut state, Phase::Ending);
            state.connections.clone()
        };
        if let Some(handles) = self.handles.upgrade() {
            for noted in connections.into_iter().flatten() {
                // Gone: nobody is there to be told.
                let _ = handles.activate(noted.event);
            }
        }
        self.ring_all();
        self.end_if_done();
    }

    /// Has every thread look up that stays with a connection.
    pub(super) fn ring_all(&self) {
        for bell in &self.bells {
            // It can't fail: it is open as long as this, and a full counter wakes too.
            let _ = bell.notify();
        }
    }

    /// From now on connections are cut; answers which there are.
    pub(super) fn begin_cut(&self) -> impl Iterator<Item = Noted> + use<V> {
        let mut state = self.lock();
        self.enter_phase(&mut state, Phase::Cut);
        std::mem::take(&mut state.connections).into_iter().flatten()
    }

    /// One that was cut is still being handled.
    pub(super) fn note_lasting(&self, socket: Weak<OwnedFd>) {
        self.lock().lasting.push(socket);
    }

    /// Ends those for their peers.
    pub(super) fn shut_down_lasting(&self) {
        let lasting = std::mem::take(&mut self.lock().lasting);
        for socket in lasting.iter().filter_map(Weak::upgrade) {
            // It fails if the peer has ended it.
            let _ = net::shutdown_both(socket.as_fd());
        }
    }

    pub(super) fn enter(self: &Arc<Self>, opened_at: Instant, place: Place) -> Entry<V> {
        self.lock().open += 1;
        Entry {
            book: Arc::clone(self),
            opened_at,
            _place: place,
        }
    }

    /// Notes a connection; answers whether it is to be cut.
    pub(super) fn note_connection(&self, noted: Noted) -> bool {
        let mut state = self.lock();
        let at = noted.event.slot();
        if at >= state.connections.len() {
            state.connections.resize(at + 1, None);
        }
        state.connections[at] = Some(noted);
        state.phase == Phase::Cut
    }

    /// Ends the set if a stop is under way and nothing is left.
    pub(super) fn end_if_done(&self) {
        let is_done = {
            let state = self.lock();
            state.phase >= Phase::Ending && state.open == 0
        };
        if is_done && let Some(handles) = self.handles.upgrade() {
            handles.stop();
        }
    }
}

impl<V: Service> Entry<V> {
    /// For a connection that did not end by itself: counts it and writes down what it is at, if
    /// connections are being cut.
    pub(super) fn note_cut(&self, summary: impl FnOnce() -> (Peer, ConnectionPhase, u64)) {
        if !self.book.is_cut() {
            return;
        }
        let (peer, phase, queued_bytes) = summary();
        let now = self.book.handles.upgrade().map(|handles| handles.clock());
        let age = now
            .unwrap_or(self.opened_at)
            .saturating_since(self.opened_at);
        let mut state = self.book.lock();
        state.cut += 1;
        if state.cuts.len() < CUTS_MAX {
            state.cuts.push(CutConnection {
                peer,
                phase,
                age,
                queued_bytes,
            });
        }
    }
}

impl<V: Service> Drop for Entry<V> {
    fn drop(&mut self) {
        self.book.lock().open -= 1;
        if self.book.ends_connections() {
            self.book.end_if_done();
        }
    }
}

impl<V: Service> fmt::Debug for Book<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
