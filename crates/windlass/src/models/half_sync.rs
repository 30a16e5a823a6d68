//! Half-sync/half-async: the model of an asynchronous I/O thread before synchronous workers.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::group::{Accepting, Dealing};
use super::listening::BindError;
use super::multi_loop::MultiLoop;
use super::offload::WorkerServer;
use super::server::{ModelKind, Server, serve_as_its_inner};
use super::single_loop::Serving;
use super::work_queue::Dispatch;
use crate::session::Service;

/// A server of an I/O thread, which accepts, reads, queues requests and writes answers, and of
/// workers, which compute and may block.
///
/// ```text
///            ┌────────────── I/O thread ──────────────┐
///      wait ─┤ accept   recv ─▶ queue    send  timers ├─ wait …
///            └──────────────────┬─────────▲───────────┘
///                     requests  ▼         │ answers, one wake-up per burst
///            ┌──────────────────┴─────────┴───────────┐
///            │ worker 0: session   …   worker n       │   each with its Local
///            └────────────────────────────────────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the I/O thread | the same | a worker; jobs too, with the shared queue | the I/O thread |
///
/// The pattern of Schmidt and Cranor (Half-Sync/Half-Async, 1996): simple, blocking code in the
/// workers, none of it in the thread that all connections depend on. Choose it when requests take
/// long or block and the sessions do not hand that out as jobs. It costs a hand-over to another
/// thread per request, and another back; a session that answers at once is cheaper in a
/// [`SingleLoop`](super::SingleLoop).
///
/// # Who writes
///
/// The I/O thread. The session has to come back in any case, as its connection's input and time
/// limits are there; and the answers of a burst come back with one wake-up. Measured with 64
/// connections on one core, a request makes 2.36 system calls: recv, send, 0.26 futex(2) to wake
/// workers, 0.06 waits, and 0.03 writes for the way back, which is all that a worker's own `send`
/// could save.
///
/// # Which worker
///
/// By [`HalfSyncDispatch`]: whichever is free, each in turn, or the one that has the connection.
///
/// # Jobs
///
/// With a shared queue a session's job ([`Next::Job`](crate::session::Next::Job)) is done by a
/// worker, unless a pool [was set](ServerBuilder::pool); its connection keeps its deadline and its
/// stop meanwhile. With a queue per worker or loops of their own, jobs are done by a pool: a job that
/// does not end would hold up all that is given to that worker.
///
/// # Time
///
/// While a session is called by a worker, its deadline, its notifications and a stop wait until it
/// is back. The rare calls other than [`advance`](crate::session::Session::advance) are made in the
/// I/O thread, with a [`Local`](Service::Local) of its own, and must not block.
///
/// # End
///
/// [`run`](Self::run) returns when the connections have ended and the workers have settled. Workers
/// that are in a job, or for a second and more in a call whose connection was cut, are left to
/// themselves.
pub struct HalfSyncHalfAsync<V: Service>(Inner<V>);

enum Inner<V: Service> {
    OwnLoops(MultiLoop<V>),
    Workers(WorkerServer<V>),
}

/// Builds a [`HalfSyncHalfAsync`].
pub type HalfSyncBuilder<V> = ServerBuilder<V, HalfSyncModel>;

/// What is special to a [`HalfSyncHalfAsync`].
#[derive(Clone, Copy, Debug)]
pub struct HalfSyncModel {
    workers: Option<NonZeroUsize>,
    dispatch: HalfSyncDispatch,
}

/// How the I/O thread of a [`HalfSyncHalfAsync`] gives work to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HalfSyncDispatch {
    /// Whole connections: each worker has a loop of its own, reads and writes itself, and the I/O
    /// thread only accepts (half-sync/half-reactive). No hand-over per request; but a session that
    /// blocks holds up the connections of its worker.
    OwnLoops(Dealing),
    /// Requests, through a queue.
    Requests(Dispatch),
}

impl Default for HalfSyncDispatch {
    /// Requests, through the shared queue.
    fn default() -> Self {
        Self::Requests(Dispatch::SharedQueue)
    }
}

/// Workers if nothing else is said. More than processors, as they may block.
const WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

impl<V: Service> HalfSyncHalfAsync<V> {
    pub(super) const MODEL: HalfSyncModel = HalfSyncModel {
        workers: None,
        dispatch: HalfSyncDispatch::Requests(Dispatch::SharedQueue),
    };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> HalfSyncBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }
}

impl<V: Service> HalfSyncBuilder<V> {
    /// Sets how many workers there are (default 4).
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.model.workers = Some(workers);
        self
    }

    /// Sets how work is given to them (default: requests, through the shared queue).
    #[must_use]
    pub fn dispatch(mut self, dispatch: HalfSyncDispatch) -> Self {
        self.model.dispatch = dispatch;
        self
    }

    /// Opens the sockets and the loops, and starts the workers.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, a loop can't be opened, or no thread can be started.
    ///
    /// # Panics
    ///
    /// Passes on the panic of a service that makes its shared part.
    pub fn build(self) -> Result<HalfSyncHalfAsync<V>, BindError> {
        let HalfSyncModel { workers, dispatch } = self.model;
        let count = workers.unwrap_or(WORKERS);
        let dispatch = match dispatch {
            HalfSyncDispatch::Requests(dispatch) => dispatch,
            HalfSyncDispatch::OwnLoops(dealing) => {
                let loops = self
                    .with_model(MultiLoop::<V>::MODEL)
                    .loops(count.saturating_add(1))
                    .accepting(Accepting::AcceptorOnly(dealing));
                return Ok(HalfSyncHalfAsync(Inner::OwnLoops(loops.build()?)));
            }
        };
        let server = self.build_with_workers(count, dispatch, Serving::ByReadiness)?;
        Ok(HalfSyncHalfAsync(Inner::Workers(server)))
    }
}

impl<V: Service> HalfSyncHalfAsync<V> {
    fn server(&self) -> &dyn Server<V> {
        match &self.0 {
            Inner::OwnLoops(loops) => loops,
            Inner::Workers(server) => server,
        }
    }

    fn server_mut(&mut self) -> &mut dyn Server<V> {
        match &mut self.0 {
            Inner::OwnLoops(loops) => loops,
            Inner::Workers(server) => server,
        }
    }
}

serve_as_its_inner!(HalfSyncHalfAsync);

impl<V: Service> fmt::Debug for HalfSyncHalfAsync<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HalfSyncHalfAsync")
            .field("addrs", &self.local_addrs())
            .finish_non_exhaustive()
    }
}
