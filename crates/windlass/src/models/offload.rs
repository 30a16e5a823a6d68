//! Off-loading: a service around the program's whose sessions are called by workers, while the
//! loop that drives it only reads and writes.
//!
//! ```text
//!   any loop                         WorkQueue                 workers, each with its Local
//!   recv ─▶ OffloadSession::advance ─▶ Trip { session, input } ─▶ Session::advance
//!   send ◀─ OffloadSession::advance ◀─ Desk ◀─ notifier ◀──────── { output, next }
//! ```
//!
//! # How it works
//!
//! [`advance`](crate::session::Session::advance) of the program's session is called by a worker: the session
//! travels there in a box of its own, which also holds a copy of the input and the output it makes,
//! and is used again for each trip. Meanwhile the connection is away
//! ([`Job::away`](crate::session::Job::away)): nothing is read from it, and what comes is noted. The way back is the
//! connection's desk and its notifier, whose wake-ups of the loop merge to one per burst.
//!
//! All that is rare is called in the loop's thread, with the loop's own `Local`, when the session
//! is there: [`open`](Service::open), `complete`, `expire`, `stop`. A deadline that passes while the session is away has it called when it
//! is back, if it is still over then.
//!
//! # Invariants
//!
//! 1. One thread has the session at a time: it is in the wrapper, in the queue or a worker's hands,
//!    or on the desk.
//! 2. A connection has one trip under way at most; so the limit of connections bounds the queue.
//! 3. A trip whose connection ended is dropped by whoever finds that: no box stays on a desk.
//!
//! # Cost
//!
//! Per trip: a copy of the input, one lock of the queue on each side, one of the desk on each side,
//! and a share of two wake-ups. Trips that one turn of the loop begins are queued together.

mod server;
mod session;
mod thread;
mod trip;
mod workers;

use std::sync::Arc;

pub(super) use self::server::WorkerServer;
pub(super) use self::thread::threads;
pub(super) use self::trip::{Errand, Queue};
pub(super) use self::workers::Workers;

use self::session::OffloadSession;
use self::trip::Trip;
use crate::session::{Now, Peer, Service};

/// See the module: `V`, called by the workers at `queue`.
pub(super) struct Offload<V: Service> {
    inner: Arc<V>,
    inner_settles: bool,
    queue: Arc<Queue<V>>,
}

/// What the sessions of one loop share.
pub(super) struct OffloadLocal<V: Service> {
    inner: V::Local,
    queue: Arc<Queue<V>>,
    /// Trips that begin when the turn ends.
    batch: Vec<Errand<V>>,
}

/// More trips than this do not wait for the end of the turn.
const BATCH_MAX: usize = 32;

impl<V: Service> Offload<V> {
    pub(super) fn new(inner: Arc<V>, queue: Arc<Queue<V>>) -> Self {
        Self {
            inner_settles: inner.settles(),
            inner,
            queue,
        }
    }

    /// Another service, called by the same workers.
    pub(super) fn replaced_by(&self, inner: Arc<V>) -> Self {
        Self::new(inner, Arc::clone(&self.queue))
    }

    pub(super) fn inner(&self) -> &Arc<V> {
        &self.inner
    }
}

impl<V: Service> OffloadLocal<V> {
    pub(super) fn inner(&mut self) -> &mut V::Local {
        &mut self.inner
    }

    fn begin(&mut self, trip: Box<Trip<V::Session>>) {
        self.batch.push(Errand::Trip(trip));
        if self.batch.len() >= BATCH_MAX {
            self.send();
        }
    }

    fn send(&mut self) {
        if !self.batch.is_empty() {
            self.queue.push_batch(&mut self.batch);
            // What is left finds the workers gone: the server has ended.
            self.batch.clear();
        }
    }
}

impl<V: Service> Drop for OffloadLocal<V> {
    fn drop(&mut self) {
        // It is replaced by another service's.
        self.send();
    }
}

impl<V: Service> Service for Offload<V> {
    type Local = OffloadLocal<V>;
    type Session = OffloadSession<V>;

    fn local(&self) -> OffloadLocal<V> {
        OffloadLocal {
            inner: self.inner.local(),
            queue: Arc::clone(&self.queue),
            batch: Vec::new(),
        }
    }

    fn open(&self, local: &mut OffloadLocal<V>, peer: &Peer, now: Now) -> OffloadSession<V> {
        OffloadSession::new(self.inner.open(&mut local.inner, peer, now))
    }

    /// Always: what a turn gathered is sent on.
    fn settles(&self) -> bool {
        true
    }

    fn settle(&self, local: &mut OffloadLocal<V>, now: Now) {
        local.send();
        if self.inner_settles {
            self.inner.settle(&mut local.inner, now);
        }
    }
}
