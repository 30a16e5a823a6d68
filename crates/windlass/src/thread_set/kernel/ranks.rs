//! The ranks of a set's threads: who is busy, who is parked, who is on standby, who is coming.
//!
//! # Invariants
//!
//! - A thread is *busy* if it looks for something to do or handles; not if it is parked, on standby,
//!   waits as the leader, or is slow. `busy` counts those that are, and those that were woken to be.
//! - At most one thread is *coming*: it was woken for work and has not looked yet.
//! - At most one thread is on *standby*: it naps, and looks around after each nap. It is called up
//!   when work is left while the busy threads take all processors already: waking one more would
//!   only have it compete with those. What it looks for is a handler that has run for a whole nap:
//!   its thread is *slow*, and does not count as busy until it is back.

use std::time::Duration;

use super::Role;
use crate::sync::thread::Thread;

/// How long a thread on standby naps.
pub(in crate::thread_set) const NAP: Duration = Duration::from_millis(1);

/// A thread of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread_set) struct MemberId(usize);

/// See the module.
#[derive(Debug)]
pub(super) struct Ranks {
    members: Vec<Member>,
    /// Places of members that left.
    free: Vec<MemberId>,
    /// The last one on top: its caches are warm.
    parked: Vec<MemberId>,
    coming: Option<MemberId>,
    standby: Option<MemberId>,
    busy: usize,
    /// How many busy threads are enough.
    processors: usize,
    /// How often members went to do something, so far, and when the nap began.
    steps: u64,
    steps_before_nap: u64,
    /// The dispatcher, if it waits until the others have nothing left to do.
    is_paused: Option<MemberId>,
    pub(super) wakes: u64,
}

#[derive(Debug)]
struct Member {
    role: Role,
    thread: Option<Thread>,
    rank: Rank,
    is_called: bool,
    /// What it does, by number; 0: it looks, or sleeps.
    step: u64,
    step_before_nap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// It waits, or has not begun, or only dispatches.
    Apart,
    Busy,
    Parked,
    /// Woken to nap.
    CalledUp,
    Napping,
    Slow,
}

/// What a thread on standby does after a nap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterNap {
    Nap,
    Park,
    Work,
}

impl Ranks {
    pub(super) fn new(processors: usize) -> Self {
        Self {
            members: Vec::new(),
            free: Vec::new(),
            parked: Vec::new(),
            coming: None,
            standby: None,
            busy: 0,
            processors,
            steps: 0,
            steps_before_nap: 0,
            is_paused: None,
            wakes: 0,
        }
    }

    pub(super) fn add(&mut self, role: Role) -> MemberId {
        let member = Member {
            role,
            thread: None,
            rank: Rank::Apart,
            is_called: false,
            step: 0,
            step_before_nap: 0,
        };
        if let Some(id) = self.free.pop() {
            self.members[id.0] = member;
            return id;
        }
        self.members.push(member);
        MemberId(self.members.len() - 1)
    }

    /// The member is gone, which is awake. Its place is the next one's.
    pub(super) fn remove(&mut self, me: MemberId) {
        self.set_rank(me, Rank::Apart);
        self.members[me.0].thread = None;
        self.free.push(me);
    }

    pub(super) fn role(&self, member: MemberId) -> Role {
        self.members[member.0].role
    }

    /// The member's thread begins to look for something to do.
    pub(super) fn begin(&mut self, me: MemberId, thread: Thread) {
        self.members[me.0].thread = Some(thread);
        self.set_rank(me, Rank::Busy);
    }

    fn set_rank(&mut self, member: MemberId, rank: Rank) {
        let member = &mut self.members[member.0];
        if member.role.handles() {
            self.busy -= usize::from(member.rank == Rank::Busy);
            self.busy += usize::from(rank == Rank::Busy);
        }
        member.rank = rank;
    }

    /// Whether the busy threads take all processors.
    pub(super) fn is_full(&self) -> bool {
        self.busy >= self.processors
    }

    /// Whether they will when one more was woken, if one can be.
    pub(super) fn is_filled_by_one(&self) -> bool {
        let can_send = self.coming.is_none() && !self.parked.is_empty();
        self.busy + usize::from(can_send) >= self.processors
    }

    /// Whether the dispatcher waits for the others.
    pub(super) fn has_paused(&self) -> bool {
        self.is_paused.is_some()
    }

    /// Whether nobody sleeps that could be woken.
    pub(super) fn is_exhausted(&self) -> bool {
        self.parked.is_empty() && self.standby.is_none() && self.coming.is_none()
    }

    /// The thread goes to do something that may take long.
    #[inline]
    pub(super) fn begin_step(&mut self, me: MemberId) {
        self.steps += 1;
        self.members[me.0].step = self.steps;
    }

    /// The thread is back, and looks for something to do.
    #[inline]
    pub(super) fn end_step(&mut self, me: MemberId) {
        self.members[me.0].step = 0;
        if self.members[me.0].rank == Rank::Slow {
            self.set_rank(me, Rank::Busy);
        }
    }

    /// The thread goes to wait as the leader, or is back.
    #[inline]
    pub(super) fn set_waiting(&mut self, me: MemberId, waits: bool) {
        self.set_rank(me, if waits { Rank::Apart } else { Rank::Busy });
    }

    /// There is work that no busy thread takes for certain: whom to wake.
    #[inline]
    pub(super) fn send(&mut self) -> Option<Thread> {
        if self.coming.is_some() || self.is_full() && self.standby.is_some() {
            return None;
        }
        self.send_one()
    }

    fn send_one(&mut self) -> Option<Thread> {
        let rank = if self.is_full() {
            Rank::CalledUp
        } else {
            Rank::Busy
        };
        let member = self.parked.last().copied().or(self.standby)?;
        let thread = self.wake(member, rank);
        self.coming = Some(member);
        self.wakes += 1;
        thread
    }

    /// Has a thread that sleeps look whether it was called.
    pub(super) fn call(&mut self, member: MemberId) -> Option<Thread> {
        self.members[member.0].is_called = true;
        let sleeps = matches!(self.members[member.0].rank, Rank::Parked | Rank::Napping);
        sleeps.then(|| self.wake(member, Rank::Busy)).flatten()
    }

    pub(super) fn take_called(&mut self, me: MemberId) -> bool {
        std::mem::take(&mut self.members[me.0].is_called)
    }

    /// The thread that was chosen to be woken, and has not looked yet.
    pub(super) fn thread_coming(&self) -> Option<Thread> {
        self.members[self.coming?.0].thread.clone()
    }

    /// Wakes all that sleep, one after the other.
    pub(super) fn wake_any(&mut self) -> Option<Thread> {
        let member = self.parked.last().copied().or(self.standby);
        match member {
            Some(member) => self.wake(member, Rank::Busy),
            None => self.resume_dispatcher(),
        }
    }

    fn wake(&mut self, member: MemberId, rank: Rank) -> Option<Thread> {
        self.parked.retain(|&parked| parked != member);
        if self.standby == Some(member) {
            self.standby = None;
        }
        self.set_rank(member, rank);
        self.members[member.0].thread.clone()
    }

    /// The thread parks.
    pub(super) fn park(&mut self, me: MemberId) {
        self.set_rank(me, Rank::Parked);
        self.parked.push(me);
    }

    /// Whether the thread that parks was woken. If so, it is not coming any more.
    pub(super) fn is_awake(&mut self, me: MemberId) -> bool {
        let is_awake = !matches!(self.members[me.0].rank, Rank::Parked | Rank::Napping)
            && self.is_paused != Some(me);
        if is_awake && self.coming == Some(me) {
            self.coming = None;
        }
        is_awake
    }

    /// Whether the thread was woken to nap, and not called meanwhile.
    pub(super) fn is_called_up(&mut self, me: MemberId) -> bool {
        if self.members[me.0].rank != Rank::CalledUp {
            return false;
        }
        if self.members[me.0].is_called {
            self.set_rank(me, Rank::Busy);
            return false;
        }
        true
    }

    /// The thread goes to nap.
    pub(super) fn nap(&mut self, me: MemberId) {
        self.set_rank(me, Rank::Napping);
        self.standby = Some(me);
        self.steps_before_nap = self.steps;
        for member in &mut self.members {
            member.step_before_nap = member.step;
        }
    }

    /// The thread looks around after a nap.
    pub(super) fn after_nap(&mut self, me: MemberId, has_work: bool) -> AfterNap {
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let is_slow = member.step != 0 && member.step == member.step_before_nap;
            if is_slow && member.rank == Rank::Busy {
                self.set_rank(MemberId(at), Rank::Slow);
            }
        }
        if has_work && !self.is_full() {
            self.wake(me, Rank::Busy);
            AfterNap::Work
        } else if self.steps == self.steps_before_nap {
            // Nobody has done anything: it is called up again when somebody does.
            self.standby = None;
            AfterNap::Park
        } else {
            AfterNap::Nap
        }
    }

    /// The dispatcher waits until the others have nothing left to do.
    pub(super) fn pause_dispatcher(&mut self, me: MemberId) {
        self.is_paused = Some(me);
    }

    pub(super) fn resume_dispatcher(&mut self) -> Option<Thread> {
        let member = self.is_paused.take()?;
        self.members[member.0].thread.clone()
    }
}
