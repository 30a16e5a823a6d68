//! The models whose threads share all connections.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use windlass::models::{LeaderFollowers, ReactorWorkers, ThreadPool};
use windlass::session::Service;

use crate::harness::{Model, Options, Started, start};

const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Slow peers and jobs hold a thread each: more than any claim has at once.
const MANY: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Threads that take turns to wait.
#[derive(Debug)]
pub(crate) struct Followers;

impl Model for Followers {
    const NAME: &str = "leader_followers";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = LeaderFollowers::builder(service).threads(FOUR);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// One thread that waits, and workers.
#[derive(Debug)]
pub(crate) struct Workers;

impl Model for Workers {
    const NAME: &str = "reactor_workers";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = ReactorWorkers::builder(service).workers(FOUR);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// Threads that stay with a connection.
#[derive(Debug)]
pub(crate) struct Pool;

impl Model for Pool {
    const NAME: &str = "thread_pool";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = ThreadPool::builder(service).threads(MANY);
        start(builder, listeners, options, |builder| builder.build())
    }
}
