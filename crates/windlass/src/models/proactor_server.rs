//! What both models of a proactor share: a loop whose operations carry the bytes, alone or before
//! workers.

use std::num::NonZeroUsize;

use super::builder::ServerBuilder;
use super::jobs::Jobs;
use super::listening::BindError;
use super::offload::WorkerServer;
use super::server::Server;
use super::single_loop::{Serving, SingleLoop};
use super::work_queue::Dispatch;
use crate::proactor::{Driver, DriverChoice, Fallback};
use crate::session::Service;

/// See the module.
pub(super) enum ProactorServer<V: Service> {
    Alone(SingleLoop<V>),
    BeforeWorkers(WorkerServer<V>),
}

/// Buffers that connections receive into, in all. They are used only where something was received
/// and not yet looked at, so a few do for many connections.
const BUFFERS: u16 = 512;
/// What one of them takes: a request, or a good part of an upload.
const BUFFER_BYTES: u32 = 16 * 1024;

const SERVING: Serving = Serving::ByCompletions {
    buffers: BUFFERS,
    buffer_bytes: BUFFER_BYTES,
};

impl<V: Service, M> ServerBuilder<V, M> {
    /// Opens a loop that carries bytes by operations of `driver`; with workers for the sessions, if
    /// there are to be any.
    pub(super) fn build_proactor(
        mut self,
        driver: DriverChoice,
        workers: Option<NonZeroUsize>,
    ) -> Result<ProactorServer<V>, BindError> {
        self.config.proactor.driver = driver;
        if let Some(count) = workers {
            let server = self.build_with_workers(count, Dispatch::SharedQueue, SERVING)?;
            return Ok(ProactorServer::BeforeWorkers(server));
        }
        let mut builder = self.with_model(SingleLoop::<V>::MODEL);
        let jobs = builder.job_site(Jobs::InPool)?;
        Ok(ProactorServer::Alone(builder.build_with(jobs, SERVING)?))
    }
}

impl<V: Service> ProactorServer<V> {
    pub(super) fn driver(&self) -> Driver {
        match self {
            Self::Alone(server) => server.event_loop().proactor_driver(),
            Self::BeforeWorkers(server) => server.reactor().proactor_driver(),
        }
    }

    pub(super) fn fallback(&self) -> Option<&Fallback> {
        match self {
            Self::Alone(server) => server.event_loop().proactor_fallback(),
            Self::BeforeWorkers(server) => server.reactor().proactor_fallback(),
        }
    }

    pub(super) fn server(&self) -> &dyn Server<V> {
        match self {
            Self::Alone(server) => server,
            Self::BeforeWorkers(server) => server,
        }
    }

    pub(super) fn server_mut(&mut self) -> &mut dyn Server<V> {
        match self {
            Self::Alone(server) => server,
            Self::BeforeWorkers(server) => server,
        }
    }
}
