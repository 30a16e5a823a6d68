//! Thread per connection: the model in which each connection has a thread, which may block.

mod connection_thread;
mod lanes;
mod threads;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use self::lanes::Lanes;
use self::threads::ConnectionThreads;
use super::builder::ServerBuilder;
use super::carrier::Carrier;
use super::handle::StopHandle;
use super::jobs::JobSite;
use super::listening::BindError;
use super::report::{CutConnection, ServerReport};
use super::server::{ModelKind, Server, ThreadHandle, methods_of_a_server};
use super::single_loop::{ServerState, Serving, SingleLoop};
use crate::event_loop::{Reactor, RunError, SlowHandler};
use crate::session::Service;

/// A server of one thread for each connection, which waits, reads, computes and writes, and an
/// acceptor that starts them.
///
/// ```text
///            ┌─ acceptor ─┐
///      wait ─┤ accept     ├─ wait …
///            └──┬──────┬──┘
///        starts ▼      ▼
///   ┌─ connection 0 ─┐   ┌─ connection n ─┐
///   │ poll           │ … │ poll           │
///   │ recv, session, │   │ recv, session, │   one of a few Locals while the session is called
///   │ send; jobs     │   │ send; jobs     │
///   └────────────────┘   └────────────────┘
/// ```
///
/// | who waits | reads | computes | writes |
/// | --- | --- | --- | --- |
/// | the connection's thread | the same | the same; jobs too | the same |
///
/// The oldest model: whatever a session or a job blocks in holds up its own connection only, and the
/// kernel is the scheduler. Choose it for small tools, for tens of connections that block, and to
/// compare. It costs a thread per connection (a stack, the kernel's part of about 25 KiB, a start of
/// tens of microseconds), a change of thread per request, and three system calls: ppoll(2),
/// recv(2), send(2). A blocking recv would save the first; but nothing else could wake the thread then,
/// and it is to obey a stop, a notification and a time limit.
///
/// # Locals
///
/// A [`Local`](Service::Local) for each connection would multiply caches by thousands. There are
/// [so many](ServerBuilder::calls_max) that threads share: one takes a `Local` while it calls its
/// session, and [settles](Service::settle) it before it waits. So no more sessions than that are
/// called at once; jobs need none.
///
/// # Jobs
///
/// A job is done by its connection's thread, which looks at its deadline, at notifications and at a
/// stop when it is done. [`ServerBuilder::pool`] has no effect.
///
/// # Without threads or descriptors
///
/// If a thread can't be started (`EAGAIN`), accepting pauses as it does without descriptors, and the
/// connection waits for the next try. A session that asks for a notifier costs its connection a
/// second descriptor; if there is none, its thread looks for notifications every 10 ms.
///
/// # End
///
/// The thread that calls [`run`](Self::run) is the acceptor. It returns when all threads have been
/// joined. Those in a job whose connection was
/// cut, or for a second and more in a call, are left to themselves; their peers see the end at once.
pub struct ThreadPerConnection<V: Service> {
    acceptor: SingleLoop<V>,
    threads: Arc<ConnectionThreads<V>>,
    ended: Option<Ended>,
}

/// What is left of the threads.
#[derive(Debug)]
struct Ended {
    report: ServerReport,
    cuts: Vec<CutConnection>,
}

/// Builds a [`ThreadPerConnection`].
pub type ThreadPerConnectionBuilder<V> = ServerBuilder<V, ThreadPerConnectionModel>;

/// What can be set of a [`ThreadPerConnection`].
#[derive(Clone, Copy, Debug)]
pub struct ThreadPerConnectionModel {
    stack_bytes: usize,
    calls_max: NonZeroUsize,
}

/// What the stack of a connection's thread is, if nothing else is said.
const STACK_BYTES: usize = 256 * 1024;
const CALLS_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

impl<V: Service> ThreadPerConnection<V> {
    pub(super) const MODEL: ThreadPerConnectionModel = ThreadPerConnectionModel {
        stack_bytes: STACK_BYTES,
        calls_max: CALLS_MAX,
    };

    /// Starts to build a server of `service`.
    pub fn builder(service: Arc<V>) -> ThreadPerConnectionBuilder<V> {
        ServerBuilder::new(service, Self::MODEL)
    }

    /// The acceptor's loop, which runs in the thread that calls [`run`](Self::run), to register other
    /// sources with: signals, timers.
    pub fn reactor(&mut self) -> &mut Reactor<'static, ServerState<V>> {
        self.acceptor.reactor()
    }
}

/// Waits for the threads.
fn end<V: Service>(threads: &ConnectionThreads<V>) -> Ended {
    let cuts = threads.wait_for_end();
    Ended {
        report: threads.lanes.report(),
        cuts,
    }
}

impl<V: Service> Drop for ThreadPerConnection<V> {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It failed, or was never run.
            self.threads.cut(lanes::now());
            self.threads.wait_for_end();
        }
    }
}

impl<V: Service> ThreadPerConnectionBuilder<V> {
    /// Sets the stack of each connection's thread, in bytes (default 256 KiB). The system makes it
    /// larger if it is less than it needs. Only what is touched costs memory.
    #[must_use]
    pub fn stack_bytes(mut self, stack_bytes: usize) -> Self {
        self.model.stack_bytes = stack_bytes;
        self
    }

    /// Sets how many sessions may be called at the same time, and so how many
    /// [`Local`](Service::Local)s there are at most (default 64). They are made when they are first
    /// needed. Sessions that block in their calls need one each; jobs need none.
    #[must_use]
    pub fn calls_max(mut self, calls_max: NonZeroUsize) -> Self {
        self.model.calls_max = calls_max;
        self
    }

    /// Opens the sockets and the acceptor's loop.
    ///
    /// # Errors
    ///
    /// If an address can't be listened on, or the loop can't be opened.
    ///
    /// # Panics
    ///
    /// Passes on the panic of a service that makes its shared part.
    pub fn build(self) -> Result<ThreadPerConnection<V>, BindError> {
        let ThreadPerConnectionModel {
            stack_bytes,
            calls_max,
        } = self.model;
        let lanes = Lanes::new(calls_max.get(), Arc::clone(&self.service), self.limits);
        // One is needed in any case; what is wrong with it is known now.
        lanes.put(lanes.take());
        let threads = ConnectionThreads::new(lanes, stack_bytes).map_err(BindError::Register)?;
        let carrier = Arc::clone(&threads) as Arc<dyn Carrier>;
        let builder = self.with_model(SingleLoop::<V>::MODEL);
        // The acceptor's loop has no sessions, and so no jobs.
        let acceptor = builder.build_with(JobSite::Loop, Serving::Elsewhere(carrier))?;
        let handle = acceptor.handles().swap_remove(0);
        threads.set_acceptor(move || handle.wake());
        Ok(ThreadPerConnection {
            acceptor,
            threads,
            ended: None,
        })
    }
}

methods_of_a_server!(ThreadPerConnection);

impl<V: Service> Server<V> for ThreadPerConnection<V> {
    fn kind(&self) -> ModelKind {
        ModelKind::ThreadPerConnection
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        self.acceptor.local_addrs()
    }

    fn stop_handle(&self) -> StopHandle {
        self.acceptor.stop_handle()
    }

    /// The acceptor, then each `Local` that threads share: whoever has it answers when it puts it
    /// back, and the acceptor for those that nobody has.
    fn threads(&self) -> Vec<ThreadHandle<V>> {
        let mut all = self.acceptor.threads();
        let acceptor = self.acceptor.handles().swap_remove(0);
        for index in 0..self.threads.lanes.count() {
            let (acceptor, threads) = (acceptor.clone(), Arc::clone(&self.threads));
            all.push(ThreadHandle::new(move |visit| {
                let threads = Arc::clone(&threads);
                acceptor.post(move |_, _| threads.lanes.visit(index, visit))
            }));
        }
        all
    }

    fn run(&mut self) -> Result<ServerReport, RunError> {
        let report = self.acceptor.run()?;
        let ended = self.ended.get_or_insert_with(|| end(&self.threads));
        Ok(report + ended.report)
    }

    fn cut_connections(&self) -> Vec<CutConnection> {
        let mut cuts = self.acceptor.cut_connections();
        cuts.extend(self.ended.iter().flat_map(|ended| &ended.cuts));
        cuts
    }

    fn slow_handlers(&self) -> Vec<SlowHandler> {
        Server::slow_handlers(&self.acceptor)
    }
}

impl<V: Service> fmt::Debug for ThreadPerConnection<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPerConnection")
            .field("addrs", &self.local_addrs())
            .finish_non_exhaustive()
    }
}
