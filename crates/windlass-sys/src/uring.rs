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
//! # Cost
//!
//! An operation is an entry of 64 bytes and a place in the table; no allocation but for vectored
//! and message operations, addresses, time-outs, descriptions and file transfers.

mod ending;
mod entry;
mod flight;
mod setup;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};

use self::flight::{Flight, Found, Next, Stage};
use self::setup::Abilities;
pub use self::setup::{Modes, RingOptions, Unavailable};
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
    process: u32,
    flights: OpTable<Flight>,
    /// Entries that found the submission queue full, in order.
    overflow: VecDeque<squeue::Entry>,
    /// Completions that the kernel knows nothing of.
    ready: VecDeque<Untried>,
    /// Receives that wait for a buffer.
    parked: Vec<OpId>,
    /// The memory of the pools that are registered, by number.
    pools: Vec<Arc<PoolMemory>>,
    counters: Counters,
    /// Errors that the next submissions are to meet, for tests.
    faults: VecDeque<i32>,
}

/// An operation that ended without the kernel: no buffer of a pool is in it, so that a ring can move
/// between threads.
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
        Ok(Self {
            is_enabled: !io.params().is_setup_single_issuer(),
            io,
            options,
            abilities,
            process: std::process::id(),
            flights: OpTable::new(),
            overflow: VecDeque::new(),
            ready: VecDeque::new(),
            parked: Vec::new(),
            pools: Vec::new(),
            counters: Counters::default(),
            faults: VecDeque::new(),
        })
    }

    /// Starts `operation`, with the next [`wait`](Self::wait). What is wrong with it is told by its
    /// completion.
    #[inline]
    pub fn start(&mut self, operation: Operation) -> OpId {
        let id = self.flights.insert(Flight::new(operation));
        self.submit(id);
        id
    }

    /// Asks for an operation to be cancelled.
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
            if let Some(flight) = self.flights.remove(id) {
                let result = flight.cancelled();
                self.ready.push_back(Untried::new(id, result, flight));
            }
            return CancelOutcome::Cancelled;
        }
        if let Some(flight) = self.flights.get_mut(id) {
            flight.cancel_asked = true;
        }
        self.push(cancel_entry(id.to_bits()));
        CancelOutcome::Requested
    }

    /// Waits for `fd` to be ready for `events` (flags of [`epoll`](crate::epoll)) and reports that
    /// as [`Reaped::Poll`]. The kernel keeps the open file from its submission on, until the poll
    /// ends; the number may be closed meanwhile.
    ///
    /// # Panics
    ///
    /// If `key` is 2^63 - 1 or more.
    pub fn poll(&mut self, fd: RawFd, events: u32, mode: PollMode, key: u64) {
        assert!(key < IGNORED & !POLL, "a key has 63 bits, not all set");
        let entry = opcode::PollAdd::new(io_uring::types::Fd(fd), events)
            .multi(mode == PollMode::Edge)
            .build();
        self.push(entry.user_data(POLL | key));
    }

    /// Ends a poll; its last completion says `ECANCELED`, if it was not complete already.
    pub fn unpoll(&mut self, key: u64) {
        self.push(cancel_entry(POLL | key));
    }

    /// Submits what was started, and waits until something is complete or `timeout` is over
    /// (`None`: for ever). With a zero time-out and nothing to submit it makes no system call, if
    /// the kernel (6.1) tells that there is nothing to be had. An interruption ends the wait early.
    ///
    /// # Errors
    ///
    /// `EEXIST` (another thread waited before). What is temporary is retried: entries stay queued.
    pub fn wait(&mut self, pools: &BufferPools, timeout: Option<Duration>) -> io::Result<WaitEnd> {
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
        let has_news = !self.ready.is_empty() || !self.io.completion().is_empty();
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
            WaitEnd::Later if want > 0 => self.retreat(timeout),
            ended => Ok(ended),
        }
    }

    /// Submits what was started, without waiting.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn submit_now(&mut self) -> io::Result<()> {
        self.enable()?;
        self.fill_queue();
        self.enter(0, None).map(drop)
    }

    /// Hands each completion to `sink`, the oldest first. `pools` are those that were added with
    /// this ring.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), if completions that found no room in the queue can't be fetched.
    #[inline]
    pub fn reap(&mut self, pools: &BufferPools, mut sink: impl FnMut(Reaped)) -> io::Result<()> {
        loop {
            while let Some(untried) = self.ready.pop_front() {
                sink(Reaped::Operation(untried.into_completion()));
            }
            loop {
                let answer = self.io.completion().next();
                let Some(answer) = answer else {
                    break;
                };
                let (data, result) = (answer.user_data(), answer.result());
                if let Some(reaped) = self.answered(pools, data, result, answer.flags()) {
                    sink(reaped);
                }
            }
            if !self.io.submission().cq_overflow() {
                if self.ready.is_empty() {
                    return Ok(());
                }
                continue;
            }
            self.enter(0, None)?;
            if self.io.completion().is_empty() {
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
    #[doc(hidden)]
    pub fn inject_completion(
        &mut self,
        pools: &BufferPools,
        data: u64,
        result: i32,
        flags: u32,
    ) -> Option<Reaped> {
        self.answered(pools, data, result, flags)
    }

    pub(crate) fn register_pool(&mut self, id: PoolId, memory: &Arc<PoolMemory>) -> io::Result<()> {
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

    /// From here on this thread is the only one, if the kernel is to know.
    #[inline]
    fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.io.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }

    /// Submits an operation, for the first time or again.
    #[inline]
    fn submit(&mut self, id: OpId) {
        let Some(flight) = self.flights.get_mut(id) else {
            return;
        };
        match flight.entry(self.abilities) {
            Ok(entry) => self.push(entry.user_data(id.to_bits())),
            Err(error) => self.fail(id, error),
        }
    }

    #[cold]
    fn fail(&mut self, id: OpId, error: io::Error) {
        if let Some(flight) = self.flights.remove(id) {
            self.ready.push_back(Untried::new(id, Err(error), flight));
        }
    }

    /// Queues an entry; it is the kernel's from now on, whatever the next submissions say.
    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        if self.overflow.is_empty() {
            // SAFETY: What the entry points to is owned by its operation, which stays in
            // `self.flights` until its last answer; polls and cancels point to nothing.
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return;
            }
            if self.is_enabled {
                // Whether it fails or not: what does not fit then waits for the next.
                let _ = self.enter(0, None);
            }
        }
        self.overflow.push_back(entry);
        self.fill_queue();
    }

    /// Moves what waits in memory into the submission queue, as far as there is room.
    fn fill_queue(&mut self) {
        if self.overflow.is_empty() {
            return;
        }
        let mut queue = self.io.submission();
        while let Some(entry) = self.overflow.front() {
            // SAFETY: As in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.overflow.pop_front();
        }
    }

    /// Takes an operation's entry out of what the kernel has not seen.
    fn take_from_overflow(&mut self, id: OpId) -> bool {
        let data = id.to_bits();
        let at = self
            .overflow
            .iter()
            .position(|entry| entry.get_user_data() == data);
        at.and_then(|at| self.overflow.remove(at)).is_some()
    }

    /// Whether there is anything that only a system call brings on.
    #[inline]
    fn must_enter(&mut self) -> bool {
        let queue = self.io.submission();
        !self.abilities.tells_of_work || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// One io_uring_enter(2) with all that is queued.
    #[inline]
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<WaitEnd> {
        if let Some(error) = self.faults.pop_front() {
            return self.ended(Err(io::Error::from_raw_os_error(error)));
        }
        let count = self.io.submission().len() as u32;
        self.enter_with(count, want, timeout)
    }

    #[inline]
    fn enter_with(
        &mut self,
        count: u32,
        want: u32,
        timeout: Option<Duration>,
    ) -> io::Result<WaitEnd> {
        let time = timeout.filter(|timeout| !timeout.is_zero()).map(timespec);
        let arguments = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        self.counters.enters += 1;
        // SAFETY: The queue's entries are valid, as `push` says, and `arguments` is of the type that
        // EXT_ARG announces and outlives the call.
        let result = unsafe {
            self.io
                .submitter()
                .enter(count, want, flags.bits(), Some(&arguments))
        };
        self.ended(result)
    }

    /// Sorts the kernel's answers. Whatever it says, entries that it did not take stay queued.
    #[inline]
    fn ended(&mut self, result: io::Result<usize>) -> io::Result<WaitEnd> {
        let Err(error) = result else {
            return Ok(WaitEnd::Completions);
        };
        match error.raw_os_error() {
            Some(libc::ETIME) => Ok(WaitEnd::TimedOut),
            Some(libc::EINTR) => Ok(WaitEnd::Interrupted),
            // No memory for requests; or completions must be reaped first.
            Some(libc::EAGAIN | libc::EBUSY) => {
                self.counters.deferred += 1;
                Ok(WaitEnd::Later)
            }
            _ => Err(error),
        }
    }

    /// The kernel takes no entries for now: waits a little for completions, without spinning.
    #[cold]
    fn retreat(&mut self, timeout: Option<Duration>) -> io::Result<WaitEnd> {
        if self.io.completion().is_empty() {
            let time = timeout.map_or(RETRY, |timeout| timeout.min(RETRY));
            let want = u32::from(!time.is_zero());
            self.enter_with(0, want, Some(time))?;
        }
        Ok(WaitEnd::Later)
    }

    /// Submits receives again whose pools have buffers.
    fn resume_parked(&mut self, pools: &BufferPools) {
        if self.parked.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.parked) {
            match self.flights.get_mut(id).map(|flight| &flight.operation) {
                Some(Operation::ReceiveMultishot { pool, .. }) if !pools.has_room(*pool) => {
                    self.parked.push(id);
                }
                Some(_) => self.submit(id),
                None => {}
            }
        }
    }

    /// Looks at one answer of the kernel.
    #[inline]
    fn answered(
        &mut self,
        pools: &BufferPools,
        data: u64,
        result: i32,
        flags: u32,
    ) -> Option<Reaped> {
        if data & POLL != 0 {
            return (data != IGNORED).then_some(Reaped::Poll {
                key: data & !POLL,
                result,
                has_more: io_uring::cqueue::more(flags),
            });
        }
        let id = OpId::from_bits(data);
        let Some(flight) = self.flights.get_mut(id) else {
            self.counters.stale += 1;
            return None;
        };
        let (found, next) = flight.answered(result, flags);
        let result = match found {
            Found::Nothing => None,
            Found::Result(result) => Some(result),
            Found::Buffer(index, len) => {
                Some(lend(pools, &self.pools, &flight.operation, index, len))
            }
        };
        match next {
            Next::Finish => {
                let flight = self.flights.remove(id)?;
                let result = result.unwrap_or(Ok(Outcome::Done));
                return Some(Reaped::Operation(completion(id, result, flight)));
            }
            Next::Keep => {}
            Next::Submit => self.submit(id),
            Next::Park => self.parked.push(id),
            Next::Cancel => self.push(cancel_entry(id.to_bits())),
        }
        let result = result?;
        Some(Reaped::Operation(Completion {
            id,
            result,
            operation: None,
        }))
    }
}

/// Hands out the buffer that a receive was given.
#[inline]
fn lend(
    pools: &BufferPools,
    memories: &[Arc<PoolMemory>],
    operation: &Operation,
    index: u16,
    len: u32,
) -> io::Result<Outcome> {
    let Operation::ReceiveMultishot { pool, .. } = operation else {
        unreachable!("only a multishot receive names a pool");
    };
    let memory = memories.get(usize::from(pool.number()));
    let buffer = memory.and_then(|memory| pools.take(*pool, memory, index, len));
    match buffer {
        // The end of the stream may have taken one.
        Some(_) if len == 0 => Ok(Outcome::Bytes(0)),
        Some(buffer) => Ok(Outcome::Buffer(buffer)),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

#[inline]
fn completion(id: OpId, result: io::Result<Outcome>, flight: Flight) -> Completion {
    Completion {
        id,
        result,
        operation: Some(flight.operation),
    }
}

fn cancel_entry(data: u64) -> squeue::Entry {
    opcode::AsyncCancel2::new(CancelBuilder::user_data(data))
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(IGNORED)
}

fn timespec(timeout: Duration) -> Timespec {
    // What does not fit is 292 years and more.
    let secs = timeout.as_secs().min(i64::MAX as u64 / 1_000_000_000);
    Timespec::new().sec(secs).nsec(timeout.subsec_nanos())
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
