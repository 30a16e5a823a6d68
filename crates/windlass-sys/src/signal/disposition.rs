//! Dispositions, sigaction(2): who first watches a signal installs the handler, who last
//! unwatches it restores what was there.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::table::on_signal;
use super::{NUMBER_MAX, process_id};
use crate::errno::check;

static DISPOSITIONS: ForkLock = ForkLock {
    holder: AtomicI32::new(0),
    entries: UnsafeCell::new(
        [const {
            Entry {
                count: 0,
                original: None,
            }
        }; ENTRY_COUNT],
    ),
};

const ENTRY_COUNT: usize = NUMBER_MAX as usize + 1;

/// One signal: how many channels watch it, and its disposition from before the first.
struct Entry {
    count: usize,
    original: Option<libc::sigaction>,
}

/// Counts one more watcher of `signo`.
pub(super) fn acquire(signo: i32) -> io::Result<()> {
    DISPOSITIONS.with(signo, |entry| {
        if entry.count == 0 {
            let current = query(signo)?;
            // It is ours already if a fork came between install and count. The original is kept
            // before the install for the same reason: each state that a child may see is whole.
            if !is_ours(&current) {
                entry.original = Some(current);
            }
            install(signo, &ours())?;
        }
        entry.count += 1;
        Ok(())
    })
}

/// Counts one watcher of `signo` less.
pub(super) fn release(signo: i32) -> io::Result<()> {
    DISPOSITIONS.with(signo, |entry| {
        entry.count = entry.count.saturating_sub(1);
        if entry.count > 0 {
            return Ok(());
        }
        // A handler that someone else installed since then is theirs to take away.
        match entry.original.take() {
            Some(original) if is_ours(&query(signo)?) => install(signo, &original),
            _ => Ok(()),
        }
    })
}

/// Ignores `signo`.
pub(super) fn ignore(signo: i32) -> io::Result<()> {
    let mut action = default_action();
    action.sa_sigaction = libc::SIG_IGN;
    install(signo, &action)
}

/// What is done on `signo` now.
pub(super) fn query(signo: i32) -> io::Result<libc::sigaction> {
    let mut current = default_action();
    // SAFETY: no new action is passed, and `current` is a local to be filled.
    check(unsafe { libc::sigaction(signo, ptr::null(), &raw mut current) })?;
    Ok(current)
}

fn install(signo: i32, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` is ignore, a disposition that the kernel gave out before, or `on_signal`,
    // which is async-signal-safe and lives as long as the program.
    check(unsafe { libc::sigaction(signo, ptr::from_ref(action), ptr::null_mut()) })?;
    Ok(())
}

fn ours() -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = handler_address();
    // On the alternative stack if the thread has one: another runtime's thread may need it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `sa_mask` is a field of a local. All are blocked while the handler runs, so that
    // handlers do not pile up on one stack.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    action
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler_address()
}

fn handler_address() -> libc::sighandler_t {
    on_signal as *const () as libc::sighandler_t
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zero is a valid sigaction: SIG_DFL, no flags, an empty mask.
    unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() }
}

/// A lock that a fork does not leave locked for the child: it knows the process that holds it.
///
/// Not for use in signal handlers. Held for a few system calls.
struct ForkLock {
    /// The holder's process id, or zero.
    holder: AtomicI32,
    entries: UnsafeCell<[Entry; ENTRY_COUNT]>,
}

// SAFETY: `entries` is only reached in `with`, by the one thread that set `holder`.
unsafe impl Sync for ForkLock {}

impl ForkLock {
    /// Calls `action` with the entry of `signo`, which is from 1 to 64.
    fn with<T>(&self, signo: i32, action: impl FnOnce(&mut Entry) -> T) -> T {
        let index = usize::try_from(signo).expect("the caller checked the number");
        let _guard = self.lock();
        // SAFETY: this thread holds the lock (`_guard`) until after the last use of the borrow.
        let entries = unsafe { &mut *self.entries.get() };
        action(&mut entries[index])
    }

    fn lock(&self) -> Unlock<'_> {
        let pid = process_id();
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            // Held by another process: by the parent's thread that does not exist here.
            let free = holder != pid;
            if free
                && self
                    .holder
                    .compare_exchange(holder, pid, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Unlock(&self.holder);
            }
            std::thread::yield_now();
        }
    }
}

struct Unlock<'a>(&'a AtomicI32);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
