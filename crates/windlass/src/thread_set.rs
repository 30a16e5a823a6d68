//! Leader/followers: a set of threads that take turns to wait for a set of handles.
//!
//! ```text
//!             ┌── leader ──┐  takes one event   ┌── handling ──┐
//!   parked ──▶│ waits for  │───────────────────▶│ its handler, │──▶ the next event, or the lead,
//!  (follower) │ all handles│  after promoting a │ unlocked     │    or parked
//!             └────────────┘  follower          └──────────────┘
//! ```
//!
//! One thread, the leader, waits for all handles. What its wait brings becomes active in the
//! engine; the leader gives the lead back, takes one event, *promotes* a follower, and only then
//! runs the handler. No event is handed from thread to thread: whoever takes it handles it. When a
//! handler is done its thread looks for the next event, then for the lead, and parks if another
//! leads.
//!
//! In the words of the pattern, a [`HandleSet`] has [`register_handle`](HandleSet::register_handle),
//! [`deactivate_handle`](HandleSet::deactivate_handle) and
//! [`reactivate_handle`](HandleSet::reactivate_handle), a [`ThreadSet`] has
//! [`join`](ThreadSet::join). Its two other verbs, [`wait_for_event`](Follower::wait_for_event) and
//! [`promote_new_leader`](Led::promote_new_leader), are steps of `join`, and public for loops of a
//! program's own ([`follow`](ThreadSet::follow)): an event can't be handled but after the promotion.
//!
//! # What is promised
//!
//! - Exactly one thread waits in the kernel.
//! - No handle is handled by two threads at once, whatever is registered for it, and no handler
//!   runs in two threads.
//! - An event never waits for a handler that is stuck while a thread is free: a follower is promoted
//!   before the handler is called. If the set's threads are busy on all processors already, one
//!   more could only compete with them; then a thread is on standby, looks around each millisecond,
//!   and takes the place of one whose handler has not returned since it last looked.
//! - One event, timer or activation wakes at most one thread that sleeps. A set with nothing to do
//!   costs nothing.
//!
//! # What it costs
//!
//! A wait brings all that is ready, not one event, and the threads share it through the engine's
//! ready queue: one lock per event, for settling one and taking the next. A promotion is a futex(2)
//! call and a context switch; it is left out while a thread is on its way that has not looked yet,
//! while the busy threads take all processors, and when no thread sleeps: the first that is done
//! looks. So the leader may be the same thread for long, but never while it handles.
//!
//! Edge-triggered handles cost no call to arm them again. Level-triggered ones are silent from
//! their report until their handlers have settled, which costs one epoll_ctl(2) per handler.
//!
//! How many processors there are is asked when the set is made
//! ([`available_parallelism`](std::thread::available_parallelism)).
//!
//! # Back ends
//!
//! With epoll registrations change while the leader waits. With poll and select, if they are
//! forced, each change ends the leader's wait; that is correct and slow.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::os::unix::net::UnixStream;
//! use std::thread;
//! use windlass::Disposition;
//! use windlass::thread_set::{HandleOptions, ThreadSet};
//!
//! let set = ThreadSet::<u32>::new()?;
//! let (mut near, far) = UnixStream::pair()?;
//! set.handles().watch(far, HandleOptions::default(), |calls, cx, mut far, _| {
//!     *calls += 1;
//!     let mut byte = [0];
//!     let _ = far.read(&mut byte);
//!     cx.stop();
//!     Disposition::Keep
//! })?;
//! near.write_all(b"x")?;
//! let calls: u32 = thread::scope(|scope| {
//!     let threads = [(); 4].map(|()| scope.spawn(|| {
//!         let mut calls = 0;
//!         set.join(&mut calls).map(|()| calls)
//!     }));
//!     threads.map(|thread| thread.join().unwrap().unwrap()).iter().sum()
//! });
//! assert_eq!(calls, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: Schmidt, O'Ryan, Pyarali, Kircher, Buschmann, *Leader/Followers* (2000).

mod follower;
mod handle_set;
mod handler;
mod kernel;
#[cfg(all(test, loom))]
mod loom_model;
mod member;
mod system;

use std::fmt;
use std::sync::Arc;
use std::thread;

use windlass_core::RunMode;

pub use self::follower::{Follower, Led, Promoted};
pub use self::handle_set::{HandleOptions, HandleSet, RejectedHandler, WeakHandleSet};
pub use self::handler::{SetContext, SetHandler};
pub use self::kernel::ThreadSetCounters;
pub(crate) use self::member::{Caller, Life, Member};

use self::handler::BoxedHandler;
use self::kernel::{Kernel, Role, Roles};
use self::member::Rests;
use self::system::SystemPoller;
use crate::demultiplexer::BackendConfig;
use crate::event_loop::{OpenError, RunError};

type SetKernel<S> = Kernel<BoxedHandler<S>, SystemPoller>;

/// Threads that take turns to wait for the handles of a [`HandleSet`]. `S` is what each thread has
/// for itself; handlers are called with that of the thread that calls them.
///
/// Its threads are the program's: each calls [`join`](Self::join), or has a loop of its own with a
/// [`Follower`]. They may come at any time.
pub struct ThreadSet<S> {
    kernel: Arc<SetKernel<S>>,
}

/// What becomes of a set that watches nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenEmpty {
    /// It ends: [`ThreadSet::join`] returns in all threads.
    #[default]
    End,
    /// It goes on until it is stopped.
    GoOn,
}

impl<S: 'static> ThreadSet<S> {
    /// A set of threads that take turns to wait, with the back end that is preferred (or that the
    /// environment asks for). It ends when it is empty.
    ///
    /// # Errors
    ///
    /// If there is no such back end, or no descriptor is left.
    pub fn new() -> Result<Self, OpenError> {
        Self::with_config(&BackendConfig::default(), WhenEmpty::End)
    }

    /// The same with another back end.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config(backend: &BackendConfig, when_empty: WhenEmpty) -> Result<Self, OpenError> {
        Self::open(backend, when_empty, Roles::Followers)
    }

    /// A set in which one thread only waits and the others only handle: what is ready is the queue
    /// between them.
    pub(crate) fn with_dispatcher(backend: &BackendConfig) -> Result<Self, OpenError> {
        Self::open(backend, WhenEmpty::GoOn, Roles::Dispatcher)
    }

    fn open(
        backend: &BackendConfig,
        when_empty: WhenEmpty,
        roles: Roles,
    ) -> Result<Self, OpenError> {
        let (poller, waiter, registrar) = SystemPoller::open(backend)?;
        let mode = RunMode {
            no_exit_on_empty: when_empty == WhenEmpty::GoOn,
            ..RunMode::default()
        };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let kernel = Kernel::new(poller, waiter, registrar, roles, processors, mode);
        Ok(Self {
            kernel: Arc::new(kernel),
        })
    }

    /// The handles that are waited for.
    #[must_use]
    pub fn handles(&self) -> HandleSet<S> {
        HandleSet::new(Arc::clone(&self.kernel))
    }

    /// Takes part: waits when it is this thread's turn, and calls handlers with `state`, until the
    /// set is [stopped](HandleSet::stop) or has nothing left to wait for. Once it has ended, it
    /// returns at once.
    ///
    /// # Errors
    ///
    /// If waiting failed, in one of the threads; in the others it returns without an error.
    ///
    /// # Panics
    ///
    /// A panic of a handler ends the set and goes on from here, in the thread that called it. The
    /// handler is dropped; the other threads return when they have done what they do.
    pub fn join(&self, state: &mut S) -> Result<(), RunError> {
        self.enlist(Rank::Handles).run(state, ())
    }

    /// The same; `rest` is called before the thread waits or parks, if it has called handlers since
    /// it last was: the place to write out what was gathered.
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join).
    ///
    /// # Panics
    ///
    /// As [`join`](Self::join).
    pub fn join_with(&self, state: &mut S, rest: impl FnMut(&mut S)) -> Result<(), RunError> {
        self.enlist(Rank::Handles).run(state, Rests(rest))
    }

    /// Takes part with a loop of the thread's own, for which [`join`](Self::join) stands otherwise:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use windlass::thread_set::ThreadSet;
    /// let set = ThreadSet::<u32>::new()?;
    /// set.handles().after(Duration::from_millis(1), |calls, _| *calls += 1)?;
    /// let (mut follower, mut calls) = (set.follow(), 0);
    /// while let Some(led) = follower.wait_for_event()? {
    ///     println!("{:?} happened to {:?}", led.happened(), led.event());
    ///     led.promote_new_leader().handle(&mut calls);
    /// }
    /// assert_eq!(calls, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It costs what `join` costs. A thread that has taken an event and tarries before the promotion
    /// holds up the others, for as long as it does.
    #[must_use]
    pub fn follow(&self) -> Follower<S> {
        let kernel = Arc::clone(&self.kernel);
        let id = kernel.add_member(Role::Follower);
        Follower::new(kernel, id)
    }

    /// Makes a thread known to the set before it takes part, so that it can be
    /// [called](Caller::call).
    pub(crate) fn enlist(&self, rank: Rank) -> Member<S> {
        let role = match (self.kernel.roles(), rank) {
            (Roles::Followers, _) => Role::Follower,
            (Roles::Dispatcher, Rank::Waits) => Role::Dispatcher,
            (Roles::Dispatcher, Rank::Handles) => Role::Worker,
        };
        Member::new(Arc::clone(&self.kernel), role)
    }

    /// How often its threads were woken, so far.
    #[must_use]
    pub fn counters(&self) -> ThreadSetCounters {
        self.kernel.counters()
    }
}

/// What a thread is to do, where that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Handles,
    Waits,
}

impl<S> fmt::Debug for ThreadSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSet")
            .field("kernel", &self.kernel)
            .finish()
    }
}
