//! Leader/followers: the model in which threads take turns to wait.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::crew::{CrewParts, CrewServer, Stay, crew_model};
use super::listening::BindError;
use super::server::{ModelKind, Server, serve_as_its_inner};
use crate::session::Service;
use crate::thread_set::Rank;

/// A server whose threads take turns to wait: the leader waits for all sockets, and the thread that
/// takes an event handles it, after another has become the leader.
///
/// ```text
///   sockets ─▶ leader ──takes an event, promotes──▶ handles: recv → session → send
///                 ▲                                     │
///                 └───────── followers (parked) ◀───────┘      jobs ─▶ worker pool
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the leader | the thread that took the event | the same | the same |
///
/// Choose it when sessions may block now and then, or compute for milliseconds, and several cores
/// are to share a few busy connections: an event is handled by whichever thread is free, and is
/// never handed from one thread to another. A session that is stuck holds one thread.
///
/// # Cost
///
/// As a [`SingleLoop`](super::SingleLoop), and one lock per event; and, while a processor is free, a
/// promotion (a wake-up) before a handler is called. Connections are watched for edges, which costs no call to arm
/// them again. See [`thread_set`](crate::thread_set) for what is promised.
pub struct LeaderFollowers<V: Service> {
    server: CrewServer<V>,
}

/// Builds a [`LeaderFollowers`] server.
pub type LeaderFollowersBuilder<V> = ServerBuilder<V, LeaderFollowersModel>;

/// What is special to a [`LeaderFollowers`]: how many threads it has.
#[derive(Clone, Copy, Debug)]
pub struct LeaderFollowersModel {
    threads: Option<NonZeroUsize>,
}

/// Threads by default.
const THREADS_DEFAULT: usize = 4;

impl<V: Service> LeaderFollowers<V> {
    pub(super) const MODEL: LeaderFollowersModel = LeaderFollowersModel { threads: None };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> LeaderFollowersBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }
}

impl<V: Service> LeaderFollowersBuilder<V> {
    /// Sets how many threads take turns (default: 4), beside the one that runs the server: that only
    /// waits for their end.
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
    pub fn build(self) -> Result<LeaderFollowers<V>, BindError> {
        let threads = self.model.threads.map_or(THREADS_DEFAULT, usize::from);
        let parts = CrewParts {
            threads,
            leader: Rank::Handles,
            stay: Stay::No,
            name: "follower",
        };
        let server = CrewServer::open(self, parts)?;
        Ok(LeaderFollowers { server })
    }
}

crew_model!(LeaderFollowers);
