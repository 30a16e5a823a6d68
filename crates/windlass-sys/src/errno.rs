//! Error numbers, errno(3), for callers that tell errors apart by `io::Error::raw_os_error`.

use std::io;

use crate::operation::faults::{CallFault, Faults};

pub use libc::{
    EAGAIN, EBADF, EBUSY, ECANCELED, ECONNABORTED, ECONNREFUSED, ECONNRESET, EEXIST, EINTR, EINVAL,
    EISDIR, ELOOP, EMFILE, ENFILE, ENOBUFS, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTDIR, ENOTSOCK,
    EPERM, EPIPE, EXDEV,
};

/// The calling thread's last error, of a call that just failed.
pub(crate) fn last() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `rc`, or the thread's last error if `rc` is negative.
#[inline]
pub(crate) fn check(rc: i32) -> io::Result<i32> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// A count of bytes or `None` for "would block"; interrupted calls are made again.
#[inline]
pub(crate) fn retry_or_none<T>(
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        match call() {
            Ok(value) => return Ok(Some(value)),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The count that a call of the C library answers, or its error.
#[inline]
pub(crate) fn count_or_error(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// As [`retry_or_none`], with faults.
#[inline]
pub(crate) fn retry_with_faults<T>(
    faults: &mut Faults,
    mut call: impl FnMut() -> io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        let result = match faults.next_call() {
            None => call(),
            Some(CallFault::Interrupted) => Err(io::Error::from_raw_os_error(EINTR)),
            Some(CallFault::WouldBlock) => Err(io::Error::from_raw_os_error(EAGAIN)),
        };
        match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => match error.raw_os_error() {
                Some(EINTR) => {}
                Some(EAGAIN) => return Ok(None),
                _ => return Err(error),
            },
        }
    }
}
