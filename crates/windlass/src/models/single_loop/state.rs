//! What all connections of one loop share.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::{self, Rc};
use std::sync::{Arc, Weak};

use windlass_core::{Disposition, EventId, Instant, Trigger, WatcherId};
use windlass_sys::net::SocketFile;

use super::book::{Book, Entry};
use crate::event_loop::{Context, Reactor, WakeFlag};
use crate::models::carrier::Carrier;
use crate::models::group::Group;
use crate::models::handle::LoopHandle;
use crate::models::jobs::JobSite;
use crate::models::lane::Lane;
use crate::models::limits::Limits;
use crate::models::listening::{ListenSocket, Sharing};
use crate::models::report::{CutConnection, ServerReport};
use crate::models::room::Place;
use crate::proactor::PoolId;
use crate::session::{Now, Service};

/// The program state of each event loop of a server. Handlers that are registered beside the
/// server's own, and closures that are [posted](crate::models::LoopHandle::post), reach through it
/// the loop's numbers, its service, and the server's stop.
pub struct ServerState<V: Service> {
    pub(super) lane: Lane<V>,
    pub(super) jobs: JobSite,
    pub(super) carrier: Option<Arc<dyn Carrier>>,
    pub(super) group: Arc<Group<V>>,
    /// The loop's place in the group.
    index: usize,
    book: Rc<Book>,
    cuts: Vec<CutConnection>,
    /// The connections' events by slot; may name some that are gone.
    connections: Vec<Option<EventId>>,
    pub(super) acceptors: Vec<EventId>,
    /// What they accept from.
    pub(super) listeners: Vec<rc::Weak<ListenSocket>>,
    /// Those of the server's Unix listeners.
    files: Vec<Weak<SocketFile>>,
    settle_hook: Option<WatcherId>,
    end_hook: Option<WatcherId>,
    /// How connections are watched: for edges where the back end can, which spares the kernel a
    /// second look at each socket that it reported.
    pub(super) trigger: Trigger,
    /// What connections receive into, if their bytes pass by operations.
    pub(super) pool: Option<PoolId>,
    /// Through it notifiers reach the loop.
    pub(super) wake_flag: Arc<WakeFlag>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The loop's listeners are closed, but perhaps not yet those of others.
    Closing,
    /// Nobody accepts any more; connections are told to end.
    Ending,
    /// What was left is cut.
    Cut,
}

/// What a loop of a server is made of.
pub(in crate::models) struct LoopParts<V: Service> {
    pub(in crate::models) service: Arc<V>,
    pub(in crate::models) limits: Limits,
    pub(in crate::models) jobs: JobSite,
    pub(in crate::models) group: Arc<Group<V>>,
    /// Its place in the group.
    pub(in crate::models) index: usize,
    pub(in crate::models) files: Vec<Weak<SocketFile>>,
    pub(in crate::models) serving: Serving,
}

/// Who serves the connections that a loop accepts, and how.
pub(in crate::models) enum Serving {
    /// The loop, by operations that receive into a pool of so many buffers.
    ByCompletions { buffers: u16, buffer_bytes: u32 },
    /// The loop, when their sockets are ready.
    ByReadiness,
    /// Others, in threads of their own.
    Elsewhere(Arc<dyn Carrier>),
}

impl<V: Service> ServerState<V> {
    pub(super) fn new(parts: LoopParts<V>, trigger: Trigger, wake_flag: Arc<WakeFlag>) -> Self {
        let LoopParts {
            service,
            limits,
            jobs,
            group,
            index,
            files,
            serving,
        } = parts;
        let carrier = match serving {
            Serving::Elsewhere(carrier) => Some(carrier),
            Serving::ByCompletions { .. } | Serving::ByReadiness => None,
        };
        Self {
            lane: Lane::new(service, limits),
            jobs,
            carrier,
            group,
            index,
            book: Rc::default(),
            cuts: Vec::new(),
            connections: Vec::new(),
            acceptors: Vec::new(),
            listeners: Vec::new(),
            files,
            settle_hook: None,
            end_hook: None,
            trigger,
            pool: None,
            wake_flag,
            phase: Phase::Serving,
        }
    }

    /// Has the service settle after each turn, if it wants to.
    pub(super) fn watch_turns(&mut self, reactor: &mut Reactor<'static, Self>) {
        if !self.lane.service.settles() {
            if let Some(hook) = self.settle_hook.take() {
                reactor.remove_hook(hook);
            }
        } else if self.settle_hook.is_none() {
            let hook = reactor.on_prepare(|state, cx| {
                let now = state.now(cx);
                state.lane.settle(now);
                Disposition::Keep
            });
            self.settle_hook = Some(hook);
        }
    }

    /// Begins a graceful stop of the whole server, all loops of it: none accepts any more, then
    /// idle connections are closed and those that answer finish, and after
    /// [`Limits::stop_deadline`] the rest is cut. Called again, cuts what is left.
    pub fn stop(&mut self, cx: &mut Context<'_, 'static, Self>) {
        let begins = self.phase == Phase::Serving;
        let deadline = cx.now() + self.lane.limits.stop_deadline;
        self.tell_others(move |state, cx| {
            if begins {
                state.begin_stop(cx, deadline);
            } else {
                state.cut(cx);
            }
        });
        if begins {
            self.begin_stop(cx, deadline);
        } else {
            self.cut(cx);
        }
    }

    /// Calls `run` in all loops but this one.
    fn tell_others<F>(&self, run: F)
    where
        F: FnOnce(&mut Self, &mut Context<'_, 'static, Self>) + Copy + Send + 'static,
    {
        for (index, handle) in self.group.handles().iter().enumerate() {
            if index != self.index {
                // It has ended already.
                let _ = handle.post(run);
            }
        }
    }

    fn begin_stop(&mut self, cx: &mut Context<'_, 'static, Self>, deadline: Instant) {
        if self.phase != Phase::Serving {
            self.cut(cx);
            return;
        }
        self.phase = Phase::Closing;
        self.close_listeners(cx);
        self.watch_for_end(cx);
        let left = deadline.saturating_since(cx.now());
        // The engine is not full: an acceptor's slot has just become free.
        let _ = cx.after(left, |state: &mut Self, cx| state.cut(cx));
        if self.group.note_listeners_closed() {
            self.tell_others(|state, cx| state.end_connections(cx));
            self.end_connections(cx);
        }
    }

    fn close_listeners(&mut self, cx: &mut Context<'_, 'static, Self>) {
        for acceptor in self.acceptors.drain(..) {
            cx.remove(acceptor);
        }
    }

    /// Tells the connections that a stop is under way.
    fn end_connections(&mut self, cx: &mut Context<'_, 'static, Self>) {
        if self.phase != Phase::Closing {
            return;
        }
        self.phase = Phase::Ending;
        for &event in self.connections.iter().flatten() {
            // Gone: nobody is there to be told.
            let _ = cx.activate(event, 1);
        }
        if let Some(carrier) = &self.carrier {
            carrier.end_connections();
        }
    }

    /// Ends the loop when nothing is left to do.
    fn watch_for_end(&mut self, cx: &mut Context<'_, 'static, Self>) {
        if self.end_hook.is_none() {
            let hook = cx.on_prepare(|state: &mut Self, cx| {
                state.end_if_done(cx);
                Disposition::Keep
            });
            self.end_hook = Some(hook);
        }
    }

    fn end_if_done(&self, cx: &mut Context<'_, 'static, Self>) {
        let is_last = self.index == 0;
        // While others accept, they may send some.
        // Of a carrier's that were cut, some may be stuck.
        let is_done = self.is_cut() || self.ends_connections() && self.open_connections() == 0;
        if is_done && (!is_last || self.group.others_have_ended()) {
            cx.stop();
        }
    }

    /// Ends all connections of this loop.
    pub(in crate::models) fn cut(&mut self, cx: &mut Context<'_, 'static, Self>) {
        self.close_listeners(cx);
        self.phase = Phase::Cut;
        let connections = std::mem::take(&mut self.connections);
        let time = cx.now();
        let (count, list) = self.book.watch_cuts(time, || {
            for event in connections.into_iter().flatten() {
                cx.remove(event);
            }
        });
        self.lane.counts.cut += count as u64;
        self.cuts.extend(list);
        if let Some(carrier) = &self.carrier {
            let (count, list) = carrier.cut(time);
            self.lane.counts.cut += count as u64;
            self.cuts.extend(list);
        }
        self.watch_for_end(cx);
        self.end_if_done(cx);
    }

    /// Whether a stop is under way.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.phase != Phase::Serving
    }

    /// Whether connections are to end.
    pub(super) fn ends_connections(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Cut)
    }

    /// What this loop did so far.
    #[must_use]
    pub fn report(&self) -> ServerReport {
        self.lane.counts
    }

    /// How many connections this loop has.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        let carried = self
            .carrier
            .as_ref()
            .map(|carrier| carrier.open_connections());
        self.book.open_count() + carried.unwrap_or(0)
    }

    /// What was cut by a stop in this loop, up to 32 connections.
    #[must_use]
    pub fn cut_connections(&self) -> &[CutConnection] {
        &self.cuts
    }

    /// The service of this loop.
    #[must_use]
    pub fn service(&self) -> &Arc<V> {
        &self.lane.service
    }

    /// What the sessions of this loop share.
    #[must_use]
    pub fn local(&self) -> &V::Local {
        &self.lane.local
    }

    /// What the sessions of this loop share.
    pub fn local_mut(&mut self) -> &mut V::Local {
        &mut self.lane.local
    }

    /// Has this loop open its coming connections with `service`; to be called in each loop of a
    /// server. The old service [settles](Service::settle), if it does; then the new one's
    /// [`local`](Service::local) takes the place of the old one.
    ///
    /// Sessions that are open go on as they are, and are handed the new `Local` from then on. So a
    /// session must not rely on what an earlier call left in its `Local`, and keeps what it needs
    /// of its service itself (an `Arc` of the configuration).
    pub fn replace_service(&mut self, cx: &mut Context<'_, 'static, Self>, service: Arc<V>) {
        let now = self.now(cx);
        self.lane.replace_service(service, now);
        self.watch_turns(cx);
    }

    /// Has this loop obey other limits; to be called in each loop of a server, with the same ones.
    ///
    /// Connections that are beyond a smaller [`Limits::connections_max`] stay, and none is accepted
    /// until there are fewer. A time limit that runs ends as it was set; the next is the new one.
    /// [`Limits::output`] stays as it was, and [`Limits::input_bytes_max`] does not get smaller:
    /// connections may hold as much already.
    pub fn set_limits(&mut self, limits: Limits) {
        self.lane.set_limits(limits);
        self.group.room.set_connections_max(limits.connections_max);
    }

    /// The limits that this loop obeys.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.lane.limits
    }

    /// Duplicates the sockets that this loop accepts from, to hand them on: to a program that takes
    /// this one's place, say. One from which several loops accept is told by one of them. None
    /// when the server stops.
    ///
    /// Each is to be kept open until its successor accepts from it: what waits in its queue is
    /// reset when the last descriptor closes.
    ///
    /// # Errors
    ///
    /// `EMFILE`.
    pub fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        let listeners = self.listeners.iter().filter_map(rc::Weak::upgrade);
        listeners
            .filter(|socket| socket.sharing != Sharing::Duplicate)
            .map(|socket| socket.fd.try_clone())
            .collect()
    }

    /// Leaves the files of the server's Unix listeners where they are when it ends, because another
    /// process goes on listening there (a restart that hands its listeners on).
    pub fn keep_socket_files(&self) {
        for file in self.files.iter().filter_map(Weak::upgrade) {
            file.keep();
        }
    }

    /// Takes room for a connection, here or in the loop that is to have it, or has `acceptor` called when there is some.
    pub(super) fn take_place(&self, acceptor: EventId) -> Option<Place> {
        let index = self.group.choose(self.index);
        self.group.room.take(index, &self.wake_flag, acceptor)
    }

    pub(super) fn enter(&self, now: Now, place: Place) -> Entry {
        self.book.enter(now.monotonic, place)
    }

    /// The loop that a place is in, if it is another one.
    pub(super) fn other_loop(&self, place: &Place) -> Option<&LoopHandle<V>> {
        let index = place.index();
        let is_other = index != self.index;
        self.group.handles().get(index).filter(|_| is_other)
    }

    /// Whether connections that come now are dropped.
    pub(super) fn is_cut(&self) -> bool {
        self.phase == Phase::Cut
    }

    pub(super) fn note_connection(&mut self, event: EventId) {
        let at = event.slot();
        if at >= self.connections.len() {
            self.connections.resize(at + 1, None);
        }
        self.connections[at] = Some(event);
    }

    /// Notes that the connection whose handler runs ends.
    pub(super) fn forget_connection(&mut self, cx: &Context<'_, 'static, Self>) {
        if let Some(entry) = self.connections.get_mut(cx.event().slot()) {
            *entry = None;
        }
    }

    /// The time of this turn.
    #[inline]
    pub(super) fn now(&mut self, reactor: &mut Reactor<'static, Self>) -> Now {
        self.lane.now(reactor.now())
    }
}

impl<V: Service> std::fmt::Debug for ServerState<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState")
            .field("open", &self.book.open_count())
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
