//! A crew: the threads of a server whose connections belong to no thread. Readiness of all sockets
//! comes together in one [`ThreadSet`](crate::thread_set::ThreadSet), and whichever thread is free
//! handles the next connection.
//!
//! What differs between the models of this kind is who waits (a leader or a dispatcher), and
//! whether a thread stays with a connection.
//!
//! # A stop
//!
//! ```text
//! stop ──▶ listeners are removed ──the last is closed──▶ connections are told ──the last ends──▶ over
//!          the watch knows the deadline ─────────────────────────▶ what is left is cut ──┘
//! ```
//!
//! The thread that runs the server keeps the [`watch`] and handles nothing. One that is stuck in a
//! session's call when it was cut is waited for for a second; then its peer sees the end, and it is
//! left to itself.

mod acceptor;
mod book;
mod connection;
mod held;
mod model;
mod seat;
mod server;
mod thread;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use windlass_core::{EventId, Instant, Trigger};
use windlass_sys::net::SocketFile;

use self::book::{Book, Closing};
pub(super) use self::model::crew_model;
use self::seat::Seat;
pub(super) use self::server::{CrewParts, CrewServer};
use self::watch::Watch;
use super::lane::Lane;
use super::limits::Limits;
use super::listening::ListenSocket;
use super::room::{Activates, Room};
use crate::pool::WorkerPool;
use crate::session::Service;
use crate::thread_set::{HandleSet, Life, WeakHandleSet};

/// Whether a thread stays with a connection until that waits for its peer's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// It goes on to the next one when nothing can be done at once.
    No,
    /// It blocks until the exchange is done, and does the session's jobs itself.
    UntilDone,
}

/// What all threads of a server share.
pub(super) struct Crew<V: Service> {
    handles: HandleSet<Hand<V>>,
    book: Arc<Book<V>>,
    room: Arc<Room>,
    doorbell: Arc<Doorbell<V>>,
    /// For sessions' jobs, unless threads do them themselves.
    pool: Option<WorkerPool>,
    stay: Stay,
    /// How connections are watched: for edges where the back end can, which costs no call to arm
    /// them again.
    trigger: Trigger,
    limits: Mutex<Limits>,
    acceptors: Mutex<Vec<EventId>>,
    /// What they accept from.
    listeners: Vec<Weak<ListenSocket>>,
    /// Those of Unix listeners.
    files: Vec<Weak<SocketFile>>,
    watch: Watch,
    /// One for each thread that calls sessions.
    seats: Box<[Seat<V>]>,
}

/// What one thread of the crew has for itself: the state that handlers are called with.
pub(super) struct Hand<V: Service> {
    lane: Lane<V>,
    crew: Arc<Crew<V>>,
    index: usize,
    settles: bool,
}

/// What one who has room for a connection rings.
struct Doorbell<V: Service>(WeakHandleSet<Hand<V>>);

impl<V: Service> Crew<V> {
    fn limits(&self) -> Limits {
        *lock(&self.limits)
    }

    fn set_limits(&self, limits: Limits) {
        *lock(&self.limits) = limits;
        self.room.set_connections_max(limits.connections_max);
    }

    fn note_acceptor(&self, event: EventId) {
        lock(&self.acceptors).push(event);
    }

    /// Begins a graceful stop; called again, cuts what is left.
    pub(super) fn stop(&self) {
        if self.book.begin_stop() == Closing::Already {
            self.cut();
            return;
        }
        let acceptors = std::mem::take(&mut *lock(&self.acceptors));
        for acceptor in acceptors {
            // One that runs closes its listener when it is back.
            let _ = self.handles.remove_handle(acceptor);
        }
        self.watch.note_stop(self.limits().stop_deadline);
        self.book.note_listener_closed();
    }

    /// Ends all connections, and the set: threads end when they have done what they do. A panic of a
    /// session that is dropped is passed on when all is cut.
    fn cut(&self) {
        let mut panicked = None;
        for noted in self.book.begin_cut() {
            // It drops the session, if no thread is at it.
            let remove = AssertUnwindSafe(|| self.handles.remove_handle(noted.event));
            match catch_unwind(remove) {
                // It ends when it is back.
                Ok(Ok(false)) => self.book.note_lasting(noted.socket),
                // If it was gone, it has ended by itself.
                Ok(_) => {}
                Err(panic) => panicked = Some(panic),
            }
        }
        self.book.ring_all();
        for seat in &self.seats {
            seat.cut_job();
        }
        self.handles.stop();
        self.watch.note_cut();
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        let listeners = self.listeners.iter().filter_map(Weak::upgrade);
        listeners.map(|socket| socket.fd.try_clone()).collect()
    }

    fn keep_socket_files(&self) {
        for file in self.files.iter().filter_map(Weak::upgrade) {
            file.keep();
        }
    }
}

impl<V: Service> Hand<V> {
    /// To be called by the thread that it is for.
    fn new(crew: Arc<Crew<V>>, index: usize, service: Arc<V>) -> Self {
        let lane = Lane::new(service, crew.limits());
        let settles = lane.service.settles();
        Self {
            lane,
            crew,
            index,
            settles,
        }
    }

    fn seat(&self) -> &Seat<V> {
        &self.crew.seats[self.index]
    }

    /// Lets the service settle, if it does.
    fn settle(&mut self, now: Instant) {
        if self.settles {
            let now = self.lane.now(now);
            self.lane.settle(now);
        }
    }

    /// Calls what was posted to this thread.
    fn run_posts(&mut self) {
        for visit in self.seat().take_posts() {
            visit(&mut thread::CrewThread(self));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread does beside handling connections.
struct HandLife;

impl<V: Service> Life<Hand<V>> for HandLife {
    #[inline]
    fn rests(&mut self, hand: &Hand<V>) -> bool {
        hand.settles
    }

    fn rest(&mut self, hand: &mut Hand<V>) {
        let now = hand.crew.handles.clock();
        hand.settle(now);
    }

    fn called(&mut self, hand: &mut Hand<V>) {
        hand.run_posts();
    }
}

impl<V: Service> Activates for Doorbell<V> {
    fn activate(&self, event: EventId) {
        if let Some(handles) = self.0.upgrade() {
            // Gone: the server stops.
            let _ = handles.activate(event);
        }
    }
}

impl<V: Service> std::fmt::Debug for Doorbell<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doorbell").finish_non_exhaustive()
    }
}
