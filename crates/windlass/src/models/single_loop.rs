//! Single loop: the model in which one reactor thread does everything.

mod acceptor;
mod book;
mod completion_connection;
mod loop_connection;
mod server_loop;
mod state;
mod thread;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

pub(super) use self::server_loop::ServerLoop;
pub use self::state::ServerState;
pub(super) use self::state::{LoopParts, Serving};
pub(super) use self::thread::LoopThread;

use crate::event_loop::{Reactor, RunError, SlowHandler};
use crate::models::builder::ServerBuilder;
use crate::models::group::{Accepting, Group};
use crate::models::handle::{LoopHandle, StopHandle};
use crate::models::jobs::{JobSite, Jobs};
use crate::models::listening::{BindError, Opened};
use crate::models::report::{CutConnection, ServerReport};
use crate::models::server::{ModelKind, Server, ThreadHandle, methods_of_a_server};
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
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the loop's thread | the same | the same; jobs: a worker of the pool | the loop's thread |
///
/// The cheapest model of those that wait for readiness, as nothing is handed over: one read, one
/// write, and a share of one wait for each request. Choose it when answers are short and nothing
/// blocks, and to measure the others by. A session that computes long or blocks holds up all others,
/// unless it hands that out as a job.
///
/// # Memory
///
/// Input is read into one buffer that all connections share, output is written to another; only
/// what is left over (half a request, an answer the socket did not take) is kept by the connection.
pub struct SingleLoop<V: Service> {
    server: ServerLoop<V>,
    group: Arc<Group<V>>,
    addrs: Vec<SocketAddr>,
}

/// Builds a [`SingleLoop`].
pub type SingleLoopBuilder<V> = ServerBuilder<V, SingleLoopModel>;

/// What can be set of a [`SingleLoop`].
#[derive(Clone, Copy, Debug)]
pub struct SingleLoopModel {
    jobs: Jobs,
}

impl<V: Service> SingleLoop<V> {
    pub(super) const MODEL: SingleLoopModel = SingleLoopModel { jobs: Jobs::InPool };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> SingleLoopBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }

    /// The loop, to register other sources with: signals, timers.
    pub fn reactor(&mut self) -> &mut Reactor<'static, ServerState<V>> {
        &mut self.server.event_loop
    }

    pub(super) fn event_loop(&self) -> &Reactor<'static, ServerState<V>> {
        &self.server.event_loop
    }

    /// Reaches the server's loops from any thread or handler: here one.
    #[must_use]
    pub fn handles(&self) -> Vec<LoopHandle<V>> {
        self.group.handles().to_vec()
    }
}

impl<V: Service> SingleLoopBuilder<V> {
    /// Sets where the sessions' jobs are done (default: in the pool).
    #[must_use]
    pub fn jobs(mut self, jobs: Jobs) -> Self {
        self.model.jobs = jobs;
        self
    }

    /// Opens the sockets and the loop.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, the loop can't be opened, or no thread can be started.
    pub fn build(mut self) -> Result<SingleLoop<V>, BindError> {
        let jobs = self.job_site(self.model.jobs)?;
        self.build_with(jobs, Serving::ByReadiness)
    }

    /// The same, with the sessions' jobs done at `jobs`, and connections served in another way.
    pub(super) fn build_with(
        mut self,
        jobs: JobSite,
        serving: Serving,
    ) -> Result<SingleLoop<V>, BindError> {
        let group = Arc::new(Group::new(
            1,
            self.limits.connections_max,
            Accepting::default(),
        ));
        let mut opened = std::mem::take(&mut self.listening).open(1)?;
        let is_elsewhere = matches!(serving, Serving::Elsewhere(_));
        let parts = LoopParts {
            serving,
            ..self.parts(&group, &opened, jobs)(0)
        };
        let sockets = opened.loops.pop().unwrap_or_default();
        let mut server = ServerLoop::open(parts, self.config, sockets)?;
        if is_elsewhere {
            // While its acceptors pause it has nothing that it waits for.
            server.event_loop.hold();
        }
        group.set_handles(vec![server.handle()]);
        Ok(SingleLoop {
            server,
            group,
            addrs: opened.addrs,
        })
    }
}

impl<V: Service, M> ServerBuilder<V, M> {
    /// What makes the parts of each loop of `group`.
    pub(super) fn parts(
        &self,
        group: &Arc<Group<V>>,
        opened: &Opened,
        jobs: JobSite,
    ) -> impl Fn(usize) -> LoopParts<V> + use<V, M> {
        let (service, limits) = (Arc::clone(&self.service), self.limits);
        let files: Vec<_> = opened.files.iter().map(Arc::downgrade).collect();
        let group = Arc::clone(group);
        move |index| LoopParts {
            service: Arc::clone(&service),
            limits,
            jobs: jobs.clone(),
            group: Arc::clone(&group),
            index,
            files: files.clone(),
            serving: Serving::ByReadiness,
        }
    }
}

methods_of_a_server!(SingleLoop);

impl<V: Service> Server<V> for SingleLoop<V> {
    fn kind(&self) -> ModelKind {
        ModelKind::SingleLoop
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    fn stop_handle(&self) -> StopHandle {
        Group::stop_handle(&self.group)
    }

    fn threads(&self) -> Vec<ThreadHandle<V>> {
        self.group.threads()
    }

    fn run(&mut self) -> Result<ServerReport, RunError> {
        self.server.run()?;
        Ok(self.server.state.report())
    }

    fn cut_connections(&self) -> Vec<CutConnection> {
        self.server.state.cut_connections().to_vec()
    }

    fn slow_handlers(&self) -> Vec<SlowHandler> {
        self.server.event_loop.slow_handlers().cloned().collect()
    }
}

impl<V: Service> fmt::Debug for SingleLoop<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleLoop")
            .field("addrs", &self.addrs)
            .finish_non_exhaustive()
    }
}
