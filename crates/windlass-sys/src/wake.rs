//! The wake-up channel: an eventfd(2) that one thread waits for and any thread may notify.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::errno::check;

/// A non-blocking eventfd, closed on drop and on exec. Notifications merge until drained.
#[derive(Debug)]
pub struct WakeFd {
    fd: OwnedFd,
}

impl WakeFd {
    /// Opens one, with nothing pending.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            fd: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Makes the descriptor readable, write(2). From any thread; async-signal-safe (it allocates
    /// nothing and takes no lock; a signal handler saves `errno` around it).
    ///
    /// # Errors
    ///
    /// None in practice. A full counter (`EAGAIN`) is a notification that is already pending.
    #[inline]
    pub fn notify(&self) -> io::Result<()> {
        loop {
            match rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
                Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts a new eventfd in place of this one under the same number, dup3(2): after a fork(2) the
    /// child has one of its own, and the parent's is not disturbed.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`; then it is as before.
    pub fn reinit(&self) -> io::Result<()> {
        let fresh = Self::new()?;
        let (from, to) = (fresh.fd.as_raw_fd(), self.fd.as_raw_fd());
        // SAFETY: both numbers are open and owned, by `fresh` and `self`. What is open under `to`
        // is replaced in one step; the number stays open, and `self.fd` its only owner.
        check(unsafe { libc::dup3(from, to, libc::O_CLOEXEC) })?;
        Ok(())
    }

    /// Takes all notifications, read(2). Answers how many there were since the last drain.
    ///
    /// # Errors
    ///
    /// None in practice.
    #[inline]
    pub fn drain(&self) -> io::Result<u64> {
        let mut count = [0_u8; 8];
        loop {
            match rustix::io::read(&self.fd, &mut count) {
                Ok(_) => return Ok(u64::from_ne_bytes(count)),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reinit_keeps_the_number_and_drops_what_was_pending() {
        let wake = WakeFd::new().expect("eventfd");
        let number = wake.as_fd().as_raw_fd();
        let parent = wake.as_fd().try_clone_to_owned().expect("dup");
        wake.notify().expect("notify");
        wake.reinit().expect("reinit");
        assert_eq!(wake.as_fd().as_raw_fd(), number);
        assert_eq!(wake.drain().expect("drain"), 0);
        let mut count = [0; 8];
        rustix::io::read(&parent, &mut count).expect("the old one still has its notification");
        assert_eq!(u64::from_ne_bytes(count), 1);
    }

    #[test]
    fn notifications_merge_until_drained() {
        let wake = WakeFd::new().expect("eventfd");
        assert_eq!(wake.drain().expect("drain"), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| wake.notify().expect("notify"));
            }
        });
        assert_eq!(wake.drain().expect("drain"), 4);
        assert_eq!(wake.drain().expect("drain"), 0);
    }

    #[test]
    fn a_full_counter_is_no_error() {
        let wake = WakeFd::new().expect("eventfd");
        rustix::io::write(&wake.fd, &(u64::MAX - 1).to_ne_bytes()).expect("fill");
        wake.notify().expect("notify");
        assert_eq!(wake.drain().expect("drain"), u64::MAX - 1);
    }
}
