//! Multi loop: the model of one reactor thread per core.

mod threads;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use self::threads::{LoopEnd, LoopThreads};
use crate::event_loop::{Reactor, RunError, SlowHandler};
use crate::models::builder::ServerBuilder;
use crate::models::group::{Accepting, Group};
use crate::models::handle::{LoopHandle, StopHandle};
use crate::models::jobs::Jobs;
use crate::models::listening::BindError;
use crate::models::report::{CutConnection, ServerReport};
use crate::models::server::{ModelKind, Server, ThreadHandle, methods_of_a_server};
use crate::models::single_loop::{ServerLoop, ServerState};
use crate::session::Service;

/// A server on several event loops, one thread each: every loop accepts, reads, computes and
/// writes for connections of its own.
///
/// ```text
///            kernel divides the connections of an address (SO_REUSEPORT)
///             │                        │                        │
///    ┌──── loop 0 ────┐       ┌──── loop 1 ────┐       ┌──── loop n ────┐
///    │ wait, accept,  │       │ wait, accept,  │       │ wait, accept,  │
///    │ recv, session, │       │ recv, session, │       │ recv, session, │
///    │ send; signals  │       │ send           │       │ send           │
///    │ Local          │       │ Local          │       │ Local          │
///    └───────┬────────┘       └───────┬────────┘       └───────┬────────┘
///            └───────── jobs ─────────┼────────────────────────┘
///                              one worker pool
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | each loop's thread, for its own connections | the same | the same; jobs: a worker of the pool | the loop's thread |
///
/// A connection stays in the loop that opened it, so that a request costs what it costs in a
/// [`SingleLoop`](super::SingleLoop), without a lock; what loops share is the service, the pool and
/// the count of connections. Choose it when answers are short and one core is not enough. Its weakness: connections are divided by
/// number and not by load, so that a loop whose connections are busy may have more to do than
/// another.
///
/// # Listeners
///
/// For an address each loop has a socket of its own, among which the kernel divides the connections
/// by a hash of the two addresses. Unix sockets and listeners that were handed in can't be divided:
/// the loops accept from one socket. All loops that wait are woken by a connection then
/// (`EPOLLEXCLUSIVE` would need a registration that can't be changed afterwards), and one gets it;
/// a loop that is busy leaves it to the others. With [`Accepting::Acceptor`] the first loop accepts
/// for all instead.
///
/// # Stop and failure
///
/// The thread that calls [`run`](Self::run) runs the first loop. A stop closes the listeners of all
/// loops, then ends the connections of all with one deadline.
/// If one loop fails or panics, the others cut their connections and [`run`](Self::run) passes the
/// error or the panic on. The same if a handler ends one loop by itself
/// ([`Reactor::stop`]), without an error.
pub struct MultiLoop<V: Service> {
    first: ServerLoop<V>,
    threads: LoopThreads,
    group: Arc<Group<V>>,
    addrs: Vec<SocketAddr>,
    /// Of the loops but the first, when they have ended.
    ended: LoopEnd,
}

/// Builds a [`MultiLoop`].
pub type MultiLoopBuilder<V> = ServerBuilder<V, MultiLoopModel>;

/// What can be set of a [`MultiLoop`].
#[derive(Clone, Copy, Debug)]
pub struct MultiLoopModel {
    loops: Option<NonZeroUsize>,
    accepting: Accepting,
    jobs: Jobs,
}

impl<V: Service> MultiLoop<V> {
    pub(super) const MODEL: MultiLoopModel = MultiLoopModel {
        loops: None,
        accepting: Accepting::ReusePort,
        jobs: Jobs::InPool,
    };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> MultiLoopBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }

    /// The first loop, which runs in the thread that calls [`run`](Self::run), to register other
    /// sources with: signals, timers.
    pub fn reactor(&mut self) -> &mut Reactor<'static, ServerState<V>> {
        &mut self.first.event_loop
    }

    /// Reaches the server's loops from any thread or handler, the first one first. What is posted
    /// before the server runs is called when it does.
    #[must_use]
    pub fn handles(&self) -> Vec<LoopHandle<V>> {
        self.group.handles().to_vec()
    }
}

impl<V: Service> MultiLoopBuilder<V> {
    /// Sets how many loops there are (default: one per processor that this process may use).
    #[must_use]
    pub fn loops(mut self, loops: NonZeroUsize) -> Self {
        self.model.loops = Some(loops);
        self
    }

    /// Sets how the loops come by their connections.
    #[must_use]
    pub fn accepting(mut self, accepting: Accepting) -> Self {
        self.model.accepting = accepting;
        self
    }

    /// Sets where the sessions' jobs are done (default: in the pool).
    #[must_use]
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.model.jobs = jobs;
        self
    }

    /// Opens the sockets and the loops, and starts the threads of all loops but the first. They
    /// serve when [`MultiLoop::run`] is called.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, a loop can't be opened, or no thread can be started.
    pub fn build(mut self) -> Result<MultiLoop<V>, BindError> {
        let loops = self.model.loops.map_or_else(
            || thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        );
        let connections_max = self.limits.connections_max;
        let group = Arc::new(Group::new(loops, connections_max, self.model.accepting));
        let acceptors = match self.model.accepting {
            Accepting::Acceptor(_) | Accepting::AcceptorOnly(_) => 1,
            Accepting::ReusePort => loops,
        };
        let opened = std::mem::take(&mut self.listening).open(acceptors)?;
        let jobs = self.job_site(self.model.jobs)?;
        let parts = self.parts(&group, &opened, jobs);
        let mut sockets = opened.loops.into_iter();
        let mut next_sockets = || sockets.next().unwrap_or_default();
        let own = next_sockets();
        let mut first = ServerLoop::open(parts(0), self.config.clone(), own)?;
        // A loop without connections or listeners may have to wait for others.
        first.event_loop.hold();
        let mut handles = vec![first.handle()];
        let mut threads = LoopThreads::default();
        for index in 1..loops {
            let (parts, config) = (parts(index), self.config.clone());
            handles.push(threads.add(parts, config, next_sockets())?);
        }
        group.set_handles(handles);
        Ok(MultiLoop {
            first,
            threads,
            group,
            addrs: opened.addrs,
            ended: LoopEnd::default(),
        })
    }
}

methods_of_a_server!(MultiLoop);

impl<V: Service> Server<V> for MultiLoop<V> {
    fn kind(&self) -> ModelKind {
        ModelKind::MultiLoop
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    fn stop_handle(&self) -> StopHandle {
        Group::stop_handle(&self.group)
    }

    fn threads(&self) -> Vec<ThreadHandle<V>> {
        self.group.threads()
    }

    fn run(&mut self) -> Result<ServerReport, RunError> {
        if self.threads.start() {
            // Unwind safety: the loop is as after any panic that leaves its run; it is not run again.
            let ran = catch_unwind(AssertUnwindSafe(|| self.first.run()));
            // All others have ended, unless this one failed or was ended by a handler.
            self.group.cut();
            let joined = self.threads.join();
            // Together they are to blame: the first loop's is told, the others' else.
            ran.unwrap_or_else(|panic| resume_unwind(panic))?;
            self.ended = joined?;
        }
        Ok(self.ended.report + self.first.state.report())
    }

    fn cut_connections(&self) -> Vec<CutConnection> {
        let own = self.first.state.cut_connections();
        own.iter().chain(&self.ended.cuts).copied().collect()
    }

    fn slow_handlers(&self) -> Vec<SlowHandler> {
        let own = self.first.event_loop.slow_handlers();
        own.chain(&self.ended.slow_handlers).cloned().collect()
    }
}

impl<V: Service> fmt::Debug for MultiLoop<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLoop")
            .field("addrs", &self.addrs)
            .field("loops", &self.group.handles().len())
            .finish_non_exhaustive()
    }
}
