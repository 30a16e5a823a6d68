//! What the connections of a client share: the requests, and the connections of each origin.
//!
//! # Invariants
//!
//! - The table is borrowed for a look or a change only: never while the loop is called or a value
//!   of the program is dropped, as both may come back here.
//! - A request has one entry, from `submit` until its receiver is called or dropped. Who finds no
//!   entry for an exchange of its own has been cancelled.
//! - [`Hub::open_count`] counts connections and those in the making; each gives its place back
//!   once, see [`Slot::release`].
//! - Each request has a timer event. It keeps the loop running, ends the request when its time is
//!   over, and is the place from which the receiver is called.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use windlass::event_loop::{Context, Reactor};
use windlass::pool::{JobHandle, WorkerPool};
use windlass::{Disposition, EventId, Instant};

use crate::client::config::ClientConfig;
use crate::client::driver::{RequestId, ResponseHandler};
use crate::client::error::{ClientError, ClientErrorKind, RequestError};
use crate::client::exchange::{Answer, Delivery, Exchange};
use crate::client::origin::Origin;
use crate::client::request::ClientRequest;
use crate::client::response::ClientResponse;
use crate::client::transport::TlsSettings;
use crate::method::Method;

mod open;

pub(super) use self::open::Attempt;

/// Called once with the collected response.
type Done<'l, S> =
    Box<dyn FnOnce(&mut S, &mut Context<'_, 'l, S>, Result<ClientResponse, ClientError>) + 'l>;

/// Who takes the response.
pub(super) enum Receiver<'l, S> {
    Collected(Done<'l, S>),
    Streamed(Box<dyn ResponseHandler<'l, S> + 'l>),
}

pub(super) struct Core<'l, S> {
    pub(super) config: ClientConfig,
    pub(super) tls: TlsSettings,
    pub(super) pool: WorkerPool,
    table: RefCell<Table<'l, S>>,
    /// The buffer that all connections read into.
    pub(super) scratch: Cell<Vec<u8>>,
    /// Whether a [`pump`](Self::pump) runs, which goes on with what comes up meanwhile.
    pumping: Cell<bool>,
}

struct Table<'l, S> {
    next_id: u64,
    requests: HashMap<RequestId, Entry<'l, S>>,
    hubs: HashMap<Origin, Hub<'l>>,
    queued_count: usize,
    idle_count: usize,
    /// Counts what was kept, to find the oldest.
    kept_count: u64,
    /// No handle is left: nothing is kept any more.
    closed: bool,
}

struct Entry<'l, S> {
    origin: Origin,
    timer: EventId,
    place: Place<'l>,
    /// Away while it is called.
    receiver: Option<Receiver<'l, S>>,
    /// Why the request has failed, or what came: it is to be told.
    result: Option<Result<Answer, ClientErrorKind>>,
}

/// Where a request is.
enum Place<'l> {
    /// Nowhere: it only waits to be told its result.
    Over,
    Link(Rc<Slot<'l>>),
    Queued,
    Resolving {
        event: EventId,
        job: JobHandle,
    },
}

/// The connections to one origin.
#[derive(Default)]
struct Hub<'l> {
    open_count: usize,
    /// The one that was used last is at the end, and is used first.
    idle: Vec<Rc<Slot<'l>>>,
    queue: VecDeque<Box<Exchange<'l>>>,
}

/// What is known of a connection from outside of its handler.
pub(super) struct Slot<'l> {
    pub(super) origin: Origin,
    pub(super) socket: Rc<OwnedFd>,
    pub(super) event: Cell<Option<EventId>>,
    /// The exchange that it is to carry next.
    pub(super) mailbox: Cell<Option<Box<Exchange<'l>>>>,
    pub(super) resumed: Cell<bool>,
    /// Whether its place among the open connections was given back.
    released: Cell<bool>,
    kept: Cell<u64>,
}

impl<'l> Slot<'l> {
    pub(super) fn new(origin: Origin, socket: Rc<OwnedFd>) -> Self {
        Self {
            origin,
            socket,
            event: Cell::new(None),
            mailbox: Cell::new(None),
            resumed: Cell::new(false),
            released: Cell::new(false),
            kept: Cell::new(0),
        }
    }

    /// The place goes to another connection that is made for the same request.
    pub(super) fn hand_over(&self) {
        self.released.set(true);
    }
}

/// What a request whose turn it is gets.
enum Chance<'l> {
    Kept(Rc<Slot<'l>>, Box<Exchange<'l>>),
    Fresh(Box<Exchange<'l>>),
}

impl<'l, S: 'l> Core<'l, S> {
    pub(super) fn new(config: ClientConfig, pool: WorkerPool) -> Self {
        #[cfg(feature = "client-tls")]
        let tls = TlsSettings::new(config.tls.as_ref());
        #[cfg(not(feature = "client-tls"))]
        let tls = TlsSettings;
        Self {
            config,
            tls,
            pool,
            table: RefCell::new(Table {
                next_id: 0,
                requests: HashMap::new(),
                hubs: HashMap::new(),
                queued_count: 0,
                idle_count: 0,
                kept_count: 0,
                closed: false,
            }),
            scratch: Cell::default(),
            pumping: Cell::new(false),
        }
    }

    /// Takes a request on.
    pub(super) fn submit(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        request: ClientRequest<'l>,
        receiver: Receiver<'l, S>,
        delivery: Delivery,
    ) -> Result<RequestId, ClientError> {
        let origin = request.origin.clone();
        if request.method == Method::Connect {
            let kind = ClientErrorKind::Request(RequestError::Method);
            return Err(ClientError::new(&origin, kind));
        }
        let queue_max = self.config.queue_max;
        if self.must_wait(&origin) && self.table.borrow().queued_count >= queue_max {
            return Err(ClientError::new(
                &origin,
                ClientErrorKind::Busy { queue_max },
            ));
        }
        let id = self.next_id();
        let core = Rc::clone(self);
        let timer = cx
            .timer(move |state, cx| core.wake(state, cx, id))
            .map_err(|error| ClientError::new(&origin, ClientErrorKind::Loop(error.kind)))?;
        cx.set_label(timer, "HTTP client: a request");
        let deadline = match request.timeout.or(self.config.timeouts.request) {
            Some(timeout) => cx.fresh_now() + timeout,
            None => Instant::FAR,
        };
        // It exists, as it was just made.
        let _ = cx.arm_at(timer, deadline);
        let entry = Entry {
            origin: origin.clone(),
            timer,
            place: Place::Queued,
            receiver: Some(receiver),
            result: None,
        };
        let exchange = Box::new(Exchange::new(id, request, delivery));
        let mut table = self.table.borrow_mut();
        table.requests.insert(id, entry);
        table.queued_count += 1;
        let hub = table.hubs.entry(origin.clone()).or_default();
        hub.queue.push_back(exchange);
        drop(table);
        self.pump(cx, &origin);
        Ok(id)
    }

    fn next_id(&self) -> RequestId {
        let mut table = self.table.borrow_mut();
        table.next_id += 1;
        RequestId(table.next_id)
    }

    fn must_wait(&self, origin: &Origin) -> bool {
        let table = self.table.borrow();
        table.hubs.get(origin).is_some_and(|hub| {
            !hub.queue.is_empty()
                || (hub.idle.is_empty() && hub.open_count >= self.connections_max())
        })
    }

    fn connections_max(&self) -> usize {
        self.config.connections_per_origin.max(1)
    }

    /// Gives requests that wait for `origin` to connections, kept or new, as far as there may be.
    pub(super) fn pump(self: &Rc<Self>, cx: &mut Reactor<'l, S>, origin: &Origin) {
        // A connection that can't be made calls this again, for the same origin.
        if self.pumping.replace(true) {
            return;
        }
        while let Some(chance) = self.next_chance(origin) {
            match chance {
                Chance::Kept(slot, exchange) => {
                    slot.mailbox.set(Some(exchange));
                    if let Some(event) = slot.event.get() {
                        // A connection that is gone is no longer among the idle ones.
                        let _ = cx.activate(event, 1);
                    }
                }
                Chance::Fresh(exchange) => self.open(cx, exchange),
            }
        }
        self.pumping.set(false);
    }

    fn next_chance(&self, origin: &Origin) -> Option<Chance<'l>> {
        let mut table = self.table.borrow_mut();
        let table = &mut *table;
        let hub = table.hubs.get_mut(origin)?;
        let Some(first) = hub.queue.front() else {
            if hub.open_count == 0 {
                table.hubs.remove(origin);
            }
            return None;
        };
        let may_open = hub.open_count < self.connections_max();
        // After a kept connection that had closed, the others may have as well.
        let slot = if first.retried && may_open {
            None
        } else {
            hub.idle.pop()
        };
        if slot.is_none() && !may_open {
            return None;
        }
        let exchange = hub.queue.pop_front()?;
        table.queued_count -= 1;
        let entry = table.requests.get_mut(&exchange.id);
        Some(match slot {
            Some(slot) => {
                table.idle_count -= 1;
                if let Some(entry) = entry {
                    entry.place = Place::Link(Rc::clone(&slot));
                }
                Chance::Kept(slot, exchange)
            }
            None => {
                hub.open_count += 1;
                Chance::Fresh(exchange)
            }
        })
    }

    /// Puts an exchange in the queue of its origin: at the front, it was there before.
    pub(super) fn requeue(&self, exchange: Box<Exchange<'l>>) {
        let mut table = self.table.borrow_mut();
        let table = &mut *table;
        let origin = exchange.request.origin.clone();
        if let Some(entry) = table.requests.get_mut(&exchange.id) {
            entry.place = Place::Queued;
            entry.origin = origin.clone();
            table.queued_count += 1;
            table
                .hubs
                .entry(origin)
                .or_default()
                .queue
                .push_front(exchange);
        }
    }

    /// Keeps a connection for the next request. Answers whether it is kept.
    pub(super) fn keep(&self, cx: &mut Reactor<'l, S>, slot: &Rc<Slot<'l>>) -> bool {
        let mut table = self.table.borrow_mut();
        let table = &mut *table;
        let waits = table
            .hubs
            .get(&slot.origin)
            .is_some_and(|hub| !hub.queue.is_empty());
        if table.closed || (self.config.idle_connections_max == 0 && !waits) {
            return false;
        }
        table.kept_count += 1;
        slot.kept.set(table.kept_count);
        let hub = table.hubs.entry(slot.origin.clone()).or_default();
        hub.idle.push(Rc::clone(slot));
        table.idle_count += 1;
        if table.idle_count <= self.config.idle_connections_max || waits {
            return true;
        }
        let oldest = table
            .hubs
            .values()
            .filter_map(|hub| hub.idle.first())
            .min_by_key(|slot| slot.kept.get())
            .cloned();
        if let Some(oldest) = oldest {
            table.release(&oldest);
            if let Some(event) = oldest.event.get() {
                // By itself, as its handler may be the caller.
                let _ = cx.activate(event, 1);
            }
        }
        true
    }

    /// Whether a connection was told to go.
    pub(super) fn is_released(slot: &Slot<'l>) -> bool {
        slot.released.get()
    }

    /// Takes the receiver of a streamed response, to call it.
    pub(super) fn borrow_handler(
        &self,
        id: RequestId,
    ) -> Option<Box<dyn ResponseHandler<'l, S> + 'l>> {
        let mut table = self.table.borrow_mut();
        let entry = table.requests.get_mut(&id)?;
        match entry.receiver.take() {
            Some(Receiver::Streamed(handler)) => Some(handler),
            other => {
                entry.receiver = other;
                None
            }
        }
    }

    /// Gives it back; answers whether the request is still there.
    pub(super) fn return_handler(
        &self,
        id: RequestId,
        handler: Box<dyn ResponseHandler<'l, S> + 'l>,
    ) -> bool {
        let mut table = self.table.borrow_mut();
        let Some(entry) = table.requests.get_mut(&id) else {
            drop(table);
            drop(handler);
            return false;
        };
        entry.receiver = Some(Receiver::Streamed(handler));
        true
    }

    /// Notes what a request has come to; its receiver is called in a turn to come.
    pub(super) fn finish(
        &self,
        cx: &mut Reactor<'l, S>,
        id: RequestId,
        result: Result<Answer, ClientErrorKind>,
    ) {
        let mut table = self.table.borrow_mut();
        if let Some(entry) = table.requests.get_mut(&id) {
            entry.result = Some(result);
            entry.place = Place::Over;
            let timer = entry.timer;
            drop(table);
            // It exists as long as the entry.
            let _ = cx.activate(timer, 1);
        }
    }

    /// A request's timer: its time is over, or there is a result to tell.
    fn wake(
        self: &Rc<Self>,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        id: RequestId,
    ) -> Disposition {
        let Some(mut entry) = self.table.borrow_mut().requests.remove(&id) else {
            return Disposition::Remove;
        };
        let result = entry.result.take().unwrap_or_else(|| {
            self.detach(cx, id, &entry.origin, entry.place);
            Err(ClientErrorKind::RequestTimeout)
        });
        let fail = |kind| ClientError::new(&entry.origin, kind);
        match (entry.receiver, result) {
            (Some(Receiver::Collected(done)), Ok(Answer::Collected(response))) => {
                done(state, cx, Ok(*response));
            }
            (Some(Receiver::Collected(done)), Err(kind)) => done(state, cx, Err(fail(kind))),
            (Some(Receiver::Streamed(handler)), Ok(Answer::Streamed(trailers))) => {
                handler.end(state, cx, Ok(trailers));
            }
            (Some(Receiver::Streamed(handler)), Err(kind)) => {
                handler.end(state, cx, Err(fail(kind)));
            }
            // A response is made for its receiver; none is away while a timer runs.
            _ => debug_assert!(false, "a response that nobody takes"),
        }
        Disposition::Remove
    }

    /// Takes a request away from where it is, whose connection ends with it.
    fn detach(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        id: RequestId,
        origin: &Origin,
        place: Place<'l>,
    ) {
        match place {
            Place::Over => return,
            Place::Queued => {
                let removed = self.take_queued(id, origin);
                // What the program gave is dropped when the table is free again.
                return drop(removed);
            }
            Place::Resolving { event, job } => {
                cx.remove(event);
                // It is of no interest any more how far it came.
                let _ = job.cancel();
                self.give_back(origin);
            }
            Place::Link(slot) => {
                self.release(&slot);
                drop(slot.mailbox.take());
                if let Some(event) = slot.event.get() {
                    cx.remove(event);
                }
            }
        }
        self.pump(cx, origin);
    }

    fn take_queued(&self, id: RequestId, origin: &Origin) -> Option<Box<Exchange<'l>>> {
        let mut table = self.table.borrow_mut();
        let hub = table.hubs.get_mut(origin)?;
        let at = hub.queue.iter().position(|exchange| exchange.id == id)?;
        let removed = hub.queue.remove(at);
        table.queued_count -= usize::from(removed.is_some());
        removed
    }

    /// Gives the place back that a connection in the making has, which has no slot yet.
    pub(super) fn give_back(&self, origin: &Origin) {
        if let Some(hub) = self.table.borrow_mut().hubs.get_mut(origin) {
            hub.open_count -= 1;
        }
    }

    pub(super) fn cancel(self: &Rc<Self>, cx: &mut Reactor<'l, S>, id: RequestId) -> bool {
        let entry = self.table.borrow_mut().requests.remove(&id);
        let Some(entry) = entry else {
            return false;
        };
        cx.remove(entry.timer);
        self.detach(cx, id, &entry.origin, entry.place);
        drop(entry.receiver);
        true
    }

    pub(super) fn resume(&self, cx: &mut Reactor<'l, S>, id: RequestId) -> bool {
        let slot = match self
            .table
            .borrow()
            .requests
            .get(&id)
            .map(|entry| &entry.place)
        {
            Some(Place::Link(slot)) => Rc::clone(slot),
            _ => return false,
        };
        let Some(event) = slot.event.get() else {
            return false;
        };
        slot.resumed.set(true);
        cx.enable(event).is_ok() && cx.activate(event, 1).is_ok()
    }

    /// Closes all idle connections; answers whether there were any.
    pub(super) fn close_idle(&self, cx: &mut Reactor<'l, S>) -> bool {
        let slots = self.take_idle();
        for slot in &slots {
            if let Some(event) = slot.event.get() {
                cx.remove(event);
            }
        }
        !slots.is_empty()
    }

    fn take_idle(&self) -> Vec<Rc<Slot<'l>>> {
        let mut table = self.table.borrow_mut();
        let slots: Vec<_> = table
            .hubs
            .values()
            .flat_map(|hub| hub.idle.iter().cloned())
            .collect();
        for slot in &slots {
            table.release(slot);
        }
        slots
    }

    pub(super) fn pending_count(&self) -> usize {
        self.table.borrow().requests.len()
    }

    pub(super) fn idle_count(&self) -> usize {
        self.table.borrow().idle_count
    }
}

/// What is called when things are dropped.
impl<'l, S> Core<'l, S> {
    /// Gives a connection's place back.
    pub(super) fn release(&self, slot: &Slot<'l>) {
        self.table.borrow_mut().release(slot);
    }

    /// No handle of the client is left. Answers the idle connections.
    pub(super) fn close(&self) -> Vec<Rc<Slot<'l>>> {
        let mut table = self.table.borrow_mut();
        table.closed = true;
        table
            .hubs
            .values()
            .flat_map(|hub| hub.idle.iter().cloned())
            .collect()
    }

    /// Whether a request is not on this connection any more.
    pub(super) fn is_elsewhere(&self, id: RequestId, slot: &Slot<'l>) -> bool {
        match self
            .table
            .borrow()
            .requests
            .get(&id)
            .map(|entry| &entry.place)
        {
            Some(Place::Link(other)) => !std::ptr::eq(&raw const **other, slot),
            _ => true,
        }
    }

    /// Drops a request whose connection is gone; its timer finds that out.
    pub(super) fn forget(&self, id: RequestId) {
        let entry = self.table.borrow_mut().requests.remove(&id);
        // What the program gave is dropped when the table is free again.
        drop(entry);
    }
}

impl<'l, S> Table<'l, S> {
    /// Gives a connection's place back, once; it is not idle any more either.
    fn release(&mut self, slot: &Slot<'l>) {
        if slot.released.replace(true) {
            return;
        }
        let Some(hub) = self.hubs.get_mut(&slot.origin) else {
            return;
        };
        hub.open_count -= 1;
        if let Some(at) = hub
            .idle
            .iter()
            .position(|other| std::ptr::eq(&raw const **other, slot))
        {
            hub.idle.remove(at);
            self.idle_count -= 1;
        }
        if hub.open_count == 0 && hub.queue.is_empty() {
            self.hubs.remove(&slot.origin);
        }
    }
}
