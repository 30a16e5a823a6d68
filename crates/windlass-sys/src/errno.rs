//! Error numbers, errno(3), for callers that tell errors apart by `io::Error::raw_os_error`.

use std::io;

pub use libc::{
    EAGAIN, EBADF, ECONNABORTED, ECONNRESET, EEXIST, EINTR, EINVAL, ELOOP, EMFILE, ENFILE, ENOBUFS,
    ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTDIR, ENOTSOCK, EPERM, EPIPE, EXDEV,
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
