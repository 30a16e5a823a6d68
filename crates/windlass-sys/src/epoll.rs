//! The epoll(7) instance: a kernel set of descriptors, and waiting for those that are ready.
//!
//! Descriptors are passed as numbers: the kernel checks them, and watching one neither reads,
//! writes nor closes it. Changes are possible while another thread waits.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::c_long;

use crate::errno::{self, check};
use crate::timespec;

/// A read would not block (`EPOLLIN`).
pub const IN: u32 = 0x001;
/// Urgent data (`EPOLLPRI`).
pub const PRI: u32 = 0x002;
/// A write would not block (`EPOLLOUT`).
pub const OUT: u32 = 0x004;
/// An error is pending (`EPOLLERR`); reported whether asked for or not.
pub const ERR: u32 = 0x008;
/// Hang-up (`EPOLLHUP`); reported whether asked for or not.
pub const HUP: u32 = 0x010;
/// The peer closed its sending side (`EPOLLRDHUP`).
pub const RDHUP: u32 = 0x2000;
/// Report once, then be silent until modified (`EPOLLONESHOT`).
pub const ONESHOT: u32 = 1 << 30;
/// Report changes, not states (`EPOLLET`).
pub const ET: u32 = 1 << 31;

const _: () = assert!(
    IN == libc::EPOLLIN as u32
        && PRI == libc::EPOLLPRI as u32
        && OUT == libc::EPOLLOUT as u32
        && ERR == libc::EPOLLERR as u32
        && HUP == libc::EPOLLHUP as u32
        && RDHUP == libc::EPOLLRDHUP as u32
        && ONESHOT == libc::EPOLLONESHOT as u32
        && ET == libc::EPOLLET as u32
);

/// Whether the kernel (before 5.11) or a seccomp filter refused epoll_pwait2(2) once.
static PWAIT2_REFUSED: AtomicBool = AtomicBool::new(false);

/// An epoll instance, closed on drop and on exec.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Opens an instance, epoll_create1(2) with `EPOLL_CLOEXEC`.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { fd })
    }

    /// Replaces the instance by an empty one of the same number, dup3(2): for a child after a fork,
    /// to which the old one is the parent's, and where others know it by its number. A thread that is
    /// waiting goes on with the old one until its wait ends.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn renew(&self) -> io::Result<()> {
        let new = Self::new()?;
        // SAFETY: The number that is closed and opened again is `self.fd`'s, which owns it before
        // and after; both are epoll instances, so that whoever borrowed it still has one.
        check(unsafe { libc::dup3(new.fd.as_raw_fd(), self.fd.as_raw_fd(), libc::O_CLOEXEC) })?;
        Ok(())
    }

    /// Adds `fd` to the set, epoll_ctl(2) `EPOLL_CTL_ADD`.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EEXIST`, `ELOOP`, `ENOMEM`, `ENOSPC` (the user's limit of watches), `EPERM` (a
    /// file that cannot be polled, such as a regular one).
    #[inline]
    pub fn add(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    /// Replaces what `fd` is watched for and arms it, epoll_ctl(2) `EPOLL_CTL_MOD`.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOENT` (not in the set), `ENOMEM`, `EPERM`.
    #[inline]
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    /// Takes `fd` out of the set, epoll_ctl(2) `EPOLL_CTL_DEL`.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOENT` (not in the set), `EPERM`.
    #[inline]
    pub fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever), and fills `buffer`
    /// anew. Answers how many reports there are; zero after a time-out or an interruption.
    ///
    /// Nanosecond time-outs by epoll_pwait2(2); where it is missing, epoll_wait(2) with the
    /// time-out rounded up to whole milliseconds (and to at most 24 days).
    ///
    /// # Errors
    ///
    /// None that a caller of this type can cause; `EINTR` is `Ok(0)`.
    #[inline]
    pub fn wait(&self, buffer: &mut EventBuffer, timeout: Option<Duration>) -> io::Result<usize> {
        buffer.filled = 0;
        let rc = match timeout {
            None => self.wait_ms(buffer, -1),
            Some(Duration::ZERO) => self.wait_ms(buffer, 0),
            Some(timeout) => self.wait_fine(buffer, timeout),
        };
        match usize::try_from(rc) {
            Ok(count) => {
                buffer.filled = count;
                Ok(count)
            }
            Err(_) if errno::last() == libc::EINTR => Ok(0),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    #[inline]
    fn control(&self, operation: i32, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: `self.fd` is open until drop and `event` outlives the call; the kernel checks
        // `operation` and `fd`.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) })?;
        Ok(())
    }

    #[inline]
    fn wait_ms(&self, buffer: &mut EventBuffer, timeout_ms: i32) -> i32 {
        let count = buffer.capacity_i32();
        let events = buffer.events.as_mut_ptr();
        // By number, as the C library's function also looks whether its thread is to be cancelled;
        // as epoll_pwait, which every architecture has. It takes words: numbers are widened.
        // SAFETY: `events` points to `count` entries that `buffer` owns and that stay borrowed
        // during the call, and no signal mask is passed; `self.fd` is open until drop.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                c_long::from(self.fd.as_raw_fd()),
                events,
                c_long::from(count),
                c_long::from(timeout_ms),
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        i32::try_from(rc).unwrap_or(-1)
    }

    #[inline]
    fn wait_fine(&self, buffer: &mut EventBuffer, timeout: Duration) -> i32 {
        if !PWAIT2_REFUSED.load(Ordering::Relaxed) {
            let ts = timespec::from_duration(timeout);
            let count = buffer.capacity_i32();
            let events = buffer.events.as_mut_ptr();
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: `events` points to `count` entries that `buffer` owns, `ts` outlives the
            // call, and no signal mask is passed; `self.fd` is open until drop.
            let rc = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    c_long::from(self.fd.as_raw_fd()),
                    events,
                    c_long::from(count),
                    &raw const ts,
                    no_mask,
                    0_usize,
                )
            };
            // Some seccomp filters answer EPERM to calls that they do not know.
            if rc >= 0 || !matches!(errno::last(), libc::ENOSYS | libc::EPERM) {
                return i32::try_from(rc).unwrap_or(-1);
            }
            PWAIT2_REFUSED.store(true, Ordering::Relaxed);
        }
        self.wait_ms(buffer, milliseconds_rounded_up(timeout))
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The array that a wait fills, reused from wait to wait.
pub struct EventBuffer {
    events: Vec<libc::epoll_event>,
    filled: usize,
}

impl EventBuffer {
    /// A buffer for `capacity` reports (at least one).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let empty = libc::epoll_event { events: 0, u64: 0 };
        Self {
            events: vec![empty; capacity.max(1)],
            filled: 0,
        }
    }

    /// Makes room for `capacity` reports; never shrinks. What the last wait found is lost.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.events.len() {
            *self = Self::with_capacity(capacity);
        }
    }

    /// How many reports fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.events.len()
    }

    /// What the last wait found: events and the registration's data.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u64)> + '_ {
        // Fields of a packed struct are copied out, never referenced.
        self.events[..self.filled]
            .iter()
            .map(|event| (event.events, event.u64))
    }

    /// How many reports a wait asks for: at most as many as the kernel takes, whose limit is of bytes.
    fn capacity_i32(&self) -> i32 {
        const COUNT_MAX: i32 = i32::MAX / size_of::<libc::epoll_event>() as i32;
        i32::try_from(self.events.len()).map_or(COUNT_MAX, |len| len.min(COUNT_MAX))
    }
}

impl fmt::Debug for EventBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBuffer")
            .field("capacity", &self.events.len())
            .field("filled", &self.filled)
            .finish()
    }
}

fn milliseconds_rounded_up(timeout: Duration) -> i32 {
    let ms = u64::from(timeout.subsec_nanos().div_ceil(1_000_000));
    let ms = timeout.as_secs().saturating_mul(1000).saturating_add(ms);
    i32::try_from(ms).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn milliseconds_never_round_down() {
        assert_eq!(milliseconds_rounded_up(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds_rounded_up(Duration::from_millis(7)), 7);
        assert_eq!(milliseconds_rounded_up(Duration::from_nanos(7_000_001)), 8);
        assert_eq!(milliseconds_rounded_up(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_ready_pipe_is_reported_with_its_data_and_any_timeout() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        writer.write_all(b"x").expect("write");
        let epoll = Epoll::new().expect("epoll");
        epoll
            .add(reader.as_raw_fd(), IN, u64::MAX - 5)
            .expect("add");
        let mut buffer = EventBuffer::with_capacity(4);
        for timeout in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            assert_eq!(epoll.wait(&mut buffer, timeout).expect("wait"), 1);
            assert_eq!(buffer.iter().collect::<Vec<_>>(), [(IN, u64::MAX - 5)]);
        }
        epoll.delete(reader.as_raw_fd()).expect("delete");
        assert_eq!(
            epoll.wait(&mut buffer, Some(Duration::ZERO)).expect("wait"),
            0
        );
        assert_eq!(buffer.iter().len(), 0);
    }

    #[test]
    fn without_pwait2_a_timeout_is_rounded_up() {
        let epoll = Epoll::new().expect("epoll");
        let mut buffer = EventBuffer::with_capacity(4);
        // Other tests that wait meanwhile take the same way and lose nothing but resolution.
        PWAIT2_REFUSED.store(true, Ordering::Relaxed);
        let start = std::time::Instant::now();
        let found = epoll.wait(&mut buffer, Some(Duration::from_micros(300)));
        let took = start.elapsed();
        PWAIT2_REFUSED.store(false, Ordering::Relaxed);
        assert_eq!(found.expect("wait"), 0);
        assert!(took >= Duration::from_millis(1), "{took:?}");
    }

    #[test]
    fn a_renewed_instance_is_empty_and_has_its_number() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        writer.write_all(b"x").expect("write");
        let epoll = Epoll::new().expect("epoll");
        let number = epoll.as_fd().as_raw_fd();
        epoll.add(reader.as_raw_fd(), IN, 1).expect("add");
        epoll.renew().expect("renew");
        let mut buffer = EventBuffer::with_capacity(4);
        assert_eq!(
            epoll.wait(&mut buffer, Some(Duration::ZERO)).expect("wait"),
            0
        );
        epoll.add(reader.as_raw_fd(), IN, 2).expect("add");
        assert_eq!(epoll.wait(&mut buffer, None).expect("wait"), 1);
        assert_eq!(epoll.as_fd().as_raw_fd(), number);
    }

    #[test]
    fn errors_are_the_kernels() {
        let epoll = Epoll::new().expect("epoll");
        let error = epoll.add(-1, IN, 0).expect_err("no descriptor");
        assert_eq!(error.raw_os_error(), Some(errno::EBADF));
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let error = epoll
            .modify(reader.as_raw_fd(), IN, 0)
            .expect_err("not in the set");
        assert_eq!(error.raw_os_error(), Some(errno::ENOENT));
        let file = std::fs::File::open("/dev/null").expect("open");
        let error = epoll
            .add(file.as_raw_fd(), IN, 0)
            .expect_err("not pollable");
        assert_eq!(error.raw_os_error(), Some(errno::EPERM));
    }
}
