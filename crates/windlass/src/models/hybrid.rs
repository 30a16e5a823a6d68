//! Hybrid: the model of loops for I/O and a pool of threads for the jobs that sessions off-load.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::jobs::Jobs;
use super::listening::BindError;
use super::multi_loop::MultiLoop;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::pool::{PoolConfig, WorkerPool};
use crate::session::Service;

/// A server on one or several event loops, and a pool that does the jobs which sessions hand out.
///
/// ```text
///   ┌──── loop 0 ────┐   …   ┌──── loop n ────┐
///   │ wait, accept,  │       │ wait, accept,  │
///   │ recv, session, │       │ recv, session, │
///   │ send           │       │ send           │
///   └────┬─────▲─────┘       └────┬─────▲─────┘
///   jobs ▼     │ results     jobs ▼     │ results
///   ┌──────────┴──────────────────┴─────┴─────┐
///   │ queue, worker 0 … worker m              │
///   └─────────────────────────────────────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | each loop's thread | the same | the same; jobs: a worker of the pool | the loop's thread |
///
/// Short requests cost what they cost in a [`SingleLoop`](super::SingleLoop), and long ones hold up
/// nobody, because their sessions give them away ([`Next::Job`](crate::session::Next::Job)). Choose it
/// when some requests compute or block and most do not. [`MultiLoop`] hands jobs to a pool too; this
/// one says how large both sides are.
///
/// # When the queue is full
///
/// A job that finds the queue full waits with its connection, from which nothing is read meanwhile,
/// and is tried again every 2 ms.
///
/// # End
///
/// As that of a [`MultiLoop`]. Jobs that still run then, of connections that were cut, are left to
/// themselves.
pub struct Hybrid<V: Service>(MultiLoop<V>);

/// Builds a [`Hybrid`].
pub type HybridBuilder<V> = ServerBuilder<V, HybridModel>;

/// What can be set of a [`Hybrid`].
#[derive(Clone, Copy, Debug)]
pub struct HybridModel {
    loops: NonZeroUsize,
    workers: Option<NonZeroUsize>,
    queue_max: Option<usize>,
}

impl<V: Service> Hybrid<V> {
    pub(super) const MODEL: HybridModel = HybridModel {
        loops: NonZeroUsize::MIN,
        workers: None,
        queue_max: None,
    };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> HybridBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }

    /// The loops, to register other sources with, to reach and to stop them.
    pub fn loops(&mut self) -> &mut MultiLoop<V> {
        &mut self.0
    }

    fn server(&self) -> &dyn Server<V> {
        &self.0
    }

    fn server_mut(&mut self) -> &mut dyn Server<V> {
        &mut self.0
    }
}

impl<V: Service> HybridBuilder<V> {
    /// Sets how many loops there are (default 1).
    #[must_use]
    pub fn loops(mut self, loops: NonZeroUsize) -> Self {
        self.model.loops = loops;
        self
    }

    /// Sets how many threads the pool has, all of which are started with the server (default: one
    /// per processor, and 4 at least). It has no effect on a pool that [is
    /// set](ServerBuilder::pool).
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.model.workers = Some(workers);
        self
    }

    /// Sets how many jobs may wait while all workers are busy (default 1024). It has no effect on a
    /// pool that [is set](ServerBuilder::pool).
    #[must_use]
    pub fn queue_max(mut self, queue_max: usize) -> Self {
        self.model.queue_max = Some(queue_max);
        self
    }

    /// Opens the sockets and the loops, and starts the threads.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, a loop can't be opened, or no thread can be started.
    pub fn build(mut self) -> Result<Hybrid<V>, BindError> {
        let HybridModel {
            loops,
            workers,
            queue_max,
        } = self.model;
        if self.pool.is_none() {
            let mut config = PoolConfig::default();
            config.threads = workers.map_or(config.threads, usize::from);
            config.threads_min = config.threads;
            config.queue_max = queue_max.unwrap_or(config.queue_max);
            self.pool = Some(WorkerPool::new(config).map_err(BindError::Pool)?);
        }
        let builder = self.with_model(MultiLoop::<V>::MODEL);
        Ok(Hybrid(builder.loops(loops).jobs(Jobs::InPool).build()?))
    }
}

serve_as_its_inner!(Hybrid);

impl<V: Service> fmt::Debug for Hybrid<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hybrid")
            .field("loops", &self.0)
            .finish_non_exhaustive()
    }
}
