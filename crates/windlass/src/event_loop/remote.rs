//! What other threads reach: posting closures, waking, stopping.
//!
//! # How a sleeping loop is woken once
//!
//! A producer publishes its work and then looks whether the loop sleeps; the loop says that it is
//! about to sleep and then looks for work. Both are sequentially consistent, so at least one sees
//! the other: work is never left behind a sleeping loop. The producer that takes the word
//! "asleep" away writes the wake-up channel, once; all others of the burst write nothing, and
//! nobody writes while the loop is busy.
//!
//! # Threads
//!
//! Everything here is shared. The queue's lock is held to push or to swap, never while a closure
//! runs or is dropped.

mod bell;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{error, fmt, io, mem};

use stack_dst::ValueU;
use windlass_core::{Disposition, EventId, Happened, Lifetime, Trigger};
use windlass_sys::wake::WakeFd;

use self::bell::Bell;
use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterError;
use crate::event_loop::handler::EventHandler;
use crate::event_loop::reactor::Reactor;

/// A closure on its way to the loop, in the queue itself if it fits into four words beside its
/// table pointer and the mark that it was called, and needs no more than a word's alignment; else in
/// a box of its own.
type Post<'l, S> = ValueU<dyn Posted<'l, S> + 'l, 6>;

/// A closure that is called at most once, through a reference.
trait Posted<'l, S>: Send {
    fn run(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>);
}

struct Once<F>(Option<F>);

struct Boxed<F>(Box<Once<F>>);

fn pack<'l, S: 'l, F>(run: F) -> Post<'l, S>
where
    F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + Send + 'l,
{
    let once = Once(Some(run));
    if align_of::<Once<F>>() > align_of::<usize>() {
        // The queue's places are aligned for words; to put more there is a panic.
        return pack_boxed(once);
    }
    Post::<'l, S>::new_stable(once, |post| post).unwrap_or_else(pack_boxed)
}

fn pack_boxed<'l, S: 'l, F>(once: Once<F>) -> Post<'l, S>
where
    F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + Send + 'l,
{
    Post::<'l, S>::new_stable(Boxed(Box::new(once)), |post| post)
        .unwrap_or_else(|_| unreachable!("a box is one word"))
}

impl<'l, S, F> Posted<'l, S> for Once<F>
where
    F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + Send,
{
    fn run(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>) {
        if let Some(run) = self.0.take() {
            run(state, cx);
        }
    }
}

impl<'l, S, F> Posted<'l, S> for Boxed<F>
where
    F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + Send,
{
    fn run(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>) {
        self.0.run(state, cx);
    }
}

/// The part of a loop that all threads share.
pub(super) struct Remote<'l, S> {
    bell: Arc<WakeFlag>,
    inbox: Mutex<Inbox<'l, S>>,
}

/// What wakes the loop and what it is woken for, without the closures.
#[derive(Debug)]
pub(crate) struct WakeFlag {
    bell: Bell,
    stop: AtomicBool,
    fd: WakeFd,
    /// Events to activate: completions and wakers.
    events: Mutex<Vec<EventId>>,
}

struct Inbox<'l, S> {
    posts: Vec<Post<'l, S>>,
    closed: bool,
}

impl<S> Remote<'_, S> {
    pub(super) fn open() -> io::Result<Self> {
        let bell = Arc::new(WakeFlag {
            bell: Bell::default(),
            stop: AtomicBool::new(false),
            fd: WakeFd::new()?,
            events: Mutex::default(),
        });
        let inbox = Mutex::new(Inbox {
            posts: Vec::new(),
            closed: false,
        });
        Ok(Self { bell, inbox })
    }
}

impl<'l, S> Remote<'l, S> {
    fn inbox(&self) -> MutexGuard<'_, Inbox<'l, S>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn flag(&self) -> &Arc<WakeFlag> {
        &self.bell
    }

    /// Wakes the loop; its wake handler runs.
    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    /// Takes a stop that another thread asked for.
    #[inline]
    pub(super) fn take_stop(&self) -> bool {
        self.bell.stop.load(Ordering::Relaxed) && self.bell.stop.swap(false, Ordering::AcqRel)
    }

    /// Whether there is work for the wake handler.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.bell.bell.has_work()
    }

    /// The loop is about to wait. Answers whether it may: there is no work.
    #[inline]
    pub(super) fn fall_asleep(&self) -> bool {
        self.bell.bell.fall_asleep()
    }

    /// The loop is back from its wait.
    #[inline]
    pub(super) fn wake_up(&self) {
        self.bell.bell.wake_up();
    }

    /// After a fork.
    pub(super) fn reinit(&self) -> io::Result<()> {
        self.bell.fd.reinit()
    }

    /// No more posts are taken; those that are queued are dropped.
    pub(super) fn close(&self) {
        let posts = {
            let mut inbox = self.inbox();
            inbox.closed = true;
            mem::take(&mut inbox.posts)
        };
        // Dropping closures runs the program's code: without the lock.
        drop(posts);
    }

    fn post(&self, post: Post<'l, S>) -> Result<(), Post<'l, S>> {
        {
            let mut inbox = self.inbox();
            if inbox.closed {
                return Err(post);
            }
            inbox.posts.push(post);
            if inbox.posts.len() > 1 {
                // Whoever pushed the first of these rings.
                return Ok(());
            }
        }
        self.bell.ring();
        Ok(())
    }

    fn swap_posts(&self, empty: &mut Vec<Post<'l, S>>) {
        mem::swap(&mut self.inbox().posts, empty);
    }
}

impl WakeFlag {
    /// Publishes that there is work, and wakes the loop if it sleeps. Async-signal-safe.
    pub(crate) fn ring(&self) {
        if self.bell.ring() {
            // It can't fail: the descriptor is open as long as this, and a full counter wakes too.
            let _ = self.fd.notify();
        }
    }

    /// Has the loop activate `event`.
    pub(crate) fn complete(&self, event: EventId) {
        self.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
        self.ring();
    }
}

/// Sends closures to a loop from any thread.
///
/// Closures run in the order in which they were posted, by one thread or, between threads, in some
/// order; in the loop's thread, with the program's state. A poster does not keep its loop running.
pub struct Poster<'l, S> {
    remote: Arc<Remote<'l, S>>,
}

impl<'l, S: 'l> Poster<'l, S> {
    /// Has the loop call `run`, in a turn to come. Wakes it if it waits: once for a burst.
    ///
    /// Closures of up to four words are not allocated.
    ///
    /// # Errors
    ///
    /// If the loop is gone; the closure is dropped.
    pub fn post<F>(&self, run: F) -> Result<(), PostError>
    where
        F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + Send + 'l,
    {
        self.remote.post(pack(run)).map_err(|_| PostError)
    }

    /// Wakes the loop, for nothing.
    pub fn wake(&self) {
        self.remote.wake();
    }

    /// Ends the run that is under way, when the active handlers of its turn have run; or, if none
    /// is, the next one at once. Never lost. Async-signal-safe.
    pub fn stop(&self) {
        self.remote.bell.stop.store(true, Ordering::Release);
        self.remote.wake();
    }
}

impl<S> Clone for Poster<'_, S> {
    fn clone(&self) -> Self {
        Self {
            remote: Arc::clone(&self.remote),
        }
    }
}

impl<S> fmt::Debug for Poster<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

/// The loop that was posted to is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError;

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("post to an event loop: it is gone")
    }
}

impl error::Error for PostError {}

/// Makes one handler of a loop run, from any thread or signal handler. Wakes merge; after the
/// last one at least one call begins.
#[derive(Clone, Debug)]
pub struct Waker {
    state: Arc<WakerState>,
    flag: Arc<WakeFlag>,
}

#[derive(Debug, Default)]
pub(super) struct WakerState {
    pending: AtomicBool,
}

impl Waker {
    /// Has the handler run. Async-signal-safe; one atomic operation if it is to run already.
    pub fn wake(&self) {
        if !self.state.pending.swap(true, Ordering::AcqRel) {
            self.flag.ring();
        }
    }
}

/// The loop's end of the wake-up channel: runs what was posted, activates what completed.
pub(super) struct WakeHandler<'l, S> {
    remote: Arc<Remote<'l, S>>,
    /// Posts that are being run, those that have run included: they run where they lie.
    running: Vec<Post<'l, S>>,
    /// How many of them have been called.
    called: usize,
    events: Vec<EventId>,
    /// Whether the channel is watched for edges, and so need not be emptied.
    edge: bool,
}

impl<'l, S> WakeHandler<'l, S> {
    pub(super) fn new(remote: Arc<Remote<'l, S>>, edge: bool) -> Self {
        Self {
            remote,
            running: Vec::new(),
            called: 0,
            events: Vec::new(),
            edge,
        }
    }

    pub(super) fn trigger(edge: bool) -> Trigger {
        if edge { Trigger::Edge } else { Trigger::Level }
    }
}

impl<'l, S: 'l> EventHandler<'l, S> for WakeHandler<'l, S> {
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        _happened: Happened,
    ) -> Disposition {
        if !self.edge {
            // It can't fail, as it is non-blocking and open.
            let _ = self.remote.bell.fd.drain();
        }
        // Before the queues are emptied: what comes after this rings again.
        self.remote.bell.bell.answer();
        cx.activate_wakers();
        {
            let mut events = self
                .remote
                .bell
                .events
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            mem::swap(&mut *events, &mut self.events);
        }
        for event in self.events.drain(..) {
            // Gone: nobody waits for the completion any more.
            let _ = cx.activate(event, 1);
        }
        if self.running.is_empty() {
            self.remote.swap_posts(&mut self.running);
        } else {
            // A panic left these. Those that came since have had their only ring, just answered.
            self.remote.wake();
        }
        // Not more than was there: I/O has its turn between two bursts. A panic leaves the rest
        // for the next call.
        cx.post_ran |= !self.running.is_empty();
        while let Some(post) = self.running.get_mut(self.called) {
            self.called += 1;
            post.run(state, cx);
        }
        self.called = 0;
        self.running.clear();
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.remote.bell.fd.as_fd())
    }

    fn survives_panic(&self) -> bool {
        true
    }
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// What wakes this loop to have an event activated.
    pub(crate) fn wake_flag(&self) -> Arc<WakeFlag> {
        Arc::clone(self.remote.flag())
    }

    /// A handle through which other threads post closures, wake and stop this loop.
    #[must_use]
    pub fn poster(&self) -> Poster<'l, S> {
        Poster {
            remote: Arc::clone(&self.remote),
        }
    }

    /// Makes a handler that runs when its [`Waker`] was used, from any thread or signal handler.
    /// It does not keep the loop running.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn waker<F>(&mut self, mut run: F) -> Result<(EventId, Waker), RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        let state = Arc::new(WakerState::default());
        let handler = Box::new(
            move |program: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| run(program, cx),
        );
        let place = std::panic::Location::caller();
        let event = self.insert_user(handler, Lifetime::Persistent, place)?;
        if self.wakers.len() == self.wakers.capacity() {
            // Those that were removed and never used again.
            let engine = &self.engine;
            self.wakers
                .retain(|(event, _)| engine.state(*event).is_some());
        }
        self.wakers.push((event, Arc::clone(&state)));
        Ok((
            event,
            Waker {
                state,
                flag: Arc::clone(self.remote.flag()),
            },
        ))
    }

    /// Activates the events of the wakers that were used; the flag is cleared before the handler
    /// runs, so that a wake during it is not lost.
    fn activate_wakers(&mut self) {
        let mut at = 0;
        while at < self.wakers.len() {
            let (event, state) = &self.wakers[at];
            let event = *event;
            if state.pending.swap(false, Ordering::AcqRel) && self.activate(event, 1).is_err()
                || self.engine.state(event).is_none()
            {
                self.wakers.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
}
