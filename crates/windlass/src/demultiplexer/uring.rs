//! The io_uring back end: polls, io_uring(7).
//!
//! A registration is a poll of the ring: one that goes on by itself for edges, else one that is
//! made again before each wait that follows a report, so that a level stays one. Polls are made,
//! changed and waited for by one system call per turn; a removal of one that the kernel has costs
//! one more, as the kernel would keep the file open until the next wait otherwise.
//!
//! The ring can carry a proactor's operations beside the polls: then one system call does for both.
//!
//! The kernel keeps the open file of a poll, not its number: a handle that is closed while it is
//! registered is reported as long as it lasts, and then once as an error.

use std::io;
use std::time::{Duration, Instant};

use windlass_core::{
    Batch, EventDemultiplexer, Features, HandleId, Interest, Notify, RawHandle, Readiness, Trigger,
};
use windlass_sys::epoll;
use windlass_sys::errno;
use windlass_sys::operation::Completion;
use windlass_sys::provided::BufferPools;
use windlass_sys::uring::{PollMode, Reaped, Ring, RingOptions, Unavailable, WaitEnd};

use super::epoll::{events_of, readiness_of};
use super::{check_handle, index_of};

/// Waits by io_uring_enter(2).
#[derive(Debug)]
pub struct UringDemultiplexer {
    ring: Ring,
    polls: Polls,
    /// Polls that have found what they were for.
    to_end: Vec<u64>,
}

/// What is registered.
#[derive(Debug, Default)]
struct Polls {
    /// By descriptor.
    entries: Vec<Option<Entry>>,
    /// The keys of polls that must be made before the next wait; some may be obsolete by then.
    to_arm: Vec<u64>,
    /// Numbers the polls, so that what an earlier one of the same descriptor reports is told apart.
    serial: u32,
}

#[derive(Debug)]
struct Entry {
    handle: HandleId,
    events: u32,
    trigger: Trigger,
    notify: Notify,
    /// How the next poll is made.
    mode: PollMode,
    state: State,
}

/// Where a registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The ring has a poll of this key.
    Armed(u64),
    /// It has none, and is to have one of this key.
    ToArm(u64),
    /// It has none: nothing is waited for, or it was reported once.
    Silent,
}

impl UringDemultiplexer {
    /// Opens a ring.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn new(options: RingOptions) -> Result<Self, Unavailable> {
        Ok(Self {
            ring: Ring::open(options)?,
            polls: Polls::default(),
            to_end: Vec::new(),
        })
    }

    /// The ring, for operations beside the polls.
    pub(crate) fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// As [`demultiplex`](EventDemultiplexer::demultiplex); hands completions of operations to
    /// `sink`. May find nothing before the time is over.
    pub(crate) fn wait(
        &mut self,
        pools: &BufferPools,
        batch: &mut Batch,
        timeout: Option<Duration>,
        mut sink: impl FnMut(Completion),
    ) -> io::Result<WaitEnd> {
        self.polls.arm(&mut self.ring);
        let ended = match self.ring.wait(pools, timeout) {
            Ok(ended) => ended,
            Err(error) => {
                self.move_here(error)?;
                self.polls.arm(&mut self.ring);
                self.ring.wait(pools, timeout)?
            }
        };
        let Self {
            ring,
            polls,
            to_end,
        } = self;
        ring.reap(pools, |reaped| match reaped {
            Reaped::Operation(completion) => sink(completion),
            Reaped::Poll {
                key,
                result,
                has_more,
            } => to_end.extend(polls.report(batch, key, result, has_more)),
        })?;
        for key in to_end.drain(..) {
            ring.unpoll(key);
        }
        Ok(ended)
    }

    /// Makes a new ring, without any poll; answers what was in flight, as completed.
    pub(crate) fn reinit_with(&mut self, pools: &BufferPools) -> io::Result<Vec<Completion>> {
        self.polls = Polls::default();
        self.ring.reinit(pools)
    }

    /// Another thread waited before, and is the ring's only one: a new ring for this one.
    #[cold]
    fn move_here(&mut self, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(errno::EEXIST) || self.ring.in_flight() > 0 {
            return Err(error);
        }
        self.ring.reinit(&BufferPools::new())?;
        self.polls.forget_armed();
        Ok(())
    }

    fn put(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        let index = check_handle(raw)?;
        self.take(raw);
        let state = if interest.is_none() {
            State::Silent
        } else {
            self.polls.plan(index)
        };
        let entries = &mut self.polls.entries;
        if index >= entries.len() {
            entries.resize_with(index + 1, || None);
        }
        entries[index] = Some(Entry {
            handle,
            events: events_of(interest),
            trigger,
            notify,
            mode: mode_of(trigger, notify),
            state,
        });
        Ok(())
    }

    /// Takes a registration out; answers whether the kernel must be told.
    fn take(&mut self, raw: RawHandle) -> bool {
        let entry = index_of(raw)
            .ok()
            .and_then(|index| self.polls.entries.get_mut(index)?.take());
        let Some(State::Armed(key)) = entry.map(|entry| entry.state) else {
            return false;
        };
        self.ring.unpoll(key);
        true
    }
}

impl Polls {
    /// Has a poll of the descriptor at `index` made before the next wait.
    fn plan(&mut self, index: usize) -> State {
        self.serial = self.serial.wrapping_add(1) & (u32::MAX >> 1);
        let key = u64::from(self.serial) << 32 | index as u64;
        self.to_arm.push(key);
        State::ToArm(key)
    }

    /// Makes the polls that are missing.
    fn arm(&mut self, ring: &mut Ring) {
        for key in self.to_arm.drain(..) {
            let index = index_in(key);
            let Some(Some(entry)) = self.entries.get_mut(index) else {
                continue;
            };
            if entry.state == State::ToArm(key) {
                entry.state = State::Armed(key);
                // A place in the table fits, as it is that of a descriptor.
                ring.poll(index as RawHandle, entry.events, entry.mode, key);
            }
        }
    }

    /// Adds what a poll found to `batch`. Answers the key of the poll if it must be ended.
    #[must_use]
    fn report(&mut self, batch: &mut Batch, key: u64, result: i32, has_more: bool) -> Option<u64> {
        let index = index_in(key);
        let entry = self.entries.get_mut(index)?.as_mut()?;
        if entry.state != State::Armed(key) {
            // Of an earlier registration of the number.
            return None;
        }
        if result < 0 {
            batch.push(entry.handle, Readiness::ERROR);
            entry.state = State::Silent;
            return None;
        }
        // The kernel tells of the peer's half-close unasked.
        let found = result.unsigned_abs() & (entry.events | epoll::ERR | epoll::HUP);
        let usual = mode_of(entry.trigger, entry.notify);
        if found != 0 {
            batch.push(entry.handle, readiness_of(found));
            if has_more && usual == PollMode::Edge {
                return None;
            }
            entry.mode = usual;
        } else if has_more {
            return None;
        } else {
            // Polled again as it is, it would be found again at once and for ever: only a change can
            // bring what is wanted.
            entry.mode = PollMode::Edge;
        }
        entry.state = State::Silent;
        if found == 0 || entry.notify == Notify::Always {
            let state = self.plan(index);
            if let Some(Some(entry)) = self.entries.get_mut(index) {
                entry.state = state;
            }
        }
        has_more.then_some(key)
    }

    /// The ring is new: it has no polls.
    fn forget_armed(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            if let State::Armed(key) = entry.state {
                entry.state = State::ToArm(key);
                self.to_arm.push(key);
            }
        }
    }
}

/// The place of a poll's descriptor in the table.
fn index_in(key: u64) -> usize {
    (key & 0xffff_ffff) as usize
}

/// How a poll is made unless a half-close is in the way.
fn mode_of(trigger: Trigger, notify: Notify) -> PollMode {
    match (trigger, notify) {
        (Trigger::Edge, Notify::Always) => PollMode::Edge,
        _ => PollMode::Once,
    }
}

impl EventDemultiplexer for UringDemultiplexer {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn features(&self) -> Features {
        Features {
            edge_triggered: true,
            constant_time: true,
            any_descriptor: true,
            early_close: true,
        }
    }

    fn register_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.put(raw, handle, interest, trigger, notify)
    }

    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.put(raw, handle, interest, trigger, notify)
    }

    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()> {
        if self.take(raw) {
            self.ring.submit_now()?;
        }
        Ok(())
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout
            .filter(|timeout| !timeout.is_zero())
            .and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            let ended = self.wait(&BufferPools::new(), batch, left, drop)?;
            if ended != WaitEnd::Completions || !batch.is_empty() || left == Some(Duration::ZERO) {
                return Ok(());
            }
            // Nothing that anybody waits for: the end of a poll, or a half-close.
            left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        }
    }

    fn reinit(&mut self) -> io::Result<()> {
        self.reinit_with(&BufferPools::new()).map(drop)
    }
}
