//! What can be asked and done of any descriptor: fcntl(2), read(2), write(2).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

use crate::errno::retry_or_none;

/// Whether reads and writes of a descriptor wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// A call waits until it can be done.
    Blocking,
    /// A call that cannot be done at once fails with `EAGAIN` (`O_NONBLOCK`).
    Nonblocking,
}

/// The mode of `fd`, fcntl(2) `F_GETFL`.
///
/// # Errors
///
/// None for an open descriptor.
pub fn blocking(fd: BorrowedFd<'_>) -> io::Result<Blocking> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(if flags.contains(OFlags::NONBLOCK) {
        Blocking::Nonblocking
    } else {
        Blocking::Blocking
    })
}

/// Sets the mode of `fd`, fcntl(2) `F_SETFL`; no call if it is already so.
///
/// It is a property of the open file description: duplicates, among them those that other
/// processes hold (a terminal on standard input), change with it.
///
/// # Errors
///
/// `EPERM` (the file is append-only).
pub fn set_blocking(fd: BorrowedFd<'_>, mode: Blocking) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    let mut wanted = flags;
    wanted.set(OFlags::NONBLOCK, mode == Blocking::Nonblocking);
    if wanted != flags {
        rustix::fs::fcntl_setfl(fd, wanted)?;
    }
    Ok(())
}

/// Makes `call` with `O_NONBLOCK` set on `fd`, fcntl(2), and takes it back if it was not: for calls
/// that have no flag for it. One at a time in this process, so that none takes it from another;
/// whoever else uses the same open file meanwhile may meet "would block". As with any lock, no other
/// thread may be in this at the moment of a fork.
///
/// # Errors
///
/// The call's; none else for an open descriptor.
pub fn momentarily_nonblocking<T>(
    fd: BorrowedFd<'_>,
    call: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if blocking(fd)? == Blocking::Nonblocking {
        return call();
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    set_blocking(fd, Blocking::Nonblocking)?;
    let result = call();
    set_blocking(fd, Blocking::Blocking)?;
    result
}

/// Whether `fd` is the number of an open descriptor, fcntl(2) `F_GETFD`.
#[must_use]
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no argument and touches no memory; the kernel checks the number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Duplicates `fd` to the lowest free number from `lowest` on, closed on exec, fcntl(2)
/// `F_DUPFD_CLOEXEC`.
///
/// # Errors
///
/// `EINVAL` (`lowest` is beyond the limit of descriptors), `EMFILE`.
pub fn duplicate_from(fd: BorrowedFd<'_>, lowest: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, lowest)?)
}

/// Reads into `buf`, read(2). `None`: it would block; zero: the end, or an empty `buf`.
///
/// # Errors
///
/// read(2)'s but `EAGAIN`; `EINTR` is retried.
#[inline]
pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    retry_or_none(|| rustix::io::read(fd, &mut *buf))
}

/// Writes from `buf`, write(2). `None`: it would block. Writing to a pipe that nobody reads raises
/// `SIGPIPE`, unless it is ignored ([`ignore_sigpipe`](crate::signal::ignore_sigpipe)).
///
/// # Errors
///
/// write(2)'s but `EAGAIN`; `EINTR` is retried.
#[inline]
pub fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<Option<usize>> {
    retry_or_none(|| rustix::io::write(fd, buf))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn the_mode_is_set_and_read_back() {
        let (reader, writer) = io::pipe().expect("pipe");
        assert_eq!(blocking(reader.as_fd()).expect("get"), Blocking::Blocking);
        set_blocking(reader.as_fd(), Blocking::Nonblocking).expect("set");
        assert_eq!(
            blocking(reader.as_fd()).expect("get"),
            Blocking::Nonblocking
        );
        let mut buf = [0; 4];
        assert_eq!(read(reader.as_fd(), &mut buf).expect("read"), None);
        assert_eq!(write(writer.as_fd(), b"abc").expect("write"), Some(3));
        assert_eq!(read(reader.as_fd(), &mut buf).expect("read"), Some(3));
        drop(writer);
        assert_eq!(read(reader.as_fd(), &mut buf).expect("read"), Some(0));
        set_blocking(reader.as_fd(), Blocking::Blocking).expect("set");
        assert_eq!(blocking(reader.as_fd()).expect("get"), Blocking::Blocking);
    }

    #[test]
    fn a_call_finds_what_does_not_block_and_leaves_it_as_it_was() {
        let (reader, _writer) = io::pipe().expect("pipe");
        for mode in [Blocking::Blocking, Blocking::Nonblocking] {
            set_blocking(reader.as_fd(), mode).expect("set");
            let found = momentarily_nonblocking(reader.as_fd(), || blocking(reader.as_fd()));
            assert_eq!(found.expect("get"), Blocking::Nonblocking);
            assert_eq!(blocking(reader.as_fd()).expect("get"), mode);
        }
    }

    #[test]
    fn open_numbers_are_told_from_others() {
        let (reader, _writer) = io::pipe().expect("pipe");
        assert!(is_open(reader.as_raw_fd()));
        assert!(!is_open(-1));
        assert!(!is_open(i32::MAX));
        let copy = duplicate_from(reader.as_fd(), 300).expect("duplicate");
        assert!(copy.as_raw_fd() >= 300);
    }
}
