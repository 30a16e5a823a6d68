//! The kernel of a thread set: an engine behind a mutex, who leads, who is parked, who is woken.
//!
//! A thread that has nothing to do calls [`Kernel::next`], which settles what it has done, and
//! comes back with an event to handle. In between the thread may have led: waited for events, made
//! them active, and given the leadership back before anything else.
//!
//! # Invariants
//!
//! - The leadership is one value. It is free (in the shared state), or the local of the one thread
//!   that waits: then `waiting` says for how long.
//! - Whenever the lock is released while there is something to do (an event is ready, or nobody
//!   waits and followers may lead) and a thread sleeps, one thread is coming, or the busy threads
//!   take all processors and one is on standby ([`ranks`]).
//! - A thread that settles a handler looks itself: it wakes nobody for what it takes.
//! - A payload is dropped without the lock, and when the kernel has forgotten its handle; by a
//!   thread that is busy, as with a handler: it may take long, and is replaced before.
//!
//! # Threads
//!
//! Everything is under one mutex, which is held for single calls of the engine and the system calls
//! that register; never while a payload runs or is dropped, or a thread waits.

mod change;
mod poller;
pub(super) mod ranks;
mod sleep;
mod work;

use std::fmt;
use std::io;
use std::time::Duration;

use windlass_core::{
    Batch, Call, Change, Disposition, Engine, EngineConfig, HandleId, HandleSharing, Instant,
    Notify, RunMode, Settled, Step, Turn, Wait, WaitPlan,
};

pub(super) use self::poller::Poller;
use self::ranks::{MemberId, Ranks};
use self::work::Wake;
pub(super) use self::work::{Done, Promotion, Refused, RefusedKind, Rested, Taken, Work};
use crate::sync::thread;
use crate::sync::{Mutex, MutexGuard, lock};

/// Who waits and who handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roles {
    /// All take turns to wait.
    Followers,
    /// One thread only waits, the others only handle.
    Dispatcher,
}

/// What one thread of a set does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Both, in turns.
    Follower,
    /// It only waits.
    Dispatcher,
    /// It only handles.
    Worker,
}

impl Role {
    fn handles(self) -> bool {
        self != Self::Dispatcher
    }

    fn leads(self) -> bool {
        self != Self::Worker
    }
}

/// How often threads were woken, and waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSetCounters {
    /// Handlers called.
    pub calls: u64,
    /// Threads that slept and were woken because there was something to do.
    pub follower_wakes: u64,
    /// Times that the leader's wait was ended from another thread.
    pub leader_wakes: u64,
    /// Waits of leaders, those that do not block included.
    pub waits: u64,
}

/// See the module.
pub(super) struct Kernel<P, D: Poller> {
    shared: Mutex<Shared<P, D>>,
    pub(super) poller: D,
    roles: Roles,
}

/// The right to wait, and what the leader waits with. Not `Clone`: there is one.
struct Leadership<W> {
    waiter: W,
    batch: Batch,
}

struct Shared<P, D: Poller> {
    engine: Engine<P>,
    registrar: D::Registrar,
    /// There unless a thread waits.
    leadership: Option<Leadership<D::Waiter>>,
    /// Who waits, and for how long.
    waiting: Option<(MemberId, Wait)>,
    /// Whether its wait was ended already.
    is_rung: bool,
    /// The turn whose events are being handled, and its time.
    turn: Option<Turn>,
    turn_now: Instant,
    ranks: Ranks,
    is_stopped: bool,
    error: Option<io::Error>,
    counters: ThreadSetCounters,
    changes: Vec<Change>,
    /// To be dropped without the lock, when no changes are left.
    released: Vec<P>,
    no_reports: Batch,
}

enum Look<P, W> {
    Call(Call<P>),
    Lead(Leadership<W>, WaitPlan, Wait),
    Over,
    Park,
    Pause,
}

type Guard<'a, P, D> = MutexGuard<'a, Shared<P, D>>;

impl<P, D: Poller> Kernel<P, D> {
    pub(super) fn new(
        poller: D,
        waiter: D::Waiter,
        registrar: D::Registrar,
        roles: Roles,
        processors: usize,
        mode: RunMode,
    ) -> Self {
        let mut engine = Engine::new(EngineConfig {
            handle_sharing: HandleSharing::Exclusive,
            notify: Notify::Once,
            ..EngineConfig::default()
        });
        engine.begin_run(mode);
        let batch = Batch::new();
        let shared = Shared {
            engine,
            registrar,
            leadership: Some(Leadership { waiter, batch }),
            waiting: None,
            is_rung: false,
            turn: None,
            turn_now: poller.now(),
            ranks: Ranks::new(processors),
            is_stopped: false,
            error: None,
            counters: ThreadSetCounters::default(),
            changes: Vec::new(),
            released: Vec::new(),
            no_reports: Batch::new(),
        };
        Self {
            shared: Mutex::new(shared),
            poller,
            roles,
        }
    }

    /// One more thread, which has not begun yet.
    pub(super) fn add_member(&self, role: Role) -> MemberId {
        self.lock().ranks.add(role)
    }

    /// Who waits and who handles.
    pub(super) fn roles(&self) -> Roles {
        self.roles
    }

    /// To be called by the member's thread, once, before [`next`](Self::next).
    pub(super) fn begin(&self, me: MemberId) {
        self.lock().ranks.begin(me, thread::current());
    }

    /// Settles what the thread has done, and answers what it is to do; may wait in between, once
    /// the thread has rested.
    pub(super) fn next(&self, me: MemberId, done: Option<Done<P>>, rested: Rested) -> Work<P> {
        let mut shared = self.lock();
        shared.ranks.end_step(me);
        if let Some(done) = done {
            self.settle(&mut shared, done);
        }
        loop {
            if shared.is_stopped {
                // Of handles that were removed meanwhile: their handlers can be dropped then.
                self.apply(&mut shared);
                self.release(shared, Wake::default());
                return Work::Over;
            }
            if shared.can_drop() {
                shared = self.drop_released(shared, me);
                continue;
            }
            if shared.ranks.take_called(me) {
                return self.leave_for(shared, me, Work::Called);
            }
            let role = shared.ranks.role(me);
            match self.look(&mut shared, role) {
                Look::Call(call) => {
                    shared.counters.calls += 1;
                    shared.ranks.begin_step(me);
                    let now = shared.turn_now;
                    let wake = shared.promote_new_leader(self.roles);
                    let promotion = Self::unlock(shared, wake);
                    return Work::Call(Taken {
                        call,
                        now,
                        promotion,
                    });
                }
                // It has just told the kernel of a removal.
                Look::Lead(leadership, ..) if shared.can_drop() => {
                    shared.leadership = Some(leadership);
                }
                Look::Park | Look::Pause if shared.can_drop() => {}
                Look::Lead(leadership, ..) if rested == Rested::No => {
                    shared.leadership = Some(leadership);
                    return self.leave_for(shared, me, Work::Rest);
                }
                Look::Park if rested == Rested::No => {
                    return self.leave_for(shared, me, Work::Rest);
                }
                Look::Lead(leadership, plan, wait) => {
                    shared = self.wait_for_event(shared, me, leadership, (plan, wait));
                }
                Look::Park => shared = self.park(shared, me),
                Look::Pause => shared = self.pause(shared, me),
                Look::Over => self.stop_all(&mut shared),
            }
        }
    }

    /// The member's thread is none of the set any more; settles what it has done. Its place may be
    /// another's from now on, unless the set has ended.
    pub(super) fn leave(&self, me: MemberId, done: Option<Done<P>>) {
        let mut shared = self.lock();
        shared.ranks.end_step(me);
        if let Some(done) = done {
            self.settle(&mut shared, done);
        }
        let mut wake = Wake::default();
        if !shared.is_stopped {
            shared.ranks.remove(me);
            // To what it would have looked for.
            wake = shared.promote_new_leader(self.roles);
        }
        self.release(shared, wake);
    }

    /// The thread goes to do something that may take long; first it is replaced.
    #[inline]
    fn leave_for(&self, mut shared: Guard<'_, P, D>, me: MemberId, work: Work<P>) -> Work<P> {
        shared.ranks.begin_step(me);
        let wake = shared.promote_new_leader(self.roles);
        self.release(shared, wake);
        work
    }

    /// Drops what was released, which is the program's and may take long.
    #[cold]
    fn drop_released<'a>(&'a self, mut shared: Guard<'a, P, D>, me: MemberId) -> Guard<'a, P, D> {
        shared.ranks.begin_step(me);
        let wake = shared.promote_new_leader(self.roles);
        self.release(shared, wake);
        let mut shared = self.lock();
        shared.ranks.end_step(me);
        shared
    }

    /// Takes the next ready event, or the leadership, or neither.
    fn look(&self, shared: &mut Shared<P, D>, role: Role) -> Look<P, D::Waiter> {
        loop {
            if role.handles()
                && let Some(mut turn) = shared.turn.take()
            {
                let now = shared.turn_now;
                if let Some(call) = shared.engine.dispatch(&mut turn, now) {
                    shared.turn = Some(turn);
                    return Look::Call(call);
                }
                // It says how a run for one pass ends, which a set's is not.
                let _ = shared.engine.finish(turn);
            }
            // First: what fails becomes active, and the plan must know of it.
            self.apply(shared);
            let plan = match shared.engine.prepare() {
                Step::Wait(plan) => plan,
                Step::Stop(_) => return Look::Over,
            };
            let is_ready = plan.wait() == Wait::Poll;
            let may_lead = role.leads() && shared.leadership.is_some();
            if is_ready && role.handles() && !may_lead {
                // Somebody else waits: what is ready needs no wait.
                let now = self.poller.now();
                let mut batch = std::mem::take(&mut shared.no_reports);
                let turn = shared.engine.activate(plan.waited(), &mut batch, now);
                shared.no_reports = batch;
                shared.begin_turn(turn, now);
                continue;
            }
            if is_ready && role == Role::Dispatcher && shared.ranks.is_filled_by_one() {
                // All processors have enough to do.
                return Look::Pause;
            }
            let Some(leadership) = shared.leadership.take_if(|_| may_lead) else {
                return Look::Park;
            };
            let wait = if role.handles() {
                plan.wait()
            } else {
                // What is ready is for the others.
                let deadline = shared.engine.next_deadline();
                deadline.map_or(Wait::Forever, Wait::Until)
            };
            return Look::Lead(leadership, plan, wait);
        }
    }

    /// What the leader does: waits, makes active what that brought, gives the leadership back.
    fn wait_for_event<'a>(
        &'a self,
        mut shared: Guard<'a, P, D>,
        me: MemberId,
        mut leadership: Leadership<D::Waiter>,
        (plan, wait): (WaitPlan, Wait),
    ) -> Guard<'a, P, D> {
        let is_armed = self.poller.is_armed(&shared.registrar);
        let wait = if is_armed { Wait::Poll } else { wait };
        shared.waiting = Some((me, wait));
        shared.is_rung = false;
        shared.counters.waits += 1;
        shared.ranks.set_waiting(me, true);
        // A dispatcher leaves what is ready to the others.
        let wake = match self.roles {
            Roles::Dispatcher => shared.promote_new_leader(self.roles),
            Roles::Followers => Wake::default(),
        };
        self.release(shared, wake);
        let timeout = match wait {
            Wait::Forever => None,
            Wait::Poll => Some(Duration::ZERO),
            Wait::Until(end) => Some(end.saturating_since(self.poller.now())),
        };
        let Leadership { waiter, batch } = &mut leadership;
        let waited = self.poller.wait(waiter, batch, timeout);
        let now = self.poller.now();
        let mut shared = self.lock();
        shared.waiting = None;
        shared.ranks.set_waiting(me, false);
        if is_armed {
            self.poller.report(&mut shared.registrar, batch);
        }
        let turn = shared.engine.activate(plan.waited(), batch, now);
        let stale = turn.stale();
        shared.begin_turn(turn, now);
        let cleared = match stale {
            Some(handle) => self.clear_orphan(&mut shared, waiter, handle),
            None => Ok(()),
        };
        shared.leadership = Some(leadership);
        if let Err(error) = waited.and(cleared) {
            shared.error.get_or_insert(error);
            self.stop_all(&mut shared);
        }
        shared
    }

    #[cold]
    fn clear_orphan(
        &self,
        shared: &mut Shared<P, D>,
        waiter: &mut D::Waiter,
        handle: HandleId,
    ) -> io::Result<()> {
        if self
            .poller
            .forget_orphan(&mut shared.registrar, waiter, handle)?
        {
            // Applied before the next wait.
            shared.engine.mark_all_unapplied();
        }
        Ok(())
    }

    fn settle(&self, shared: &mut Shared<P, D>, done: Done<P>) {
        let Done {
            token,
            payload,
            answer,
        } = done;
        match answer {
            Some(answer) => {
                let now = match answer {
                    Disposition::Rearm => self.poller.now(),
                    _ => Instant::ZERO,
                };
                let settled = shared.engine.settle(token, payload, answer, now);
                if let Settled::Released(payload) = settled {
                    shared.released.push(payload);
                }
            }
            None => {
                shared.engine.abandon(token);
                shared.released.push(payload);
            }
        }
        if shared.engine.has_changes() {
            self.apply(shared);
        }
        if shared.must_wake_leader(&self.poller) {
            // For an earlier deadline, or a change that only the leader can make. What is ready the
            // thread looks for itself.
            self.poller.wake();
        }
    }

    /// Has `member` come back from [`next`](Self::next) with [`Work::Called`], as soon as it has
    /// done what it does.
    pub(super) fn call(&self, member: MemberId) {
        let mut shared = self.lock();
        let leads = shared.waiting.is_some_and(|(leader, _)| leader == member);
        let leader = leads && shared.ring_leader();
        let thread = shared.ranks.call(member);
        self.release(shared, Wake { thread, leader });
    }

    /// Ends the set: threads come back when they have done what they do.
    pub(super) fn stop(&self) {
        let mut shared = self.lock();
        self.stop_all(&mut shared);
        self.release(shared, Wake::default());
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    pub(super) fn counters(&self) -> ThreadSetCounters {
        let shared = self.lock();
        ThreadSetCounters {
            follower_wakes: shared.ranks.wakes,
            ..shared.counters
        }
    }

    /// Reads something of the engine, which nobody must be woken for.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Engine<P>) -> R) -> R {
        read(&self.lock().engine)
    }

    fn stop_all(&self, shared: &mut Shared<P, D>) {
        shared.is_stopped = true;
        while let Some(thread) = shared.ranks.wake_any() {
            thread.unpark();
        }
        // Whoever was chosen to be woken may never be: a promotion can be forgotten.
        if let Some(thread) = shared.ranks.thread_coming() {
            thread.unpark();
        }
        if shared.waiting.is_some() {
            self.poller.wake();
        }
    }

    fn lock(&self) -> Guard<'_, P, D> {
        lock(&self.shared)
    }

    /// Releases the lock, then wakes, then drops what was released.
    #[inline]
    fn release(&self, shared: Guard<'_, P, D>, wake: Wake) {
        self.promote(Self::unlock(shared, wake));
    }

    /// Releases the lock; answers what is to be done without it.
    #[inline]
    fn unlock(mut shared: Guard<'_, P, D>, wake: Wake) -> Promotion<P> {
        let released = if shared.can_drop() {
            std::mem::take(&mut shared.released)
        } else {
            Vec::new()
        };
        drop(shared);
        Promotion { wake, released }
    }

    /// Wakes the thread that was chosen, if one was.
    #[inline]
    pub(super) fn promote(&self, promotion: Promotion<P>) {
        let Promotion { wake, released } = promotion;
        if let Some(thread) = wake.thread {
            thread.unpark();
        }
        if wake.leader {
            self.poller.wake();
        }
        drop(released);
    }
}

impl<P, D: Poller> Shared<P, D> {
    /// Begins a turn. One that is under way ends: what it left is in the new one.
    fn begin_turn(&mut self, turn: Turn, now: Instant) {
        if let Some(old) = self.turn.replace(turn) {
            let _ = self.engine.finish(old);
        }
        self.turn_now = now;
    }

    /// Whether payloads can be dropped: the kernel has forgotten their handles.
    #[inline]
    fn can_drop(&self) -> bool {
        !self.released.is_empty() && !self.engine.has_changes()
    }

    /// Whether there is something to do for a thread that handles.
    fn has_work(&self, roles: Roles) -> bool {
        let nobody_waits = match roles {
            Roles::Followers => self.leadership.is_some(),
            Roles::Dispatcher => self.ranks.has_paused(),
        };
        nobody_waits || self.engine.has_ready()
    }

    /// For a thread that goes to do something that may take long: whom to wake in its place, if
    /// there is anything to do.
    #[inline]
    fn promote_new_leader(&mut self, roles: Roles) -> Wake {
        let mut wake = Wake::default();
        if self.has_work(roles) {
            wake.thread = self.ranks.send();
            if self.waiting.is_some() && self.is_unserved(roles) {
                wake.leader = self.ring_leader();
            }
        }
        wake
    }

    /// After a change from outside of [`Kernel::next`]: whom to wake.
    fn wakes(&mut self, poller: &D, roles: Roles) -> Wake {
        let mut wake = self.promote_new_leader(roles);
        wake.leader |= self.must_wake_leader(poller);
        wake
    }

    /// Whether events are ready that only the waiting leader is free for.
    fn is_unserved(&self, roles: Roles) -> bool {
        roles == Roles::Followers && self.ranks.is_exhausted() && self.engine.has_ready()
    }

    /// Whether the wait of the leader must end now, for another reason than ready events. It is
    /// asked once per change.
    fn must_wake_leader(&mut self, poller: &D) -> bool {
        let Some((_, wait)) = self.waiting else {
            return false;
        };
        (self.engine.outlasts(wait) || poller.is_armed(&self.registrar)) && self.ring_leader()
    }

    /// Whether this is the first who ends the leader's wait, if that blocks.
    fn ring_leader(&mut self) -> bool {
        if self.is_rung || self.waiting.is_none_or(|(_, wait)| wait == Wait::Poll) {
            return false;
        }
        self.is_rung = true;
        self.counters.leader_wakes += 1;
        true
    }
}

impl<P, D: Poller> fmt::Debug for Kernel<P, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}
