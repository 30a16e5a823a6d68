//! A safe io_uring(7): it owns its operations until their last completions.
//!
//! # How it works
//!
//! [`start`](Ring::start) puts an [`Operation`] into a table and tells the kernel of it by an entry
//! of the submission queue; nothing is submitted until the next [`wait`](Ring::wait), which
//! submits all and waits, by one io_uring_enter(2). [`reap`](Ring::reap) hands out what the kernel
//! has completed. Where an operation takes several entries one after the other (a socket that is
//! not ready, a file's part that is sent in chunks, a multishot operation that the kernel ended),
//! it is submitted again by itself.
//!
//! # Invariants
//!
//! - The memory of an entry is that of its operation (or boxed beside it), which stays in the table
//!   until the kernel's last answer. An entry that was pushed is never taken back: a failed
//!   io_uring_enter leaves it and its operation as they are, and it is submitted with the next.
//! - The kernel carries the operation's id, place and generation, back with each answer. An answer
//!   whose id names nothing is counted ([`Counters::stale`]) and ignored.
//! - A ring that is dropped cancels what is in flight and waits for it, for at most a second; what
//!   is not back then is leaked with its memory.
//!
//! # Threads
//!
//! The first thread that waits is the only one from then on: others get `EEXIST`. Before, and
//! while nothing is in flight, a ring may move. (On kernels before 6.1 it may move always.)
//!
//! # Forks
//!
//! A child after a fork(2) shares the queues' memory with its parent. Until it has called
//! [`reinit`](Ring::reinit) everything is refused there with [`InChild`], and nothing of the
//! parent's is touched; each entry point looks at one word for that.
//!
//! # Cost
//!
//! An operation is an entry of 64 bytes and a place in the table; no allocation but for vectored
//! and message operations, addresses, time-outs, descriptions and file transfers.

mod answers;
mod at_once;
#[cfg(test)]
mod at_once_tests;
mod direct;
mod ending;
mod entry;
mod flight;
mod fork_guard;
#[cfg(test)]
mod fork_tests;
#[cfg(test)]
mod ownership_tests;
mod setup;
mod submission;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue};

use self::at_once::AtOnce;
use self::flight::{Flight, Stage};
pub use self::fork_guard::InChild;
use self::fork_guard::Owner;
use self::setup::Abilities;
pub use self::setup::{Modes, RingOptions, Unavailable};
use self::submission::cancel_entry;
use crate::operation::{CancelOutcome, Completion, OpId, OpTable, Operation, Outcome};
use crate::provided::{BufferPools, PoolId, PoolMemory};

/// An io_uring instance with its operations.
pub struct Ring {
    io: IoUring,
    options: RingOptions,
    abilities: Abilities,
    /// Whether entries can be submitted: its thread is known.
    is_enabled: bool,
    /// The process that opened it: a child after a fork must leave it alone.
    owner: Owner,
    flights: OpTable<Flight>,
    /// Entries that found the submission queue full, in order.
    overflow: VecDeque<squeue::Entry>,
    /// Sends of whose good end the kernel does not tell.
    at_once: AtOnce,
    /// Completions that the kernel knows nothing of.
    ready: VecDeque<Untried>,
    /// Receives that wait for a buffer.
    parked: Vec<OpId>,
    /// The memory of the pools that are registered, by number.
    pools: Vec<Arc<PoolMemory>>,
    counters: Counters,
    /// Answers on their way from the kernel's queue: user data, result, flags.
    fetched: [(u64, i32, u32); 32],
    /// Errors that the next submissions are to meet, for tests.
    faults: VecDeque<i32>,
}

/// An operation that ended without the kernel, and keeps its place until that is told: no buffer of
/// a pool is in it, so that a ring can move between threads.
struct Untried {
    id: OpId,
    /// What was moved before, or why not.
    result: io::Result<usize>,
    operation: Operation,
}

impl Untried {
    fn new(id: OpId, result: io::Result<usize>, flight: Flight) -> Self {
        Self {
            id,
            result,
            operation: flight.operation,
        }
    }

    fn into_completion(self) -> Completion {
        Completion {
            id: self.id,
            result: self.result.map(Outcome::Bytes),
            operation: Some(self.operation),
        }
    }
}

/// What a ring counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of io_uring_enter(2).
    pub enters: u64,
    /// Completions that named no operation.
    pub stale: u64,
    /// Submissions that failed for now (`EAGAIN`, `EBUSY`) and were made again.
    pub deferred: u64,
}

/// What the kernel has completed.
#[derive(Debug)]
pub enum Reaped {
    /// An operation.
    Operation(Completion),
    /// A poll, see [`Ring::poll`].
    Poll {
        /// Its key.
        key: u64,
        /// Flags of [`epoll`](crate::epoll), or a negative error: `ECANCELED` after
        /// [`unpoll`](Ring::unpoll).
        result: i32,
        /// Whether it goes on.
        has_more: bool,
    },
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// There may be completions.
    Completions,
    /// A signal handler ran.
    Interrupted,
    /// The kernel took nothing for now: a little later it may.
    Later,
    /// The time is over.
    TimedOut,
}

/// How often a poll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollMode {
    /// When the descriptor becomes ready, each time.
    Edge,
    /// Once, if it is ready or when it becomes so.
    Once,
}

/// The bit of user data that tells polls from operations.
const POLL: u64 = 1 << 63;
/// The user data of entries whose completion nobody waits for.
const IGNORED: u64 = u64::MAX;
/// How long to wait before what the kernel had no memory for is submitted again.
const RETRY: Duration = Duration::from_millis(5);

impl Ring {
    /// Opens a ring, io_uring_setup(2), with the best of what the kernel offers.
    ///
    /// # Errors
    ///
    /// Why there is none: see [`Unavailable`].
    pub fn open(options: RingOptions) -> Result<Self, Unavailable> {
        let (io, abilities) = setup::open(&options)?;
        let owner = Owner::this_process().map_err(Unavailable::Memory)?;
        Ok(Self {
            is_enabled: !io.params().is_setup_single_issuer(),
            io,
            options,
            abilities,
            owner,
            flights: OpTable::new(),
            overflow: VecDeque::new(),
            at_once: AtOnce::default(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            pools: Vec::new(),
            counters: Counters::default(),
            fetched: [(0, 0, 0); 32],
            faults: VecDeque::new(),
        })
    }

    /// Starts `operation`, with the next [`wait`](Self::wait). What is wrong with it is told by its
    /// completion.
    #[inline]
    pub fn start(&mut self, operation: Operation) -> OpId {
        let refusal = self.refusal(&operation);
        let id = self.flights.insert(Flight::new(operation));
        match refusal {
            Some(error) => self.end(id, Err(error)),
            None => self.submit(id),
        }
        id
    }

    /// Asks for an operation to be cancelled. In a child after a fork, before
    /// [`reinit`](Self::reinit), which tells their end, of those that the parent's kernel side has.
    pub fn cancel(&mut self, id: OpId) -> CancelOutcome {
        let Some(flight) = self.flights.get_mut(id) else {
            return CancelOutcome::AlreadyComplete;
        };
        if flight.cancel_asked {
            return CancelOutcome::Requested;
        }
        let is_parked = flight.stage == Stage::Parked;
        if is_parked || self.take_from_overflow(id) {
            self.parked.retain(|parked| *parked != id);
            if let Some(flight) = self.flights.take(id) {
                let result = flight.cancelled();
                self.ready.push_back(Untried::new(id, result, flight));
            }
            return CancelOutcome::Cancelled;
        }
        if let Some(flight) = self.flights.get_mut(id) {
            flight.cancel_asked = true;
        }
        if self.owner.is_this_process() {
            self.push(cancel_entry(id.to_bits()));
        }
        CancelOutcome::Requested
    }

    /// Waits for `fd` to be ready for `events` (flags of [`epoll`](crate::epoll)) and reports that
    /// as [`Reaped::Poll`]. The kernel keeps the open file from its submission on, until the poll
    /// ends; the number may be closed meanwhile. Does nothing in a child after a fork, before
    /// [`reinit`](Self::reinit), after which there are no polls.
    ///
    /// # Panics
    ///
    /// If `key` is 2^63 - 1 or more.
    pub fn poll(&mut self, fd: RawFd, events: u32, mode: PollMode, key: u64) {
        assert!(key < IGNORED & !POLL, "a key has 63 bits, not all set");
        let entry = opcode::PollAdd::new(io_uring::types::Fd(fd), events)
            .multi(mode == PollMode::Edge)
            .build();
        if self.owner.is_this_process() {
            self.push(entry.user_data(POLL | key));
        }
    }

    /// Ends a poll; its last completion says `ECANCELED`, if it was not complete already.
    pub fn unpoll(&mut self, key: u64) {
        if self.owner.is_this_process() {
            self.push(cancel_entry(POLL | key));
        }
    }

    /// Submits what was started, and waits until something is complete or `timeout` is over
    /// (`None`: for ever). With a zero time-out and nothing to submit it makes no system call, if
    /// the kernel (6.1) tells that there is nothing to be had. An interruption ends the wait early.
    ///
    /// # Errors
    ///
    /// `EEXIST` (another thread waited before); [`InChild`] within an error of kind `Other`. What is
    /// temporary is retried: entries stay queued.
    pub fn wait(&mut self, pools: &BufferPools, timeout: Option<Duration>) -> io::Result<WaitEnd> {
        self.owner.check()?;
        self.enable()?;
        self.resume_parked(pools);
        while !self.overflow.is_empty() {
            self.fill_queue();
            if self.overflow.is_empty() {
                break;
            }
            let before = self.io.submission().len();
            self.enter(0, None)?;
            if self.io.submission().len() >= before {
                return self.retreat(timeout);
            }
        }
        let has_news =
            self.is_hurried() || !self.ready.is_empty() || !self.io.completion().is_empty();
        let asked = timeout;
        let timeout = if has_news {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let want = u32::from(timeout != Some(Duration::ZERO));
        if want == 0 && !self.must_enter() {
            return Ok(WaitEnd::Completions);
        }
        match self.enter(want, timeout)? {
            WaitEnd::Later if asked != Some(Duration::ZERO) && self.ready.is_empty() => {
                self.retreat(asked)
            }
            ended => Ok(ended),
        }
    }

    /// Submits what was started, without waiting.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn submit_now(&mut self) -> io::Result<()> {
        self.owner.check()?;
        self.enable()?;
        self.fill_queue();
        self.enter(0, None).map(drop)
    }

    /// Hands each completion to `sink`, the oldest first. `pools` are those that were added with
    /// this ring.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), if completions that found no room in the queue can't be fetched; and
    /// [`InChild`], after what was [refused](Self::start) for it was handed out.
    #[inline]
    pub fn reap(&mut self, pools: &BufferPools, mut sink: impl FnMut(Reaped)) -> io::Result<()> {
        loop {
            while let Some(untried) = self.ready.pop_front() {
                self.flights.release(untried.id);
                sink(Reaped::Operation(untried.into_completion()));
            }
            self.owner.check()?;
            while let answers @ 1.. = self.fetch() {
                for at in 0..answers {
                    let (data, result, flags) = self.fetched[at];
                    if let Some(reaped) = self.answered(pools, data, result, flags) {
                        sink(reaped);
                    }
                }
            }
            if !self.io.submission().cq_overflow() {
                if self.ready.is_empty() {
                    self.conclude_at_once(|completion| sink(Reaped::Operation(completion)));
                    return Ok(());
                }
                continue;
            }
            self.enter(0, None)?;
            if self.io.completion().is_empty() {
                // Answers that can't be had now may be of sends at once.
                return Ok(());
            }
        }
    }

    /// How many operations are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether `id` names an operation in flight.
    #[must_use]
    pub fn is_in_flight(&self, id: OpId) -> bool {
        self.flights.contains(id)
    }

    /// Whether there are completions that need no wait.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Has the next calls of io_uring_enter(2) fail with these errors before they are made, one
    /// each. For tests of what a transient failure does.
    #[doc(hidden)]
    pub fn fail_next_submissions(&mut self, errors: &[i32]) {
        self.faults.extend(errors);
    }

    /// Handles a completion that the kernel did not make. For tests of stray ones.
    ///
    /// # Panics
    ///
    /// If it names an operation in flight: that would be given back while the kernel is at it.
    #[doc(hidden)]
    pub fn inject_completion(
        &mut self,
        pools: &BufferPools,
        data: u64,
        result: i32,
        flags: u32,
    ) -> Option<Reaped> {
        let is_stray = !self.flights.contains(OpId::from_bits(data));
        assert!(is_stray, "the kernel alone completes what is in flight");
        self.answered(pools, data, result, flags)
    }

    /// Why an operation is not even begun.
    #[inline]
    fn refusal(&self, operation: &Operation) -> Option<io::Error> {
        if let Err(error) = self.owner.check() {
            return Some(error);
        }
        match operation {
            // The kernel would say that there is no buffer, again and again.
            Operation::ReceiveMultishot { pool, .. } if !self.has_pool(*pool) => {
                Some(io::Error::from_raw_os_error(libc::EINVAL))
            }
            _ => None,
        }
    }

    fn has_pool(&self, id: PoolId) -> bool {
        usize::from(id.number()) < self.pools.len()
    }

    pub(crate) fn register_pool(&mut self, id: PoolId, memory: &Arc<PoolMemory>) -> io::Result<()> {
        self.owner.check()?;
        let number = usize::from(id.number());
        if number != self.pools.len() {
            // A pool of other `BufferPools`: its number is taken, or will be.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (address, count) = (memory.ring_address(), memory.count());
        // SAFETY: The memory lives as long as `self.pools` has it, which is as long as the ring: it
        // is taken out only after the ring is closed, or leaked.
        unsafe {
            self.io
                .submitter()
                .register_buf_ring_with_flags(address, count, id.number(), 0)
        }?;
        self.pools.push(Arc::clone(memory));
        Ok(())
    }

    /// Copies what the kernel has completed out of its queue, as far as there is room; answers how
    /// many that were.
    #[inline]
    fn fetch(&mut self) -> usize {
        let mut count = 0;
        for (place, answer) in self.fetched.iter_mut().zip(self.io.completion()) {
            *place = (answer.user_data(), answer.result(), answer.flags());
            count += 1;
        }
        count
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("in_flight", &self.flights.len())
            .field("overflow", &self.overflow.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
