//! ppoll(2): waiting for the descriptors of an array.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use crate::errno;
use crate::timespec;

/// A read would not block (`POLLIN`).
pub const IN: i16 = libc::POLLIN;
/// Urgent data (`POLLPRI`).
pub const PRI: i16 = libc::POLLPRI;
/// A write would not block (`POLLOUT`).
pub const OUT: i16 = libc::POLLOUT;
/// An error is pending (`POLLERR`); reported whether asked for or not.
pub const ERR: i16 = libc::POLLERR;
/// Hang-up (`POLLHUP`); reported whether asked for or not.
pub const HUP: i16 = libc::POLLHUP;
/// Not an open descriptor (`POLLNVAL`); reported whether asked for or not.
pub const NVAL: i16 = libc::POLLNVAL;
/// The peer closed its sending side (`POLLRDHUP`).
pub const RDHUP: i16 = libc::POLLRDHUP;

/// One entry of the array: a descriptor, what is wanted of it, and what the last [`poll`] found.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct PollFd(libc::pollfd);

const _: () = assert!(size_of::<PollFd>() == size_of::<libc::pollfd>());

impl PollFd {
    /// An entry for `fd`; a negative number is skipped by the kernel.
    #[must_use]
    pub const fn new(fd: RawFd, events: i16) -> Self {
        Self(libc::pollfd {
            fd,
            events,
            revents: 0,
        })
    }

    /// The descriptor.
    #[inline]
    #[must_use]
    pub const fn fd(&self) -> RawFd {
        self.0.fd
    }

    /// What the last [`poll`] found.
    #[inline]
    #[must_use]
    pub const fn found(&self) -> i16 {
        self.0.revents
    }
}

impl fmt::Debug for PollFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollFd")
            .field("fd", &self.0.fd)
            .field("events", &self.0.events)
            .field("revents", &self.0.revents)
            .finish()
    }
}

/// Waits until an entry of `fds` is ready or `timeout` is over (`None`: for ever). Answers how
/// many entries have something in [`PollFd::found`]; zero after a time-out or an interruption, in
/// which case `found` must not be read.
///
/// # Errors
///
/// `EINVAL` (more entries than the limit of descriptors), `ENOMEM`. `EINTR` is `Ok(0)`.
pub fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    let ts = timeout.map(timespec::from_duration);
    let ts = ts.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = fds.len() as libc::nfds_t;
    let entries = fds.as_mut_ptr().cast::<libc::pollfd>();
    // SAFETY: `entries` points to `count` entries borrowed from `fds` for the whole call, of the
    // same layout (`repr(transparent)`); `ts` is null or points to a local that outlives the call.
    let rc = unsafe { libc::ppoll(entries, count, ts, ptr::null()) };
    match usize::try_from(rc) {
        Ok(count) => Ok(count),
        Err(_) if errno::last() == libc::EINTR => Ok(0),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_ready_pipe_is_found_and_a_negative_number_skipped() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        writer.write_all(b"x").expect("write");
        let mut fds = [PollFd::new(-7, IN), PollFd::new(reader.as_raw_fd(), IN)];
        for timeout in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            assert_eq!(poll(&mut fds, timeout).expect("poll"), 1);
            assert_eq!((fds[0].found(), fds[1].found()), (0, IN));
        }
    }

    #[test]
    fn a_number_that_is_not_open_is_invalid() {
        let mut fds = [PollFd::new(i32::MAX, IN)];
        assert_eq!(poll(&mut fds, None).expect("poll"), 1);
        assert_eq!(fds[0].found(), NVAL);
    }
}
