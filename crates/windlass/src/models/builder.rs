//! The builder of all models: what every server needs, around what one model can be set to.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_sys::net::UnixOptions;

use super::jobs::{JobSite, Jobs};
use super::limits::Limits;
use super::listening::{BindError, Listening};
use crate::event_loop::LoopConfig;
use crate::pool::{PoolConfig, WorkerPool};
use crate::session::Service;

/// Builds a server of one model, whose own settings are `M`.
pub struct ServerBuilder<V, M> {
    pub(super) service: Arc<V>,
    pub(super) limits: Limits,
    pub(super) config: LoopConfig,
    pub(super) pool: Option<WorkerPool>,
    pub(super) listening: Listening,
    pub(super) model: M,
}

impl<V: Service, M> ServerBuilder<V, M> {
    pub(super) fn new(service: Arc<V>, model: M) -> Self {
        Self {
            service,
            limits: Limits::default(),
            config: LoopConfig::default(),
            pool: None,
            listening: Listening::default(),
            model,
        }
    }

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
    /// times: those of one address are divided between the threads that accept, as they were in the
    /// server that [handed them on](super::ServerState::duplicate_listeners); a socket alone is
    /// shared by all.
    #[must_use]
    pub fn listener(mut self, listener: impl Into<OwnedFd>) -> Self {
        self.listening.listeners.push(listener.into());
        self
    }

    /// Sets the limits, of which that of the connections is for all threads together.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how each event loop behaves, if the model has any.
    #[must_use]
    pub fn loop_config(mut self, config: LoopConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the pool that runs the sessions' jobs, of all threads (default: one of its own, which
    /// starts with one thread). Models whose threads run jobs themselves have no use for it.
    #[must_use]
    pub fn pool(mut self, pool: WorkerPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// The same settings for another model.
    pub(super) fn with_model<N>(self, model: N) -> ServerBuilder<V, N> {
        let Self {
            service,
            limits,
            config,
            pool,
            listening,
            model: _,
        } = self;
        ServerBuilder {
            service,
            limits,
            config,
            pool,
            listening,
            model,
        }
    }

    /// The same settings for a service around this one.
    pub(super) fn map_service<W: Service>(
        self,
        wrap: impl FnOnce(Arc<V>) -> W,
    ) -> ServerBuilder<W, M> {
        let Self {
            service,
            limits,
            config,
            pool,
            listening,
            model,
        } = self;
        ServerBuilder {
            service: Arc::new(wrap(service)),
            limits,
            config,
            pool,
            listening,
            model,
        }
    }

    /// Where jobs are done: in the loop; in the pool that was set, or in one of the server's own.
    pub(super) fn job_site(&mut self, jobs: Jobs) -> Result<JobSite, BindError> {
        Ok(match jobs {
            Jobs::InLoop => JobSite::Loop,
            Jobs::InPool => JobSite::Pool(self.take_pool()?),
        })
    }

    /// The pool that was set, or one of the server's own.
    pub(super) fn take_pool(&mut self) -> Result<WorkerPool, BindError> {
        match self.pool.take() {
            Some(pool) => Ok(pool),
            None => WorkerPool::new(PoolConfig::default()).map_err(BindError::Pool),
        }
    }
}

impl<V, M: fmt::Debug> fmt::Debug for ServerBuilder<V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("model", &self.model)
            .field("listening", &self.listening)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
