//! Simulated proactor: the model in which one thread reads and writes, and workers compute.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::listening::BindError;
use super::proactor_server::ProactorServer;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::proactor::{Driver, DriverChoice, Fallback};
use crate::session::Service;

/// A server in which one thread reads and writes, and workers get what was received, whole, and give
/// back what is to be sent: the Proactor pattern, simulated by readiness.
///
/// ```text
///  ┌──────────────────── loop's thread ────────────────────┐
///  │ wait   ready: recv ─▶ completion     send ─▶ completion│
///  └──────────────────────────┬──────────────▲─────────────┘
///              what was read  ▼              │ what is to be written
///  ┌──────────────────────────┴──────────────┴─────────────┐
///  │ worker 0: session: input → output   …   worker n      │   each with its Local
///  └───────────────────────────────────────────────────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the loop's thread, for readiness | the same, and reports it as complete | a worker, which never sees a socket; jobs too | the loop's thread |
///
/// Choose it to have the structure of a proactor where io_uring can't be had; it is what
/// [`UringProactor`](super::UringProactor) falls back to. It costs more than
/// [`HalfSyncHalfAsync`](super::HalfSyncHalfAsync), which has the same structure without operations:
/// each receive is armed anew, and a buffer is handed over with each operation, so that a request
/// takes about twice the system calls.
pub struct EmulatedProactor<V: Service>(ProactorServer<V>);

/// Builds an [`EmulatedProactor`].
pub type EmulatedProactorBuilder<V> = ServerBuilder<V, EmulatedProactorModel>;

/// What can be set of an [`EmulatedProactor`].
#[derive(Clone, Copy, Debug)]
pub struct EmulatedProactorModel {
    workers: NonZeroUsize,
}

/// Workers if nothing else is said.
const WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

impl<V: Service> EmulatedProactor<V> {
    pub(super) const MODEL: EmulatedProactorModel = EmulatedProactorModel { workers: WORKERS };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> EmulatedProactorBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }
}

impl<V: Service> EmulatedProactorBuilder<V> {
    /// Has so many workers call the sessions (default 4).
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.model.workers = workers;
        self
    }

    /// Opens the sockets and the loop, and starts the workers.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the loop can't be opened, there is no memory for buffers,
    /// or no thread can be started.
    pub fn build(self) -> Result<EmulatedProactor<V>, BindError> {
        let workers = Some(self.model.workers);
        let server = self.build_proactor(DriverChoice::Emulated, workers)?;
        Ok(EmulatedProactor(server))
    }
}

impl<V: Service> EmulatedProactor<V> {
    fn server(&self) -> &dyn Server<V> {
        self.0.server()
    }

    fn server_mut(&mut self) -> &mut dyn Server<V> {
        self.0.server_mut()
    }
}

serve_as_its_inner!(EmulatedProactor {
    fn proactor_driver(&self) -> Option<Driver> {
        Some(self.0.driver())
    }

    fn proactor_fallback(&self) -> Option<&Fallback> {
        self.0.fallback()
    }
});

impl<V: Service> fmt::Debug for EmulatedProactor<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedProactor")
            .field("addrs", &self.local_addrs())
            .finish_non_exhaustive()
    }
}
