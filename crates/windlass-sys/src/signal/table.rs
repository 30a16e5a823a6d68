//! What the signal handler works on: a static table of atomics, and the handler itself.
//!
//! The handler may interrupt any thread anywhere, so it allocates nothing, takes no lock and calls
//! only getpid(2) and write(2). A channel that closes its pipe first makes sure that no handler
//! is between looking up the pipe's number and writing to it ([`Slot::release`]).
//!
//! After a fork the table is the child's copy, and so may be out of date in two ways: numbers of
//! handlers that were running on threads that the child does not have, and signals that are
//! pending for the parent. Both are kept with the process id that they belong to.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use super::{NUMBER_MAX, SignalInfo};

/// How many channels there can be.
pub(super) const SLOT_COUNT: usize = 64;

/// The length of a record in the pipe.
pub(super) const RECORD_BYTES: usize = 16;
const _: () = assert!(RECORD_BYTES <= libc::PIPE_BUF);

const NUMBERS: usize = NUMBER_MAX as usize;
const NO_WRITER: i32 = -1;

/// Wakes the reader of a pipe and says nothing.
const WAKE: Record = Record {
    signo: 0,
    code: 0,
    pid: 0,
    uid: 0,
};

/// One per channel.
pub(super) static SLOTS: [Slot; SLOT_COUNT] = [const { Slot::new() }; SLOT_COUNT];

/// The part of a channel that the handler sees.
#[derive(Debug)]
pub(super) struct Slot {
    /// Whether a channel has it.
    used: AtomicBool,
    /// The process whose pipe `writer` is.
    owner: AtomicI32,
    writer: AtomicI32,
    /// Bit `signo - 1` for each signal.
    watched: AtomicU64,
    /// A process id in the upper half, and in the lower how many of its threads are in
    /// [`deliver`](Self::deliver).
    busy: AtomicU64,
    /// Which of `pending` may be set.
    pending_hint: AtomicU64,
    /// By signal, the process for which one is pending that is not in the pipe.
    pending: [AtomicI32; NUMBERS],
}

impl Slot {
    const fn new() -> Self {
        Self {
            used: AtomicBool::new(false),
            owner: AtomicI32::new(0),
            writer: AtomicI32::new(NO_WRITER),
            watched: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            pending_hint: AtomicU64::new(0),
            pending: [const { AtomicI32::new(0) }; NUMBERS],
        }
    }

    /// Takes the slot if it is free.
    pub(super) fn claim(&self, pid: i32, writer: i32) -> bool {
        if self
            .used
            .compare_exchange(false, true, SeqCst, SeqCst)
            .is_err()
        {
            return false;
        }
        self.pending_hint.store(0, SeqCst);
        self.writer.store(writer, SeqCst);
        self.owner.store(pid, SeqCst);
        true
    }

    /// Gives the slot back. After it no handler writes to the pipe.
    pub(super) fn release(&self, pid: i32) {
        self.watched.store(0, SeqCst);
        self.owner.store(0, SeqCst);
        self.writer.store(NO_WRITER, SeqCst);
        // A handler neither blocks nor takes a lock: this is as short as one write.
        while is_busy(self.busy.load(SeqCst), pid) {
            std::thread::yield_now();
        }
        self.used.store(false, SeqCst);
    }

    /// Gives the slot a pipe of process `pid`.
    pub(super) fn adopt(&self, pid: i32, writer: i32) {
        // In this order: a handler that sees the owner sees its pipe.
        self.writer.store(writer, SeqCst);
        self.owner.store(pid, SeqCst);
        if self.pending_hint.load(SeqCst) != 0 {
            // The new pipe is empty, so that the write succeeds.
            write_record(writer, &WAKE);
        }
    }

    pub(super) fn is_owned_by(&self, pid: i32) -> bool {
        self.owner.load(SeqCst) == pid
    }

    pub(super) fn watch(&self, signo: i32) {
        // What is left from an earlier watch is not this one's.
        if let Some(pending) = index(signo).and_then(|index| self.pending.get(index)) {
            pending.store(0, SeqCst);
        }
        self.watched.fetch_or(bit(signo), SeqCst);
    }

    pub(super) fn unwatch(&self, signo: i32) {
        self.watched.fetch_and(!bit(signo), SeqCst);
    }

    pub(super) fn is_watching(&self, signo: i32) -> bool {
        self.watched.load(SeqCst) & bit(signo) != 0
    }

    /// Takes what is pending for process `pid` and calls `found` for each signal; what belongs to
    /// another process is dropped.
    pub(super) fn take_pending(&self, pid: i32, mut found: impl FnMut(i32)) {
        if self.pending_hint.load(SeqCst) == 0 {
            return;
        }
        let mut hint = self.pending_hint.swap(0, SeqCst);
        while hint != 0 {
            let signo = hint.trailing_zeros().cast_signed() + 1;
            hint &= hint - 1;
            let holder = index(signo).map_or(0, |index| self.pending[index].swap(0, SeqCst));
            if holder == pid && self.is_watching(signo) {
                found(signo);
            }
        }
    }

    /// Hands one signal to the channel. Async-signal-safe.
    fn deliver(&self, pid: i32, record: &Record) {
        if !self.is_watching(record.signo) {
            return;
        }
        if !self.is_owned_by(pid) {
            self.keep_for_reinit(pid, record.signo);
            return;
        }
        self.enter(pid);
        // Once more: now the channel waits for this handler before it closes its pipe.
        if self.is_watching(record.signo) && !self.write(pid, record) {
            self.set_pending(pid, record.signo);
            // Meanwhile the reader may have emptied the pipe without seeing the bit; if the pipe is
            // full still, the reader has yet to come.
            self.write(pid, &WAKE);
        }
        self.leave(pid);
    }

    /// The pipe is another process's. The handler is not counted then, as it writes nothing: in a
    /// vfork's child, which has the parent's memory, the count is that of the parent's handlers,
    /// and the parent goes by it when it closes the pipe.
    fn keep_for_reinit(&self, pid: i32, signo: i32) {
        self.set_pending(pid, signo);
        if self.is_owned_by(pid) {
            // Reinit came just now, and perhaps without seeing the bit.
            self.enter(pid);
            self.write(pid, &WAKE);
            self.leave(pid);
        }
    }

    /// Whether the record is in this process's pipe.
    fn write(&self, pid: i32, record: &Record) -> bool {
        self.is_owned_by(pid) && write_record(self.writer.load(SeqCst), record)
    }

    fn set_pending(&self, pid: i32, signo: i32) {
        if let Some(pending) = index(signo).and_then(|index| self.pending.get(index)) {
            pending.store(pid, SeqCst);
            self.pending_hint.fetch_or(bit(signo), SeqCst);
        }
    }

    fn enter(&self, pid: i32) {
        let mut busy = self.busy.load(SeqCst);
        loop {
            let next = if is_of(busy, pid) {
                busy + 1
            } else {
                of(pid) | 1
            };
            match self.busy.compare_exchange(busy, next, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(current) => busy = current,
            }
        }
    }

    fn leave(&self, pid: i32) {
        let mut busy = self.busy.load(SeqCst);
        while is_busy(busy, pid) {
            match self.busy.compare_exchange(busy, busy - 1, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(current) => busy = current,
            }
        }
    }
}

/// A signal as it is in the pipe.
#[derive(Debug)]
pub(super) struct Record {
    signo: i32,
    code: i32,
    pid: i32,
    uid: u32,
}

impl Record {
    pub(super) fn from_bytes(bytes: [u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        Self {
            signo: i32::from_ne_bytes(word(0)),
            code: i32::from_ne_bytes(word(4)),
            pid: i32::from_ne_bytes(word(8)),
            uid: u32::from_ne_bytes(word(12)),
        }
    }

    pub(super) fn into_info(self) -> SignalInfo {
        SignalInfo {
            signo: self.signo,
            code: self.code,
            pid: self.pid,
            uid: self.uid,
        }
    }

    fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&self.signo.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.code.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.uid.to_ne_bytes());
        bytes
    }

    /// What `info` says. Async-signal-safe.
    ///
    /// # Safety
    ///
    /// - `info` points to what the kernel handed to a handler of `signo` (`SA_SIGINFO`), or is
    ///   null.
    unsafe fn from_kernel(signo: c_int, info: *const libc::siginfo_t) -> Self {
        // SAFETY: the caller's promise: null, or valid while the handler runs.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return Self {
                signo,
                code: 0,
                pid: 0,
                uid: 0,
            };
        };
        let code = info.si_code;
        // Other causes keep other things in these fields' place, sigaction(2).
        let has_sender = matches!(
            code,
            libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL | libc::SI_MESGQ
        ) || (signo == libc::SIGCHLD && code > 0);
        if !has_sender {
            return Self {
                signo,
                code,
                pid: 0,
                uid: 0,
            };
        }
        // SAFETY: for these codes the kernel filled in the sender's process id.
        let pid = unsafe { info.si_pid() };
        // SAFETY: and its user.
        let uid = unsafe { info.si_uid() };
        Self {
            signo,
            code,
            pid,
            uid,
        }
    }
}

/// The handler of every watched signal, sigaction(2) with `SA_SIGINFO`. Keeps `errno`.
///
/// # Safety
///
/// - Called by the kernel only, with `info` as for `SA_SIGINFO`.
pub(super) unsafe extern "C" fn on_signal(
    signo: c_int,
    info: *mut libc::siginfo_t,
    _context: *mut c_void,
) {
    // SAFETY: the C library's errno of this thread, valid while the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; nobody else uses it while the handler runs on this thread.
    let saved = unsafe { *errno };
    // SAFETY: the kernel's `info`, by this function's own contract.
    let record = unsafe { Record::from_kernel(signo, info) };
    // SAFETY: getpid takes nothing, cannot fail, and is async-signal-safe.
    let pid = unsafe { libc::getpid() };
    for slot in &SLOTS {
        slot.deliver(pid, &record);
    }
    // SAFETY: as for reading it.
    unsafe { *errno = saved };
}

/// Whether the record went into the pipe; it does not if the pipe is full.
fn write_record(writer: i32, record: &Record) -> bool {
    let bytes = record.to_bytes();
    // SAFETY: `bytes` is a local of that length. `writer` is the pipe's number: its channel closes
    // it only after `Slot::release`, which waits for handlers in `Slot::deliver`; -1 is EBADF.
    let written = unsafe { libc::write(writer, bytes.as_ptr().cast(), RECORD_BYTES) };
    usize::try_from(written) == Ok(RECORD_BYTES)
}

fn index(signo: i32) -> Option<usize> {
    usize::try_from(signo).ok()?.checked_sub(1)
}

/// The signal's bit, or none for what is no signal's number.
fn bit(signo: i32) -> u64 {
    if (1..=NUMBER_MAX).contains(&signo) {
        1 << (signo - 1)
    } else {
        0
    }
}

fn of(pid: i32) -> u64 {
    u64::from(pid.cast_unsigned()) << 32
}

fn is_of(busy: u64, pid: i32) -> bool {
    busy >> 32 == u64::from(pid.cast_unsigned())
}

fn is_busy(busy: u64, pid: i32) -> bool {
    is_of(busy, pid) && busy & u64::from(u32::MAX) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_pipe() {
        let record = Record {
            signo: 64,
            code: -6,
            pid: i32::MAX,
            uid: u32::MAX,
        };
        let info = Record::from_bytes(record.to_bytes()).into_info();
        assert_eq!(
            info,
            SignalInfo {
                signo: 64,
                code: -6,
                pid: i32::MAX,
                uid: u32::MAX
            }
        );
    }

    #[test]
    fn handlers_of_a_parent_do_not_count_in_the_child() {
        let slot = Slot::new();
        slot.enter(10);
        slot.enter(10);
        assert!(is_busy(slot.busy.load(SeqCst), 10));
        assert!(!is_busy(slot.busy.load(SeqCst), 11));
        slot.enter(11);
        slot.leave(11);
        assert!(!is_busy(slot.busy.load(SeqCst), 11));
        slot.leave(10);
        assert!(!is_busy(slot.busy.load(SeqCst), 11));
    }

    #[test]
    fn a_handler_in_a_vforked_child_leaves_the_count_of_the_parents() {
        let slot = Slot::new();
        assert!(slot.claim(10, NO_WRITER));
        slot.watch(2);
        slot.enter(10);
        let record = Record { signo: 2, ..WAKE };
        slot.deliver(11, &record);
        assert!(is_busy(slot.busy.load(SeqCst), 10));
        let mut seen = Vec::new();
        slot.take_pending(11, |signo| seen.push(signo));
        assert_eq!(seen, [2]);
    }

    #[test]
    fn what_is_pending_for_a_parent_is_not_the_childs() {
        let slot = Slot::new();
        slot.watch(2);
        slot.watch(64);
        slot.set_pending(10, 2);
        slot.set_pending(11, 64);
        let mut seen = Vec::new();
        slot.take_pending(11, |signo| seen.push(signo));
        assert_eq!(seen, [64]);
        slot.take_pending(10, |signo| seen.push(signo));
        assert_eq!(seen, [64]);
    }

    #[test]
    fn numbers_out_of_range_have_no_bit() {
        assert_eq!((bit(0), bit(65), bit(-1)), (0, 0, 0));
        assert_eq!((bit(1), bit(64)), (1, 1 << 63));
    }
}
