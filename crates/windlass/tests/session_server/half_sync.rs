//! Half-sync/half-async in its variants, the hybrid, a thread per connection.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use windlass::models::{
    Dealing, Dispatch, HalfSyncDispatch, HalfSyncHalfAsync, Hybrid, Jobs, SingleLoop,
    ThreadPerConnection,
};
use windlass::session::Service;

use crate::harness::{Model, Options, Started, start};

const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();

fn start_half_sync<V: Service>(
    service: Arc<V>,
    listeners: Vec<OwnedFd>,
    options: Options,
    dispatch: HalfSyncDispatch,
) -> Started {
    let builder = HalfSyncHalfAsync::builder(service)
        .workers(FOUR)
        .dispatch(dispatch);
    start(builder, listeners, options, |builder| builder.build())
}

/// Workers at one queue.
#[derive(Debug)]
pub(crate) struct SharedQueue;

impl Model for SharedQueue {
    const NAME: &str = "half_sync_shared_queue";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let dispatch = HalfSyncDispatch::Requests(Dispatch::SharedQueue);
        start_half_sync(service, listeners, options, dispatch)
    }
}

/// A queue per worker.
#[derive(Debug)]
pub(crate) struct RoundRobin;

impl Model for RoundRobin {
    const NAME: &str = "half_sync_round_robin";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let dispatch = HalfSyncDispatch::Requests(Dispatch::RoundRobin);
        start_half_sync(service, listeners, options, dispatch)
    }
}

/// A loop per worker.
#[derive(Debug)]
pub(crate) struct OwnLoops;

impl Model for OwnLoops {
    const NAME: &str = "half_sync_own_loops";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let dispatch = HalfSyncDispatch::OwnLoops(Dealing::RoundRobin);
        start_half_sync(service, listeners, options, dispatch)
    }
}

/// Two loops and a pool.
#[derive(Debug)]
pub(crate) struct LoopsAndPool;

impl Model for LoopsAndPool {
    const NAME: &str = "hybrid";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = Hybrid::builder(service)
            .loops(NonZeroUsize::new(2).unwrap())
            .workers(FOUR);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// A loop that does its sessions' jobs itself.
#[derive(Debug)]
pub(crate) struct JobsInLoop;

impl Model for JobsInLoop {
    const NAME: &str = "jobs_in_loop";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = SingleLoop::builder(service).jobs(Jobs::InLoop);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// A thread per connection.
#[derive(Debug)]
pub(crate) struct OwnThreads;

impl Model for OwnThreads {
    const NAME: &str = "thread_per_connection";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = ThreadPerConnection::builder(service);
        start(builder, listeners, options, |builder| builder.build())
    }
}
