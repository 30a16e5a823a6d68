//! What all connections of one loop share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Disposition, EventId, Instant, Trigger};
use windlass_sys::clock;

use crate::event_loop::{Context, Reactor, WakeFlag};
use crate::models::limits::{Limits, ServerReport};
use crate::pool::WorkerPool;
use crate::session::{Now, Output, Service};

/// The program state of a [`SingleLoop`](super::SingleLoop)'s event loop: opaque, but that a
/// handler can [stop](Self::stop) the server through it.
pub struct ServerState<V: Service> {
    pub(super) service: Arc<V>,
    pub(super) local: V::Local,
    pub(super) limits: Limits,
    pub(super) pool: WorkerPool,
    /// Input is read into this, after what the connection had left over.
    pub(super) input: Box<[u8]>,
    /// Output is written to this; empty between two calls.
    pub(super) output: Output,
    pub(super) counts: ServerReport,
    /// Connections that are open; each holds one clone.
    open: Rc<Cell<usize>>,
    /// The connections' events by slot; may name some that are gone.
    connections: Vec<Option<EventId>>,
    pub(super) acceptors: Vec<EventId>,
    /// Whether an acceptor pauses because there are too many connections.
    pub(super) waits_for_room: bool,
    /// How connections are watched: for edges where the back end can, which spares the kernel a
    /// second look at each socket that it reported.
    pub(super) trigger: Trigger,
    /// Through it notifiers reach the loop.
    pub(super) wake_flag: Arc<WakeFlag>,
    phase: Phase,
    wall: WallClock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    Stopping,
    Stopped,
}

/// Counts a connection as open while it lives.
#[derive(Debug)]
pub(super) struct OpenGuard(Rc<Cell<usize>>);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The wall clock, read once a second and counted on by the monotonic one in between.
#[derive(Clone, Copy, Debug, Default)]
struct WallClock {
    read_at: Instant,
    unix_ms: u64,
}

const WALL_CLOCK_MAX_AGE: Duration = Duration::from_secs(1);

impl<V: Service> ServerState<V> {
    pub(super) fn new(
        service: Arc<V>,
        limits: Limits,
        pool: WorkerPool,
        trigger: Trigger,
        wake_flag: Arc<WakeFlag>,
    ) -> Self {
        let local = service.local();
        Self {
            service,
            local,
            limits,
            pool,
            input: vec![0; limits.input_bytes_max.max(4096)].into_boxed_slice(),
            output: Output::new(limits.output),
            counts: ServerReport::default(),
            open: Rc::default(),
            connections: Vec::new(),
            acceptors: Vec::new(),
            waits_for_room: false,
            trigger,
            wake_flag,
            phase: Phase::Serving,
            wall: WallClock::default(),
        }
    }

    /// Has the service settle after each turn, if it wants to.
    pub(super) fn watch_turns(&self, reactor: &mut Reactor<'static, Self>) {
        if self.service.settles() {
            reactor.on_prepare(|state, cx| {
                let now = state.now(cx);
                state.service.settle(&mut state.local, now);
                Disposition::Keep
            });
        }
    }

    /// Begins a graceful stop; called again, cuts what is left.
    pub fn stop(&mut self, cx: &mut Context<'_, 'static, Self>) {
        if self.phase != Phase::Serving {
            self.cut(cx);
            return;
        }
        self.phase = Phase::Stopping;
        for acceptor in self.acceptors.drain(..) {
            cx.remove(acceptor);
        }
        for &event in self.connections.iter().flatten() {
            // Gone: nobody is there to be told.
            let _ = cx.activate(event, 1);
        }
        cx.on_prepare(|state: &mut Self, cx| {
            if state.phase == Phase::Stopping && state.open.get() == 0 {
                state.phase = Phase::Stopped;
                cx.stop();
            }
            Disposition::Keep
        });
        let deadline = self.limits.stop_deadline;
        // The engine is not full: an acceptor's slot has just become free.
        let _ = cx.after(deadline, |state: &mut Self, cx| state.cut(cx));
    }

    /// Ends all connections.
    fn cut(&mut self, cx: &mut Context<'_, 'static, Self>) {
        let before = self.open.get();
        for event in std::mem::take(&mut self.connections).into_iter().flatten() {
            cx.remove(event);
        }
        self.counts.cut += (before - self.open.get()) as u64;
        self.phase = Phase::Stopped;
        cx.stop();
    }

    /// Whether a stop is under way.
    pub fn is_stopping(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// Whether another connection may be accepted.
    pub(super) fn has_room(&self) -> bool {
        self.open.get() < self.limits.connections_max
    }

    pub(super) fn guard(&self) -> OpenGuard {
        self.open.set(self.open.get() + 1);
        OpenGuard(Rc::clone(&self.open))
    }

    pub(super) fn note_connection(&mut self, event: EventId) {
        let at = event.slot();
        if at >= self.connections.len() {
            self.connections.resize(at + 1, None);
        }
        self.connections[at] = Some(event);
    }

    /// Notes that the connection whose handler runs ends.
    pub(super) fn forget_connection(&mut self, cx: &mut Context<'_, 'static, Self>) {
        if let Some(entry) = self.connections.get_mut(cx.event().slot()) {
            *entry = None;
        }
        if std::mem::take(&mut self.waits_for_room) {
            for &acceptor in &self.acceptors {
                // It exists while it is listed.
                let _ = cx.enable(acceptor);
            }
        }
    }

    /// The time of this turn.
    #[inline]
    pub(super) fn now(&mut self, reactor: &mut Reactor<'static, Self>) -> Now {
        let monotonic = reactor.now();
        let age = monotonic.saturating_since(self.wall.read_at);
        if age >= WALL_CLOCK_MAX_AGE || self.wall.unix_ms == 0 {
            self.wall = WallClock {
                read_at: monotonic,
                unix_ms: clock::realtime_unix_ms(),
            };
            return Now {
                monotonic,
                unix_ms: self.wall.unix_ms,
            };
        }
        // Less than a second.
        Now {
            monotonic,
            unix_ms: self.wall.unix_ms + u64::from(age.subsec_millis()),
        }
    }

    pub(super) fn report(&self) -> ServerReport {
        self.counts
    }
}

impl<V: Service> std::fmt::Debug for ServerState<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState")
            .field("open", &self.open.get())
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
