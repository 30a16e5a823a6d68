//! Thread pool: the model in which a thread stays with a connection until its exchange is done.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::crew::{CrewParts, CrewServer, Stay, crew_model};
use super::listening::BindError;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::session::Service;
use crate::thread_set::Rank;

/// A pool of blocking threads: a dispatcher watches idle connections; a thread that has taken one
/// stays with it, blocking, until the exchange is done, and does the session's jobs itself.
///
/// ```text
///   idle sockets ─▶ dispatcher ─▶ queue ─▶ thread: recv → session → job → send ─┐ blocks in poll(2)
///        ▲                                                                     │ between them
///        └───────────────── the exchange is done ◀─────────────────────────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the dispatcher for idle connections, a thread for its own | the thread | the same | the same |
///
/// For comparison, and for small tools: sessions may block as they like. Its weakness is what it is
/// here to show: **a slow peer holds a thread** while it sends half a command or does not read its
/// answer, and so does a job; when all threads are held, all other connections wait. An exchange
/// that is done in one read and one write holds its thread no longer than in the other models. A
/// session that waits for a notification holds none.
///
/// # Cost
///
/// As [`ReactorWorkers`](super::ReactorWorkers); each time that a thread has to wait for its peer
/// costs a poll(2), and a context switch to another thread.
///
/// # Stop
///
/// A stop reaches connections that hold a thread. A job that runs when connections are cut goes on
/// to its end in its thread; [`run`](Self::run) does not wait for it, and its connection is closed
/// at once. For a session that does not return it waits as in all models: for a second.
pub struct ThreadPool<V: Service> {
    server: CrewServer<V>,
}

/// Builds a [`ThreadPool`] server.
pub type ThreadPoolBuilder<V> = ServerBuilder<V, ThreadPoolModel>;

/// What is special to a [`ThreadPool`]: how many threads it has.
#[derive(Clone, Copy, Debug)]
pub struct ThreadPoolModel {
    threads: Option<NonZeroUsize>,
}

/// Threads by default.
const THREADS_DEFAULT: usize = 4;

impl<V: Service> ThreadPool<V> {
    pub(super) const MODEL: ThreadPoolModel = ThreadPoolModel { threads: None };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> ThreadPoolBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }
}

impl<V: Service> ThreadPoolBuilder<V> {
    /// Sets how many threads there are (default: 4), beside the dispatcher and the one
    /// that runs the server: so many
    /// slow peers or jobs it can stand.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.model.threads = Some(threads);
        self
    }

    /// Opens the sockets and the set of handles. Threads start when the server runs.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the back end can't be opened, or no descriptor is left.
    pub fn build(self) -> Result<ThreadPool<V>, BindError> {
        let threads = self.model.threads.map_or(THREADS_DEFAULT, usize::from);
        let parts = CrewParts {
            threads,
            leader: Rank::Waits,
            stay: Stay::UntilDone,
            name: "pool",
        };
        let server = CrewServer::open(self, parts)?;
        Ok(ThreadPool { server })
    }
}

crew_model!(ThreadPool);
