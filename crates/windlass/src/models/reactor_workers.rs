//! Reactor with workers: the model in which one thread waits and others handle.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::crew::{CrewParts, CrewServer, Stay, crew_model};
use super::listening::BindError;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::session::Service;
use crate::thread_set::Rank;

/// The classic reactor with workers: one thread, the dispatcher, only waits and makes ready
/// connections known; workers take the next one each, read, process and write.
///
/// ```text
///   sockets ─▶ dispatcher ──▶ queue of ready connections ──▶ worker: recv → session → send
///              (waits)                                   ──▶ worker    …
///                                                                          jobs ─▶ worker pool
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the dispatcher | a worker | the same worker | the same worker |
///
/// Choose it over [`LeaderFollowers`](super::LeaderFollowers) to keep waiting and handling apart: it
/// costs one more thread, and a switch to it for each wait.
///
/// # Cost
///
/// One lock per event. The dispatcher queues all that a wait brought at once and wakes one worker,
/// if one sleeps; that wakes the next if there is more to do than it takes itself and a processor
/// is free. While all processors have enough to do, the dispatcher pauses. Connections are watched
/// for edges: nothing has to be armed again, and what comes while a worker has the connection makes
/// it ready anew when that is done.
pub struct ReactorWorkers<V: Service> {
    server: CrewServer<V>,
}

/// Builds a [`ReactorWorkers`] server.
pub type ReactorWorkersBuilder<V> = ServerBuilder<V, ReactorWorkersModel>;

/// What is special to a [`ReactorWorkers`]: how many workers it has.
#[derive(Clone, Copy, Debug)]
pub struct ReactorWorkersModel {
    threads: Option<NonZeroUsize>,
}

/// Workers by default.
const THREADS_DEFAULT: usize = 4;

impl<V: Service> ReactorWorkers<V> {
    pub(super) const MODEL: ReactorWorkersModel = ReactorWorkersModel { threads: None };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> ReactorWorkersBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }
}

impl<V: Service> ReactorWorkersBuilder<V> {
    /// Sets how many workers there are (default: 4), beside the dispatcher and the
    /// thread that runs the server, which waits for their end.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.model.threads = Some(workers);
        self
    }

    /// Opens the sockets and the set of handles. Threads start when the server runs.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the back end can't be opened, or no descriptor is left.
    pub fn build(self) -> Result<ReactorWorkers<V>, BindError> {
        let threads = self.model.threads.map_or(THREADS_DEFAULT, usize::from);
        let parts = CrewParts {
            threads,
            leader: Rank::Waits,
            stay: Stay::No,
            name: "worker",
        };
        let server = CrewServer::open(self, parts)?;
        Ok(ReactorWorkers { server })
    }
}

crew_model!(ReactorWorkers);
