//! Proactor: the model in which the kernel reads and writes.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::listening::BindError;
use super::proactor_server::ProactorServer;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::proactor::{Driver, DriverChoice, Fallback};
use crate::session::Service;

/// A server in which io_uring does the I/O: one thread starts operations, waits for completions,
/// and lets sessions compute with what was received.
///
/// ```text
///  ┌─────────────── kernel ───────────────┐
///  │ receive into a buffer of the pool    │   without being asked again: one multishot receive
///  │ send from the operation's buffer     │   for the life of a connection; an answer that
///  └──▲───────────────────────────┬───────┘   leaves well costs no completion
///  submissions               completions        one system call per turn for both
///  ┌──┴───────────────────────────▼───────┐
///  │ wait   session: input → output       │ ─▶ workers, if there are any: they call the sessions
///  └──────────────── one thread ──────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the loop's thread, for completions | the kernel | the loop's thread, or [workers](ServerBuilder::workers); jobs: the pool, or the workers | the kernel |
///
/// One system call does for all requests of a turn, from two to dozens, where
/// [`SingleLoop`](super::SingleLoop) makes two for each; in processor time the two come out about
/// even (docs/benchmarks.md). Choose it where system calls are dear or connections many and busy, on
/// kernels from 6.1 on, which need not keep io_uring from programs (many containers do). Where it is missing the loop's own thread does the operations when
/// sockets are ready ([`EmulatedProactor`](super::EmulatedProactor)), which
/// [`driver`](Self::driver) and [`fallback`](Self::fallback) tell.
///
/// Connections are accepted when their listener is ready, by accept4(2): so that no more are taken
/// than [`Limits::connections_max`](super::Limits::connections_max) allows.
pub struct UringProactor<V: Service>(ProactorServer<V>);

/// Builds a [`UringProactor`] server.
pub type UringProactorBuilder<V> = ServerBuilder<V, UringProactorModel>;

/// What can be set of a [`UringProactor`].
#[derive(Clone, Copy, Debug)]
pub struct UringProactorModel {
    driver: DriverChoice,
    workers: Option<NonZeroUsize>,
}

impl<V: Service> UringProactor<V> {
    pub(super) const MODEL: UringProactorModel = UringProactorModel {
        driver: DriverChoice::Automatic,
        workers: None,
    };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> UringProactorBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }

    /// Who carries out the operations.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.0.driver()
    }

    /// Why that is not io_uring, if it is not.
    #[must_use]
    pub fn fallback(&self) -> Option<&Fallback> {
        self.0.fallback()
    }
}

impl<V: Service> UringProactorBuilder<V> {
    /// Sets whether it must be io_uring (default: if it can be had).
    #[must_use]
    pub fn driver(mut self, driver: DriverChoice) -> Self {
        self.model.driver = driver;
        self
    }

    /// Has so many workers call the sessions (default: none, the loop's thread does).
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.model.workers = Some(workers);
        self
    }

    /// Opens the sockets and the loop, and starts the workers.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the loop or a driver that must be can't be opened, there
    /// is no memory for buffers, or no thread can be started.
    pub fn build(self) -> Result<UringProactor<V>, BindError> {
        let UringProactorModel { driver, workers } = self.model;
        self.build_proactor(driver, workers).map(UringProactor)
    }
}

impl<V: Service> UringProactor<V> {
    fn server(&self) -> &dyn Server<V> {
        self.0.server()
    }

    fn server_mut(&mut self) -> &mut dyn Server<V> {
        self.0.server_mut()
    }
}

serve_as_its_inner!(UringProactor {
    fn proactor_driver(&self) -> Option<Driver> {
        Some(self.0.driver())
    }

    fn proactor_fallback(&self) -> Option<&Fallback> {
        self.0.fallback()
    }
});

impl<V: Service> fmt::Debug for UringProactor<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringProactor")
            .field("addrs", &self.local_addrs())
            .field("driver", &self.driver())
            .finish_non_exhaustive()
    }
}
