//! Single loop: the model in which one reactor thread does everything.

mod acceptor;
mod connection;
mod flush;
mod state;

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{fmt, io};

use windlass_core::Trigger;
use windlass_sys::net::{self, ListenOptions};

use self::acceptor::Acceptor;
pub use self::state::ServerState;

use crate::event_loop::{
    EventLoop, IoOptions, LoopConfig, OpenError, PostError, Poster, Reactor, RunError,
};
use crate::models::limits::{Limits, ServerReport};
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
    event_loop: EventLoop<'static, ServerState<V>>,
    state: ServerState<V>,
    addrs: Vec<SocketAddr>,
}

/// Builds a [`SingleLoop`].
#[derive(Debug)]
pub struct SingleLoopBuilder<V> {
    service: Arc<V>,
    limits: Limits,
    config: LoopConfig,
    pool: Option<WorkerPool>,
    addrs: Vec<SocketAddr>,
    listeners: Vec<OwnedFd>,
}

impl<V: Service> SingleLoop<V> {
    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> SingleLoopBuilder<V> {
        SingleLoopBuilder {
            service,
            limits: Limits::default(),
            config: LoopConfig::default(),
            pool: None,
            addrs: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// The addresses that are listened on, with the ports that were chosen.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The loop, to register other sources with: signals, timers.
    pub fn reactor(&mut self) -> &mut Reactor<'static, ServerState<V>> {
        &mut self.event_loop
    }

    /// A handle that stops the server, from any thread or handler.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle<V> {
        StopHandle {
            poster: self.event_loop.poster(),
        }
    }

    /// Serves until it is stopped; answers what was done.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub fn run(&mut self) -> Result<ServerReport, RunError> {
        self.event_loop.run(&mut self.state)?;
        Ok(self.state.report())
    }
}

impl<V: Service> SingleLoopBuilder<V> {
    /// Listens on `addr`; port 0 is chosen by the system. May be called several times.
    #[must_use]
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.addrs.push(addr);
        self
    }

    /// Accepts from a socket that listens already; it is made non-blocking.
    #[must_use]
    pub fn listener(mut self, listener: impl Into<OwnedFd>) -> Self {
        self.listeners.push(listener.into());
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
    pub fn build(self) -> Result<SingleLoop<V>, BindError> {
        let pool = match self.pool {
            Some(pool) => pool,
            None => WorkerPool::new(PoolConfig::default()).map_err(BindError::Pool)?,
        };
        let mut event_loop = EventLoop::with_config(self.config).map_err(BindError::Loop)?;
        let mut listeners = self.listeners;
        for addr in self.addrs {
            let listener = net::listen(&addr, ListenOptions::default())
                .map_err(|source| BindError::Listen { addr, source })?;
            listeners.push(listener);
        }
        let trigger = if event_loop.features().edge_triggered {
            Trigger::Edge
        } else {
            Trigger::Level
        };
        let mut state = ServerState::new(
            self.service,
            self.limits,
            pool,
            trigger,
            event_loop.wake_flag(),
        );
        let mut addrs = Vec::new();
        for listener in listeners {
            let registered = TcpListener::from(listener);
            // A socket of another family has no such address.
            addrs.extend(registered.local_addr());
            registered
                .set_nonblocking(true)
                .map_err(BindError::Register)?;
            let label = registered
                .local_addr()
                .map(|addr| format!("listener {addr}"));
            let options = IoOptions {
                label: Some(label.unwrap_or_else(|_| "listener".into()).into()),
                ..IoOptions::default()
            };
            let acceptor = Box::new(Acceptor::new(registered.into()));
            let event = event_loop
                .register_handler(acceptor, options)
                .map_err(|error| BindError::Register(error.into()))?;
            state.acceptors.push(event);
        }
        state.watch_turns(&mut event_loop);
        Ok(SingleLoop {
            event_loop,
            state,
            addrs,
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

/// Stops a server, from any thread or handler.
pub struct StopHandle<V: Service> {
    poster: Poster<'static, ServerState<V>>,
}

impl<V: Service> StopHandle<V> {
    /// Begins a graceful stop: no connection is accepted any more, idle ones are closed, those
    /// that answer finish, and after [`Limits::stop_deadline`] the rest is cut. A second call cuts
    /// at once.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn stop(&self) -> Result<(), PostError> {
        self.poster.post(|state, cx| state.stop(cx))
    }
}

impl<V: Service> Clone for StopHandle<V> {
    fn clone(&self) -> Self {
        Self {
            poster: self.poster.clone(),
        }
    }
}

impl<V: Service> fmt::Debug for StopHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHandle").finish_non_exhaustive()
    }
}

/// A server that could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// An address can't be listened on.
    Listen {
        /// Which one.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The loop can't be opened.
    Loop(OpenError),
    /// The worker pool can't be started.
    Pool(io::Error),
    /// A listener can't be watched.
    Register(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { addr, .. } => write!(f, "listen on {addr}"),
            Self::Loop(_) => f.write_str("open the server's event loop"),
            Self::Pool(_) => f.write_str("start the server's worker pool"),
            Self::Register(_) => f.write_str("watch a listener"),
        }
    }
}

impl Error for BindError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Listen { source, .. } | Self::Pool(source) | Self::Register(source) => source,
            Self::Loop(source) => source,
        })
    }
}
