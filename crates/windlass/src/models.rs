//! Concurrency models: drivers that carry any [`Service`](crate::session::Service).
//!
//! Each model is a type with a builder. All obey the same [`Limits`] and the same graceful stop, and
//! pause accepting when descriptors, memory or threads run out.
//!
//! ```no_run
//! use std::sync::Arc;
//! use windlass::models::SingleLoop;
//! use windlass::session::{Input, Next, Now, Peer, Progress, Service, Session, SessionContext};
//!
//! /// Sends back what it gets.
//! struct Echo;
//!
//! impl Session for Echo {
//!     type Local = ();
//!     fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
//!         cx.output.push(input.bytes);
//!         let next = if input.ended { Next::Close } else { Next::Read };
//!         Progress { consumed: input.bytes.len(), next }
//!     }
//! }
//!
//! struct EchoService;
//!
//! impl Service for EchoService {
//!     type Local = ();
//!     type Session = Echo;
//!     fn local(&self) {}
//!     fn open(&self, _local: &mut (), _peer: &Peer, _now: Now) -> Echo {
//!         Echo
//!     }
//! }
//!
//! let addr = "127.0.0.1:7007".parse()?;
//! let mut server = SingleLoop::builder(Arc::new(EchoService)).listen(addr).build()?;
//! println!("{}", server.run()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which one
//!
//! | model | who waits | who reads and writes | who computes | choose it when |
//! | --- | --- | --- | --- | --- |
//! | [`SingleLoop`] | one thread | the same | the same; jobs in a pool | answers are short and nothing blocks |
//! | [`MultiLoop`] | one thread per loop | the one whose loop has the connection | the same; jobs in a pool | the same, and one core is not enough |
//! | [`ReactorWorkers`] | one thread | whichever worker is free | the same; jobs in a pool | sessions may block now and then; waiting and handling are kept apart |
//! | [`EmulatedProactor`] | one thread | the same | workers, which see no socket | a proactor's structure is wanted without io_uring |
//! | [`UringProactor`] | one thread | the kernel | the same thread, or workers | io_uring can be had, and system calls are what costs |
//! | [`HalfSyncHalfAsync`] | one I/O thread | the same | workers, which may block | sessions block in their calls |
//! | [`LeaderFollowers`] | the leader, whichever thread is free | each for what it took | the same; jobs in a pool | the same, without a hand-over; few busy connections on several cores |
//! | [`Hybrid`] | one thread per loop | the same | the same; jobs in a pool whose size is given | some requests compute or block, most do not |
//! | [`ThreadPerConnection`] | a thread per connection | the same | the same, and jobs | a small tool; few connections, all of which block |
//! | [`ThreadPool`] | one thread for idle connections, a worker for its own | the worker that has the connection | the same, and jobs | a small tool; a slow peer holds a thread |
//!
//! ```text
//!  SingleLoop            MultiLoop                          LeaderFollowers
//!
//!   listeners             listeners of loop 0   of loop 1     handle set
//!      │                       │                   │              │ one waits: the leader
//!   ┌──▼───┐                ┌──▼───┐            ┌──▼───┐      ┌───▼────┐ promotes a follower,
//!   │ loop │                │ loop │            │ loop │      │ thread │ then handles
//!   └─▲──┬─┘                └─▲──┬─┘            └─▲──┬─┘      └───┬────┘
//!   results jobs              └──┴─── one pool ───┴──┘        thread, thread, … follow
//!
//!  ReactorWorkers, ThreadPool     HalfSyncHalfAsync, proactors with workers     UringProactor
//!
//!   waits ─▶ queue ─▶ workers      waits, reads ─▶ queue ─▶ workers              starts, waits
//!                     read         writes ◀─────── answers ◀─┘                      │  ▲
//!                     compute                                                       ▼  │ completions
//!                     write                                                       kernel
//! ```
//!
//! One loop serves what one core can; it has no shared state at all, and is the one to measure
//! others by. Take several when that core is busy, and the work is in many connections rather than
//! in a few: a connection does not move to another loop. Neither helps a service that computes long
//! or blocks: that belongs in jobs, or in a model whose threads may block. The command
//! `windlass compare` measures all of them on the machine at hand.
//!
//! # Reaching a running server
//!
//! [`ThreadHandle`]s (of [`Server::threads`]) run closures in each thread that calls sessions: to
//! read numbers, to replace the service, to duplicate listeners for a successor. [`StopHandle`]s
//! stop the server. Models of event loops have [`LoopHandle`]s besides, which reach the loop itself.
//!
//! # By name
//!
//! [`ModelKind`] names the models, for programs that let their users choose:
//! `"multi-loop".parse::<ModelKind>()?.builder(service).listen(addr).build()?`.

mod accept_policy;
mod builder;
mod carrier;
mod connection;
mod crew;
mod emulated_proactor;
mod group;
mod half_sync;
mod handle;
mod hybrid;
mod jobs;
mod lane;
mod lane_thread;
mod leader_followers;
mod limits;
mod listening;
mod multi_loop;
mod offload;
mod proactor_server;
mod reactor_workers;
mod report;
mod room;
mod server;
mod single_loop;
mod thread_per_connection;
mod thread_pool;
mod uring_proactor;
mod work_queue;

pub use windlass_sys::net::UnixOptions;

pub use self::builder::ServerBuilder;
pub use self::emulated_proactor::{
    EmulatedProactor, EmulatedProactorBuilder, EmulatedProactorModel,
};
pub use self::group::{Accepting, Dealing};
pub use self::half_sync::{HalfSyncBuilder, HalfSyncDispatch, HalfSyncHalfAsync, HalfSyncModel};
pub use self::handle::{LoopHandle, StopHandle};
pub use self::hybrid::{Hybrid, HybridBuilder, HybridModel};
pub use self::jobs::Jobs;
pub use self::leader_followers::{LeaderFollowers, LeaderFollowersBuilder, LeaderFollowersModel};
pub use self::limits::Limits;
pub use self::listening::BindError;
pub use self::multi_loop::{MultiLoop, MultiLoopBuilder, MultiLoopModel};
pub use self::reactor_workers::{ReactorWorkers, ReactorWorkersBuilder, ReactorWorkersModel};
pub use self::report::{ConnectionPhase, CutConnection, ServerReport};
pub use self::server::{
    AnyModel, AnyServer, LoopNumbers, ModelKind, Server, ServerThread, ThreadHandle, UnknownModel,
};
pub use self::single_loop::{ServerState, SingleLoop, SingleLoopBuilder, SingleLoopModel};
pub use self::thread_per_connection::{
    ThreadPerConnection, ThreadPerConnectionBuilder, ThreadPerConnectionModel,
};
pub use self::thread_pool::{ThreadPool, ThreadPoolBuilder, ThreadPoolModel};
pub use self::uring_proactor::{UringProactor, UringProactorBuilder, UringProactorModel};
pub use self::work_queue::Dispatch;
