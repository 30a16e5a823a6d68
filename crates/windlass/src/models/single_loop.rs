//! Single loop: the model in which one reactor thread does everything.

mod acceptor;
mod book;
mod loop_connection;
mod server_loop;
mod state;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_sys::net::UnixOptions;

pub(super) use self::server_loop::ServerLoop;
pub(super) use self::state::LoopParts;
pub use self::state::ServerState;

use crate::event_loop::{LoopConfig, Reactor, RunError};
use crate::models::group::{Accepting, Group};
use crate::models::handle::{LoopHandle, StopHandle};
use crate::models::limits::Limits;
use crate::models::listening::{BindError, Listening, Opened};
use crate::models::report::{CutConnection, ServerReport};
use crate::pool::{PoolConfig, WorkerPool};
use crate::session::Service;

/// A server on one event loop: one reactor thread accepts, reads, computes and writes.
///
/// ```text
///        ┌───────────────── one thread ─────────────────┐
///  wait ─┤ accept   recv → session → send   timers      ├─ wait …
///        └──────────────────────┬───────────────────────┘
///                          jobs ▼ ▲ results
///                         worker pool
/// ```
///
/// The cheapest model per request, as nothing is handed over: one read, one write, and a share of
/// one wait. A session that computes long or blocks holds up all others, unless it hands that out
/// as a job.
///
/// # Memory
///
/// Input is read into one buffer that all connections share, output is written to another; only
/// what is left over (half a request, an answer the socket did not take) is kept by the connection.
pub struct SingleLoop<V: Service> {
    server: ServerLoop<V>,
    group: Arc<Group<V>>,
    addrs: Vec<SocketAddr>,
}

/// Builds a [`SingleLoop`].
#[derive(Debug)]
pub struct SingleLoopBuilder<V> {
    pub(super) service: Arc<V>,
    pub(super) limits: Limits,
    pub(super) config: LoopConfig,
    pool: Option<WorkerPool>,
    pub(super) listening: Listening,
}

impl<V: Service> SingleLoop<V> {
    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> SingleLoopBuilder<V> {
        SingleLoopBuilder {
            service,
            limits: Limits::default(),
            config: LoopConfig::default(),
            pool: None,
            listening: Listening::default(),
        }
    }

    /// The addresses that are listened on, with the ports that were chosen. Unix sockets have none.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The loop, to register other sources with: signals, timers.
    pub fn reactor(&mut self) -> &mut Reactor<'static, ServerState<V>> {
        &mut self.server.event_loop
    }

    /// A handle that stops the server, from any thread or handler.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle<V> {
        StopHandle::new(Arc::clone(&self.group))
    }

    /// Reaches the server's loops from any thread or handler: here one.
    #[must_use]
    pub fn handles(&self) -> Vec<LoopHandle<V>> {
        self.group.handles().to_vec()
    }

    /// Serves until it is stopped; answers what was done.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub fn run(&mut self) -> Result<ServerReport, RunError> {
        self.server.run()?;
        Ok(self.server.state.report())
    }

    /// What the stop cut, up to 32 connections.
    #[must_use]
    pub fn cut_connections(&self) -> &[CutConnection] {
        self.server.state.cut_connections()
    }
}

impl<V: Service> SingleLoopBuilder<V> {
    /// Listens on `addr`; port 0 is chosen by the system. May be called several times.
    #[must_use]
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.listening.addrs.push(addr);
        self
    }

    /// Listens on a Unix socket at `path`, or at the abstract name behind an `@`. May be called
    /// several times. The file of a dead server is replaced; the server's own is removed when it
    /// closes its listeners.
    #[must_use]
    pub fn listen_unix(mut self, path: impl Into<PathBuf>, options: UnixOptions) -> Self {
        self.listening.paths.push((path.into(), options));
        self
    }

    /// Accepts from a socket that listens already; it is made non-blocking. May be called several
    /// times.
    #[must_use]
    pub fn listener(mut self, listener: impl Into<OwnedFd>) -> Self {
        self.listening.listeners.push(listener.into());
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how the loop behaves.
    #[must_use]
    pub fn loop_config(mut self, config: LoopConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the pool that runs the sessions' jobs (default: one of its own, which starts with one
    /// thread).
    #[must_use]
    pub fn pool(mut self, pool: WorkerPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Opens the sockets and the loop.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the loop can't be opened, or no thread can be started.
    pub fn build(mut self) -> Result<SingleLoop<V>, BindError> {
        let group = Arc::new(Group::new(
            1,
            self.limits.connections_max,
            Accepting::default(),
        ));
        let mut opened = std::mem::take(&mut self.listening).open(1)?;
        let parts = self.parts(&group, &opened)?(0);
        let sockets = opened.loops.pop().unwrap_or_default();
        let server = ServerLoop::open(parts, self.config, sockets)?;
        group.set_handles(vec![server.handle()]);
        Ok(SingleLoop {
            server,
            group,
            addrs: opened.addrs,
        })
    }

    /// What makes the parts of each loop of `group`.
    pub(super) fn parts(
        &mut self,
        group: &Arc<Group<V>>,
        opened: &Opened,
    ) -> Result<impl Fn(usize) -> LoopParts<V> + use<V>, BindError> {
        let pool = match self.pool.take() {
            Some(pool) => pool,
            None => WorkerPool::new(PoolConfig::default()).map_err(BindError::Pool)?,
        };
        let (service, limits) = (Arc::clone(&self.service), self.limits);
        let files: Vec<_> = opened.files.iter().map(Arc::downgrade).collect();
        let group = Arc::clone(group);
        Ok(move |index| LoopParts {
            service: Arc::clone(&service),
            limits,
            pool: pool.clone(),
            group: Arc::clone(&group),
            index,
            files: files.clone(),
        })
    }
}

impl<V: Service> fmt::Debug for SingleLoop<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleLoop")
            .field("addrs", &self.addrs)
            .finish_non_exhaustive()
    }
}
