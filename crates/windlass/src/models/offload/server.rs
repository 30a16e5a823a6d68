//! A server of one loop and workers: the loop reads and writes, the workers compute.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::{Offload, Workers, threads};
use crate::event_loop::{Reactor, RunError, SlowHandler};
use crate::models::builder::ServerBuilder;
use crate::models::handle::StopHandle;
use crate::models::jobs::{JobSite, Jobs};
use crate::models::listening::BindError;
use crate::models::report::{CutConnection, ServerReport};
use crate::models::server::{ModelKind, Server, ThreadHandle};
use crate::models::single_loop::{ServerState, Serving, SingleLoop};
use crate::models::work_queue::Dispatch;
use crate::session::Service;

/// See the module.
pub(in crate::models) struct WorkerServer<V: Service> {
    io: SingleLoop<Offload<V>>,
    workers: Workers<V>,
    ended: Option<ServerReport>,
}

impl<V: Service> WorkerServer<V> {
    pub(in crate::models) fn reactor(&self) -> &Reactor<'static, ServerState<Offload<V>>> {
        self.io.event_loop()
    }
}

impl<V: Service> Server<V> for WorkerServer<V> {
    fn kind(&self) -> ModelKind {
        ModelKind::HalfSyncHalfAsync
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        self.io.local_addrs()
    }

    fn stop_handle(&self) -> StopHandle {
        self.io.stop_handle()
    }

    fn threads(&self) -> Vec<ThreadHandle<V>> {
        threads(self.io.threads(), self.workers.queue())
    }

    fn run(&mut self) -> Result<ServerReport, RunError> {
        let report = self.io.run()?;
        let Self { workers, ended, .. } = self;
        Ok(report + *ended.get_or_insert_with(|| workers.end()))
    }

    fn cut_connections(&self) -> Vec<CutConnection> {
        self.io.cut_connections()
    }

    fn slow_handlers(&self) -> Vec<SlowHandler> {
        Server::slow_handlers(&self.io)
    }
}

impl<V: Service> fmt::Debug for WorkerServer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerServer")
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}

impl<V: Service, M> ServerBuilder<V, M> {
    /// Opens a loop whose sessions are called by `count` workers.
    pub(in crate::models) fn build_with_workers(
        self,
        count: NonZeroUsize,
        dispatch: Dispatch,
        serving: Serving,
    ) -> Result<WorkerServer<V>, BindError> {
        let workers = Workers::start(count.get(), dispatch, &self.service, self.limits)?;
        let queue = Arc::clone(workers.queue());
        // A queue of its own would wait behind a job that does not end.
        let by_workers = dispatch == Dispatch::SharedQueue && self.pool.is_none();
        let mut builder = self
            .with_model(SingleLoop::<Offload<V>>::MODEL)
            .map_service(|service| Offload::new(service, Arc::clone(&queue)));
        let jobs = if by_workers {
            JobSite::Workers(queue)
        } else {
            builder.job_site(Jobs::InPool)?
        };
        Ok(WorkerServer {
            io: builder.build_with(jobs, serving)?,
            workers,
            ended: None,
        })
    }
}
