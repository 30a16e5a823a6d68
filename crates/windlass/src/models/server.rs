//! Servers of any model behind one interface: chosen by name, run, stopped, and reached thread by
//! thread while they run.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::str::FromStr;
use std::sync::Arc;

use super::builder::ServerBuilder;
use super::handle::StopHandle;
use super::limits::Limits;
use super::listening::BindError;
use super::report::{CutConnection, ServerReport};
use super::{
    EmulatedProactor, HalfSyncHalfAsync, Hybrid, LeaderFollowers, MultiLoop, ReactorWorkers,
    SingleLoop, ThreadPerConnection, ThreadPool, UringProactor,
};
use crate::event_loop::{LagHistogram, PostError, RunError, SlowHandler};
use crate::proactor::{Driver, Fallback};
use crate::session::Service;
use crate::thread_set::ThreadSetCounters;

/// A server of one of the models.
pub trait Server<V: Service>: fmt::Debug {
    /// Which model it is.
    fn kind(&self) -> ModelKind;

    /// The addresses that are listened on, with the ports that were chosen. Unix sockets have none.
    fn local_addrs(&self) -> &[SocketAddr];

    /// A handle that stops the server, from any thread or handler.
    fn stop_handle(&self) -> StopHandle;

    /// Reaches each thread that calls sessions, from any thread. What is posted before the server
    /// runs is called when it does.
    fn threads(&self) -> Vec<ThreadHandle<V>>;

    /// Serves until it is stopped; answers what was done, by all threads together. The threads have
    /// ended then, but for those that are stuck:
    ///
    /// - jobs that run when their connections are cut are not waited for;
    /// - calls of sessions are waited for no longer than a second after that, in the models whose
    ///   threads may block: half-sync/half-async, leader/followers, reactor with workers, thread
    ///   pool, thread per connection. What such a thread counted may be missing;
    /// - in the models that call sessions in event loops, where nothing may block, they are waited
    ///   for.
    ///
    /// What is stuck is left to itself; its peer sees the end of its connection.
    ///
    /// # Errors
    ///
    /// If waiting fails in any thread, or a thread can't be started.
    ///
    /// # Panics
    ///
    /// Passes on the panic of a handler of an event loop that is not
    /// [contained](crate::event_loop::PanicPolicy); and, in models whose threads have no loop, that of
    /// [`Service::local`] or of a closure that was posted. Panics in calls of sessions end their
    /// connections only; not those of a session that is dropped.
    fn run(&mut self) -> Result<ServerReport, RunError>;

    /// What the stop cut, up to 32 connections of each thread; known when [`run`](Self::run) has
    /// returned.
    fn cut_connections(&self) -> Vec<CutConnection>;

    /// The last handlers that ran longer than the limit, if the model has event loops
    /// ([`Reactor::slow_handlers`](crate::event_loop::Reactor::slow_handlers)); known when
    /// [`run`](Self::run) has returned.
    fn slow_handlers(&self) -> Vec<SlowHandler>;

    /// Who carries out the operations that bytes pass by; nothing in models without operations.
    fn proactor_driver(&self) -> Option<Driver> {
        None
    }

    /// Why that is not io_uring, if it is not.
    fn proactor_fallback(&self) -> Option<&Fallback> {
        None
    }
}

/// Gives a model that is a [`Server`] the methods that every program calls, without the trait.
macro_rules! methods_of_a_server {
    ($model:ident) => {
        impl<V: Service> $model<V> {
            /// The addresses that are listened on, with the ports that were chosen. Unix sockets
            /// have none.
            #[must_use]
            pub fn local_addrs(&self) -> &[std::net::SocketAddr] {
                Server::local_addrs(self)
            }

            /// A handle that stops the server, from any thread or handler.
            #[must_use]
            pub fn stop_handle(&self) -> super::StopHandle {
                Server::stop_handle(self)
            }

            /// Serves until it is stopped; answers what was done, by all threads together, which
            /// have ended then unless they are stuck: see [`Server::run`]. Called again after a
            /// stop, it answers the same.
            ///
            /// # Errors
            ///
            /// If waiting fails in any thread, or a thread can't be started.
            ///
            /// # Panics
            ///
            /// As [`Server::run`].
            pub fn run(&mut self) -> Result<super::ServerReport, crate::event_loop::RunError> {
                Server::run(self)
            }

            /// What the stop cut, up to 32 connections of each thread; known when
            /// [`run`](Self::run) has returned.
            #[must_use]
            pub fn cut_connections(&self) -> Vec<super::CutConnection> {
                Server::cut_connections(self)
            }
        }
    };
}
pub(super) use methods_of_a_server;

/// Makes a model a [`Server`] that is another one, set up in a certain way: its `server` and
/// `server_mut`. What it does otherwise may follow in braces.
macro_rules! serve_as_its_inner {
    ($model:ident $({ $($other:item)* })?) => {
        super::server::methods_of_a_server!($model);

        impl<V: Service> Server<V> for $model<V> {
            fn kind(&self) -> ModelKind {
                ModelKind::$model
            }

            fn local_addrs(&self) -> &[std::net::SocketAddr] {
                self.server().local_addrs()
            }

            fn stop_handle(&self) -> super::StopHandle {
                self.server().stop_handle()
            }

            fn threads(&self) -> Vec<super::ThreadHandle<V>> {
                self.server().threads()
            }

            fn run(&mut self) -> Result<super::ServerReport, crate::event_loop::RunError> {
                self.server_mut().run()
            }

            fn cut_connections(&self) -> Vec<super::CutConnection> {
                self.server().cut_connections()
            }

            fn slow_handlers(&self) -> Vec<crate::event_loop::SlowHandler> {
                self.server().slow_handlers()
            }

            $($($other)*)?
        }
    };
}
pub(super) use serve_as_its_inner;

/// A server whose model was chosen at run time.
pub type AnyServer<V> = Box<dyn Server<V>>;

/// The models, by name.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelKind {
    /// [`SingleLoop`].
    SingleLoop,
    /// [`MultiLoop`].
    MultiLoop,
    /// [`ReactorWorkers`].
    ReactorWorkers,
    /// [`HalfSyncHalfAsync`], with a shared queue.
    HalfSyncHalfAsync,
    /// [`LeaderFollowers`].
    LeaderFollowers,
    /// [`EmulatedProactor`].
    EmulatedProactor,
    /// [`UringProactor`], alone; with the emulated driver where io_uring can't be had.
    UringProactor,
    /// [`Hybrid`], with one loop.
    Hybrid,
    /// [`ThreadPerConnection`].
    ThreadPerConnection,
    /// [`ThreadPool`].
    ThreadPool,
}

/// What can be set of a model that is chosen at run time.
#[derive(Clone, Copy, Debug)]
pub struct AnyModel {
    kind: ModelKind,
    threads: Option<NonZeroUsize>,
}

impl ModelKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::SingleLoop,
        Self::MultiLoop,
        Self::ReactorWorkers,
        Self::HalfSyncHalfAsync,
        Self::LeaderFollowers,
        Self::EmulatedProactor,
        Self::UringProactor,
        Self::Hybrid,
        Self::ThreadPerConnection,
        Self::ThreadPool,
    ];

    /// Its name in commands and reports, such as `single-loop`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleLoop => "single-loop",
            Self::MultiLoop => "multi-loop",
            Self::ReactorWorkers => "reactor-workers",
            Self::LeaderFollowers => "leader-followers",
            Self::ThreadPool => "thread-pool",
            Self::HalfSyncHalfAsync => "half-sync-half-async",
            Self::EmulatedProactor => "emulated-proactor",
            Self::UringProactor => "uring-proactor",
            Self::Hybrid => "hybrid",
            Self::ThreadPerConnection => "thread-per-connection",
        }
    }

    /// Starts to build a server of `service`.
    #[must_use]
    pub fn builder<V: Service>(self, service: Arc<V>) -> ServerBuilder<V, AnyModel> {
        let model = AnyModel {
            kind: self,
            threads: None,
        };
        ServerBuilder::new(service, model)
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownModel(name.to_owned()))
    }
}

/// A name that no model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownModel(String);

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no model is called {:?}; there are ", self.0)?;
        for (at, kind) in ModelKind::ALL.into_iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{kind}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownModel {}

impl<V: Service> ServerBuilder<V, AnyModel> {
    /// Sets how many threads the model has of those that it can have several of: loops, workers,
    /// followers. Without it each model has its own default. Models of one thread, or of one for
    /// each connection, have no use for it.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.model.threads = Some(threads);
        self
    }

    /// Opens sockets, loops and threads.
    ///
    /// # Errors
    ///
    /// As the build of the model.
    pub fn build(self) -> Result<AnyServer<V>, BindError> {
        let AnyModel { kind, threads } = self.model;
        Ok(match kind {
            ModelKind::SingleLoop => Box::new(self.with_model(SingleLoop::<V>::MODEL).build()?),
            ModelKind::MultiLoop => {
                let mut builder = self.with_model(MultiLoop::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.loops(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::HalfSyncHalfAsync => {
                let mut builder = self.with_model(HalfSyncHalfAsync::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.workers(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::ReactorWorkers => {
                let mut builder = self.with_model(ReactorWorkers::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.workers(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::LeaderFollowers => {
                let mut builder = self.with_model(LeaderFollowers::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.threads(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::ThreadPool => {
                let mut builder = self.with_model(ThreadPool::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.threads(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::ThreadPerConnection => {
                let builder = self.with_model(ThreadPerConnection::<V>::MODEL);
                Box::new(builder.build()?)
            }
            ModelKind::EmulatedProactor => {
                let mut builder = self.with_model(EmulatedProactor::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.workers(threads);
                }
                Box::new(builder.build()?)
            }
            ModelKind::UringProactor => {
                Box::new(self.with_model(UringProactor::<V>::MODEL).build()?)
            }
            ModelKind::Hybrid => {
                let mut builder = self.with_model(Hybrid::<V>::MODEL);
                if let Some(threads) = threads {
                    builder = builder.workers(threads);
                }
                Box::new(builder.build()?)
            }
        })
    }
}

/// One thread of a server, as a closure sees it that was posted there.
pub trait ServerThread<V: Service> {
    /// The service that this thread opens connections with.
    fn service(&self) -> &Arc<V>;

    /// What the sessions of this thread share.
    fn local(&mut self) -> &mut V::Local;

    /// What this thread did so far.
    fn report(&self) -> ServerReport;

    /// How many connections are open that only this thread handles. Those that several threads
    /// share are told by the first of them.
    fn open_connections(&self) -> usize;

    /// Has this thread open its coming connections with `service`; to be called in each thread of a
    /// server. See [`ServerState::replace_service`](super::ServerState::replace_service), also for
    /// what becomes of open sessions.
    fn replace_service(&mut self, service: Arc<V>);

    /// The limits that this thread obeys.
    fn limits(&self) -> &Limits;

    /// Has this thread obey other limits; to be called in each thread of a server, with the same
    /// ones. See [`ServerState::set_limits`](super::ServerState::set_limits).
    fn set_limits(&mut self, limits: Limits);

    /// Duplicates the sockets that this thread accepts from, if it does; each is told by one thread
    /// only. See [`ServerState::duplicate_listeners`](super::ServerState::duplicate_listeners).
    ///
    /// # Errors
    ///
    /// `EMFILE`.
    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>>;

    /// Leaves the files of the server's Unix listeners where they are when it ends.
    fn keep_socket_files(&self);

    /// The numbers of this thread's event loop, if it has one.
    fn loop_numbers(&self) -> Option<LoopNumbers>;

    /// The numbers of the set of threads that share their connections with this one, if there is
    /// such a set: told by the first of them.
    fn set_numbers(&self) -> Option<ThreadSetCounters> {
        None
    }

    /// What this thread watches, in lines, for people to read.
    fn dump(&self) -> String;
}

/// What an event loop counted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopNumbers {
    /// How late its handlers ran.
    pub lag: LagHistogram,
    /// How long they took, if that is measured.
    pub handler_times: Option<LagHistogram>,
    /// How many ran longer than the limit.
    pub slow_handlers: u64,
}

/// What is posted to a thread.
pub(super) type Visit<V> = Box<dyn FnOnce(&mut dyn ServerThread<V>) + Send>;
/// What posts it.
type PostVisit<V> = dyn Fn(Visit<V>) -> Result<(), PostError> + Send + Sync;

/// Reaches one thread of a server, from any thread.
pub struct ThreadHandle<V: Service>(Arc<PostVisit<V>>);

impl<V: Service> ThreadHandle<V> {
    pub(super) fn new(
        post: impl Fn(Visit<V>) -> Result<(), PostError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(post))
    }

    /// Has the thread call `visit`, soon, also if it is idle.
    ///
    /// # Errors
    ///
    /// If the thread is gone; the closure is dropped. One that was posted and then not called,
    /// because the thread ended first, is dropped too.
    pub fn post(
        &self,
        visit: impl FnOnce(&mut dyn ServerThread<V>) + Send + 'static,
    ) -> Result<(), PostError> {
        (self.0)(Box::new(visit))
    }
}

impl<V: Service> Clone for ThreadHandle<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A panic elsewhere leaves nothing half done in it.
impl<V: Service> UnwindSafe for ThreadHandle<V> {}
impl<V: Service> RefUnwindSafe for ThreadHandle<V> {}

impl<V: Service> fmt::Debug for ThreadHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_name() {
        for kind in ModelKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let unknown = "actor".parse::<ModelKind>().unwrap_err().to_string();
        assert!(unknown.contains("\"actor\""), "{unknown}");
        assert!(unknown.contains("single-loop, multi-loop"), "{unknown}");
    }
}
