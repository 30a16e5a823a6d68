//! The group of loops that make one server: what they share, and how they stop together.
//!
//! # A stop
//!
//! ```text
//! any loop: stop ──▶ every loop: closes its listeners ──the last──▶ every loop: tells its connections
//!                                 arms the deadline
//! ```
//!
//! So whoever learns of the stop by the end of a connection finds nobody listening. A loop ends when
//! it has no connection left; the first one, which watches the signals, when all others have ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::handle::{LoopHandle, StopHandle};
use super::room::Room;
use super::server::ThreadHandle;
use crate::session::Service;

/// What the loops of one server share.
pub(super) struct Group<V: Service> {
    /// Set before any loop runs.
    handles: OnceLock<Box<[LoopHandle<V>]>>,
    pub(super) room: Arc<Room>,
    accepting_by: Accepting,
    /// Connections that the first loop dealt out.
    dealt: AtomicUsize,
    /// Loops that accept still.
    accepting: AtomicUsize,
    /// Loops beside the first that have not ended.
    others: AtomicUsize,
}

/// How the loops of a server come by their connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepting {
    /// The first loop accepts them all and deals them out. Even where the kernel's hash is not, and
    /// for Unix sockets; but a connection costs a message to another thread, and the first loop
    /// limits how many can be accepted.
    Acceptor(Dealing),
    /// The same, but the first loop serves none itself; if it is the only one, it does.
    AcceptorOnly(Dealing),
    /// Each loop accepts its own, from its own socket if it can have one. Costs nothing extra.
    #[default]
    ReusePort,
}

/// To which loop a connection goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dealing {
    /// To the one that has the fewest.
    #[default]
    LeastLoaded,
    /// To each in turn.
    RoundRobin,
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By a stop of the server.
    Stopped,
    /// By an error, a panic, or a handler that ended it.
    Unasked,
}

impl<V: Service> Group<V> {
    pub(super) fn new(loops: usize, connections_max: usize, accepting: Accepting) -> Self {
        Self {
            handles: OnceLock::new(),
            room: Arc::new(Room::new(loops, connections_max)),
            accepting_by: accepting,
            dealt: AtomicUsize::new(0),
            accepting: AtomicUsize::new(loops),
            others: AtomicUsize::new(loops - 1),
        }
    }

    /// Names the loops, the first one first.
    pub(super) fn set_handles(&self, handles: Vec<LoopHandle<V>>) {
        let set = self.handles.set(handles.into_boxed_slice());
        debug_assert!(set.is_ok(), "the loops are named once");
    }

    /// What stops the server of `group`.
    pub(super) fn stop_handle(group: &Arc<Self>) -> StopHandle {
        let group = Arc::clone(group);
        // The first loop lives as long as any, and tells the others.
        StopHandle::new(move || group.handles()[0].post(|state, cx| state.stop(cx)))
    }

    pub(super) fn handles(&self) -> &[LoopHandle<V>] {
        self.handles.get().map_or(&[], |handles| handles)
    }

    /// The loops as threads.
    pub(super) fn threads(&self) -> Vec<ThreadHandle<V>> {
        self.handles().iter().map(LoopHandle::thread).collect()
    }

    /// Which loop is to serve the next connection that loop `index` accepts.
    pub(super) fn choose(&self, index: usize) -> usize {
        let loops = self.handles().len().max(1);
        let (dealing, first) = match self.accepting_by {
            Accepting::Acceptor(dealing) => (dealing, 0),
            Accepting::AcceptorOnly(dealing) => (dealing, usize::from(loops > 1)),
            Accepting::ReusePort => return index,
        };
        let start = first + self.dealt.load(Ordering::Relaxed) % (loops - first);
        match dealing {
            Dealing::LeastLoaded => self.room.least_loaded(first, start),
            Dealing::RoundRobin => start,
        }
    }

    /// Notes that a connection was accepted for the chosen loop: among equals it is the next one's
    /// turn.
    pub(super) fn note_dealt(&self) {
        self.dealt.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a loop has closed its listeners; answers whether it was the last.
    pub(super) fn note_listeners_closed(&self) -> bool {
        self.accepting.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Notes that a loop beside the first has ended: the first looks whether it is done. If there
    /// was no stop, the server ends.
    pub(super) fn note_end(&self, end: End) {
        if end == End::Unasked {
            self.cut();
        }
        self.others.fetch_sub(1, Ordering::AcqRel);
        if let Some(first) = self.handles().first() {
            first.wake();
        }
    }

    /// Whether all loops but the first have ended.
    pub(super) fn others_have_ended(&self) -> bool {
        self.others.load(Ordering::Acquire) == 0
    }

    /// Has every loop cut what it has and end.
    pub(super) fn cut(&self) {
        for handle in self.handles() {
            // It has ended already.
            let _ = handle.post(|state, cx| state.cut(cx));
        }
    }
}
