//! The process that a ring belongs to, told without a system call.
//!
//! A ring's queues are memory that a child after a fork(2) shares with its parent: an entry that the
//! child wrote there would be carried out for the parent, with the child's addresses. getpid(2)
//! tells the two apart, but costs a system call for each operation. Instead each process has a page
//! with its number, which the kernel empties in a child (madvise(2), `MADV_WIPEONFORK`, Linux
//! 4.14), and a ring remembers the number under which it was opened.
//!
//! Numbers come from a counter that a child has a copy of: whatever rings it inherits have lower
//! ones. Nothing here takes a lock, which a fork might leave locked.
//!
//! # Limits
//!
//! A child of vfork(2) has the parent's memory itself, and is not told from it; by vfork(2) it may
//! do nothing but exec or end.

use std::error::Error;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::{fmt, io, ptr};

use rustix::mm::{MapFlags, ProtFlags};

/// The process that opened a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// Of the process that looks at it: zero, or a number that no other process gave to a ring that
    /// this one has.
    page: &'static AtomicU64,
    number: u64,
}

impl Owner {
    /// The calling process.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, when a process asks for the first time; `EINVAL` before Linux 4.14.
    pub(super) fn this_process() -> io::Result<Self> {
        let page = page()?;
        let number = match page.load(Ordering::Relaxed) {
            0 => number_process(page),
            number => number,
        };
        Ok(Self { page, number })
    }

    /// Whether it is the calling process; one load.
    #[inline]
    pub(super) fn is_this_process(self) -> bool {
        self.page.load(Ordering::Relaxed) == self.number
    }

    /// Refuses a process that is another.
    #[inline]
    pub(super) fn check(self) -> io::Result<()> {
        if self.is_this_process() {
            return Ok(());
        }
        Err(InChild.into())
    }
}

/// A ring is its parent process's: in a child after a fork(2)
/// [`reinit`](crate::uring::Ring::reinit) comes before all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InChild;

impl fmt::Display for InChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use the parent process's io_uring: after a fork it must be made anew first")
    }
}

impl Error for InChild {}

impl From<InChild> for io::Error {
    #[cold]
    fn from(reason: InChild) -> Self {
        Self::other(reason)
    }
}

/// Gives the process a number, unless another thread just did.
fn number_process(page: &AtomicU64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match page.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => number,
        Err(there) => there,
    }
}

/// The process's page, mapped for the first that asks, and never unmapped.
fn page() -> io::Result<&'static AtomicU64> {
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let mapped = map_page()?;
        let published =
            PAGE.compare_exchange(ptr::null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire);
        page = match published {
            Ok(_) => mapped,
            Err(there) => {
                // SAFETY: `mapped` is a mapping of this length that nobody else was told of.
                let unmapped = unsafe { rustix::mm::munmap(mapped.cast(), LENGTH) };
                debug_assert!(unmapped.is_ok(), "unmapped is what was mapped");
                there
            }
        };
    }
    // SAFETY: `page` was published above, by this thread or another: a mapping of `map_page`, aligned
    // to a page, which is never unmapped. It is changed by atomic stores only; that the kernel
    // empties it comes before anything that the child does.
    Ok(unsafe { &*page })
}

/// What is mapped: the kernel makes whole pages of it.
const LENGTH: usize = size_of::<AtomicU64>();

/// A page of zeros, which is one of zeros again in a child.
fn map_page() -> io::Result<*mut AtomicU64> {
    // SAFETY: A new mapping at an address that the kernel picks; nothing lies there.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            LENGTH,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: The range is the mapping just made; the advice changes nothing in this process.
    let advised = unsafe { libc::madvise(start, LENGTH, libc::MADV_WIPEONFORK) };
    if advised != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: `start` is a mapping of this length that nobody else was told of.
        unsafe { rustix::mm::munmap(start, LENGTH) }?;
        return Err(error);
    }
    Ok(start.cast())
}
