//! One operation in flight, and what each of the kernel's answers means for it.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use io_uring::types::Timespec;
use io_uring::{cqueue, opcode, squeue};

use super::direct::{Attempt, Direct};
use super::entry::{self, Extra};
use super::setup::Abilities;
use super::transfer::{Step, Transfer};
use crate::epoll;
use crate::file::of_statx;
use crate::operation::parts::append;
use crate::operation::{Address, Operation, Outcome, Repeat, SharedFd};

/// An operation that the kernel may be at.
pub(super) struct Flight {
    pub(super) operation: Operation,
    pub(super) extra: Extra,
    pub(super) stage: Stage,
    pub(super) cancel_asked: bool,
    /// Whether a splice waits for where it puts, not for where it takes from.
    waits_for_target: bool,
    /// Whether a zero-copy send goes the ordinary way: the socket has no other.
    sends_plainly: bool,
    /// Whether it waits for changes of readiness: a half-close hides it.
    waits_for_change: bool,
}

/// How long what nothing tells of is left alone.
static PAUSE: Timespec = Timespec::new().nsec(2_000_000);

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its own entry.
    Itself,
    /// Its own entry, which is over when the kernel has taken it, and answered if it failed only.
    AtOnce,
    /// That its descriptor is ready: the kernel does not wait by itself for some that do not block.
    Readiness,
    /// That the network has let go of its pages; the result is known.
    Release(i32),
    /// A buffer of its pool.
    Parked,
    /// The end of a poll that has found what was wanted.
    Found,
}

/// What one answer brings, before it is put into words.
#[derive(Debug)]
pub(super) enum Found {
    /// An outcome or an error.
    Result(io::Result<Outcome>),
    /// A buffer of the pool, by its number, with so many bytes.
    Buffer(u16, u32),
    /// Nothing to tell.
    Nothing,
}

/// What becomes of the operation after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is complete.
    Finish,
    /// More answers will come.
    Keep,
    /// It must be submitted again.
    Submit,
    /// It must wait for a buffer.
    Park,
    /// The kernel must end it.
    Cancel,
}

impl Flight {
    pub(super) fn new(operation: Operation) -> Self {
        Self {
            operation,
            extra: Extra::None,
            stage: Stage::Itself,
            cancel_asked: false,
            waits_for_target: false,
            sends_plainly: false,
            waits_for_change: false,
        }
    }

    /// As [`new`](Self::new), of a send that is to end as it is submitted.
    pub(super) fn at_once(operation: Operation) -> Self {
        Self {
            stage: Stage::AtOnce,
            ..Self::new(operation)
        }
    }

    /// Does what can be done without the kernel's ring; answers what it came to, if it is complete.
    #[inline]
    pub(super) fn attempt(&mut self) -> Option<io::Result<usize>> {
        match self.operation {
            Operation::SendFile { .. } if self.stage == Stage::Itself => self.attempt_transfer(),
            _ => None,
        }
    }

    fn attempt_transfer(&mut self) -> Option<io::Result<usize>> {
        let Operation::SendFile {
            file,
            offset,
            length,
            socket,
        } = &self.operation
        else {
            return None;
        };
        if matches!(self.extra, Extra::None) {
            let direct = Direct::new(socket, *offset, *length)?;
            self.extra = Extra::Direct(Box::new(direct));
        }
        let Extra::Direct(direct) = &mut self.extra else {
            return None;
        };
        let sent = |direct: &Direct| direct.sent() as usize;
        match direct.attempt(file, socket) {
            Ok(Attempt::Done) => Some(Ok(sent(direct))),
            Ok(Attempt::Wait) => {
                self.stage = Stage::Readiness;
                None
            }
            // What went is told first; the socket will say the error again.
            Err(_) if direct.sent() > 0 => Some(Ok(sent(direct))),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Not a file that it takes: by reading and sending.
                let transfer = Transfer::new(&self.operation);
                match transfer {
                    Ok(transfer) => {
                        self.extra = Extra::Transfer(Box::new(transfer));
                        None
                    }
                    Err(error) => Some(Err(error)),
                }
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// The entry for what it waits for.
    pub(super) fn entry(&mut self, abilities: Abilities) -> io::Result<squeue::Entry> {
        if self.stage == Stage::Readiness
            && let Some(entry) = self.readiness_entry()
        {
            return Ok(entry);
        }
        if self.stage == Stage::AtOnce
            && let Operation::Send { socket, payload } = &self.operation
        {
            return entry::send_at_once(socket, payload);
        }
        self.stage = Stage::Itself;
        if let Extra::Transfer(transfer) = &mut self.extra {
            return Ok(transfer.entry(&self.operation));
        }
        let abilities = Abilities {
            zero_copy_send: abilities.zero_copy_send && !self.sends_plainly,
            ..abilities
        };
        entry::build(&mut self.operation, &mut self.extra, abilities)
    }

    /// What it comes to if it is cancelled without the kernel being at it.
    pub(super) fn cancelled(&self) -> io::Result<usize> {
        match &self.extra {
            Extra::Transfer(transfer) if transfer.sent() > 0 => Ok(transfer.sent() as usize),
            Extra::Direct(direct) if direct.sent() > 0 => Ok(direct.sent() as usize),
            _ => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        }
    }

    /// The kernel's answer: `result` is its count, descriptor or negative error.
    pub(super) fn answered(&mut self, result: i32, flags: u32) -> (Found, Next) {
        match self.stage {
            Stage::Readiness => return self.ready(result, flags),
            Stage::Found | Stage::Release(_) if cqueue::more(flags) => {
                return (Found::Nothing, Next::Keep);
            }
            Stage::Found => return self.resume(),
            Stage::Release(known) => return self.released(known),
            // It failed, or the socket took a part.
            Stage::AtOnce => self.stage = Stage::Itself,
            Stage::Itself | Stage::Parked => {}
        }
        if cqueue::more(flags) && matches!(self.operation, Operation::SendZeroCopy { .. }) {
            self.stage = Stage::Release(result);
            return (Found::Nothing, Next::Keep);
        }
        if result < 0
            && let Some(next) = self.tries_again(-result)
        {
            return (Found::Nothing, next);
        }
        if matches!(self.extra, Extra::Transfer(_)) {
            return self.transferred(result);
        }
        match self.operation {
            Operation::HangUp { .. } => return self.hung_up(result, flags),
            Operation::Poll { .. } if result > 0 && !self.is_awaited(result) => {
                self.stage = Stage::Readiness;
                return self.ready(result, flags);
            }
            _ => {}
        }
        let found = match cqueue::buffer_select(flags) {
            Some(index) if result >= 0 => Found::Buffer(index, result.unsigned_abs()),
            _ => Found::Result(self.outcome(result)),
        };
        let next = if cqueue::more(flags) {
            Next::Keep
        } else if self.goes_on(result) {
            Next::Submit
        } else {
            Next::Finish
        };
        (found, next)
    }

    /// The network has let go of a send's pages.
    fn released(&mut self, known: i32) -> (Found, Next) {
        self.stage = Stage::Itself;
        if known < 0
            && let Some(next) = self.tries_again(-known)
        {
            return (Found::Nothing, next);
        }
        (Found::Result(self.outcome(known)), Next::Finish)
    }

    /// Whether an answer that the kernel says is the last is not: it ends multishot operations as
    /// it pleases.
    fn goes_on(&self, result: i32) -> bool {
        if self.cancel_asked {
            return false;
        }
        match &self.operation {
            Operation::Accept {
                repeat: Repeat::Multishot,
                ..
            } => result >= 0 || concerns_connection_only(-result),
            Operation::ReceiveMultishot { .. } => result > 0,
            _ => false,
        }
    }

    /// Errors that are none of the operation's.
    fn tries_again(&mut self, error: i32) -> Option<Next> {
        if self.cancel_asked {
            return None;
        }
        match (error, &self.operation) {
            (libc::ENOBUFS, Operation::ReceiveMultishot { .. }) => {
                self.stage = Stage::Parked;
                Some(Next::Park)
            }
            (libc::EAGAIN, _) if self.readiness_entry().is_some() => {
                self.stage = Stage::Readiness;
                Some(Next::Submit)
            }
            // A second connect says that it is under way, close(2) has closed.
            (libc::EINTR, Operation::Connect { .. } | Operation::Close { .. }) => None,
            (libc::EINTR, _) => Some(Next::Submit),
            (libc::EOPNOTSUPP, Operation::SendZeroCopy { .. }) if !self.sends_plainly => {
                self.sends_plainly = true;
                Some(Next::Submit)
            }
            _ => None,
        }
    }

    /// Of a poll's answers that comes to something which tells of a hang-up. The kernel's poll ends
    /// with the one after it, which says that it was cancelled.
    fn hung_up(&mut self, result: i32, flags: u32) -> (Found, Next) {
        let is_hang_up = result > 0 && result.unsigned_abs() & (epoll::ERR | epoll::HUP) != 0;
        let goes_on = cqueue::more(flags);
        if result < 0 || is_hang_up && !goes_on {
            return (Found::Result(self.outcome(result)), Next::Finish);
        }
        if is_hang_up {
            self.stage = Stage::Release(result);
            return (Found::Nothing, Next::Cancel);
        }
        if goes_on {
            return (Found::Nothing, Next::Keep);
        }
        if self.cancel_asked {
            // The kernel found nothing to cancel if its poll ended before.
            let found = self.cancelled().map(Outcome::Bytes);
            return (Found::Result(found), Next::Finish);
        }
        (Found::Nothing, Next::Submit)
    }

    /// A poll for readiness has answered. The kernel's polls also tell of the peer's half-close,
    /// which is not asked for: an ordinary poll would tell of it again at once and for ever, so
    /// that only a change can bring what is wanted.
    fn ready(&mut self, result: i32, flags: u32) -> (Found, Next) {
        let is_found = self.is_awaited(result);
        if cqueue::more(flags) {
            if !is_found {
                return (Found::Nothing, Next::Keep);
            }
            self.stage = match self.operation {
                Operation::Poll { .. } => Stage::Release(result),
                _ => Stage::Found,
            };
            return (Found::Nothing, Next::Cancel);
        }
        if result == -libc::ETIME {
            // Nothing tells of it: it was left alone for a while.
            return self.resume();
        }
        if result < 0 && !self.cancel_asked {
            self.stage = Stage::Itself;
            // What went is told first.
            let error = |_| io::Error::from_raw_os_error(-result);
            let found = self.cancelled().map(Outcome::Bytes).map_err(error);
            return (Found::Result(found), Next::Finish);
        }
        if !is_found && !self.cancel_asked {
            self.waits_for_change = true;
            return (Found::Nothing, Next::Submit);
        }
        self.resume()
    }

    /// Whether what a poll answered is what the operation waits for, or makes waiting pointless.
    fn is_awaited(&self, result: i32) -> bool {
        let ends = epoll::ERR | epoll::HUP;
        let awaited = self.awaited().map_or(!0, |(_, events)| events | ends);
        result > 0 && result.unsigned_abs() & awaited != 0
    }

    /// Goes on after it has waited.
    fn resume(&mut self) -> (Found, Next) {
        self.stage = Stage::Itself;
        if self.cancel_asked {
            return (
                Found::Result(self.cancelled().map(Outcome::Bytes)),
                Next::Finish,
            );
        }
        // Of a splice nobody says which side it is that is not ready: one after the other is asked.
        self.waits_for_target = !self.waits_for_target;
        (Found::Nothing, Next::Submit)
    }

    /// Waits for the descriptor of an operation that would block on it.
    fn readiness_entry(&self) -> Option<squeue::Entry> {
        if let Operation::Connect {
            address: Address::Unix(_),
            ..
        } = self.operation
        {
            // The queue of the listener is full; nothing tells when it is not.
            return Some(opcode::Timeout::new(&raw const PAUSE).build());
        }
        let (subject, events) = self.awaited()?;
        let poll = opcode::PollAdd::new(entry::fd(subject), events);
        Some(poll.multi(self.waits_for_change).build())
    }

    /// The descriptor that the operation would block on, and for what.
    fn awaited(&self) -> Option<(&SharedFd, u32)> {
        Some(match &self.operation {
            Operation::Accept { listener: fd, .. }
            | Operation::Read { fd, .. }
            | Operation::ReadVectored { fd, .. }
            | Operation::Receive { socket: fd, .. }
            | Operation::ReceiveMessage { socket: fd, .. }
            | Operation::ReceiveMultishot { socket: fd, .. } => (fd, epoll::IN),
            Operation::Send { socket: fd, .. }
            | Operation::SendMessage { socket: fd, .. }
            | Operation::SendZeroCopy { socket: fd, .. }
            | Operation::Write { fd, .. }
            | Operation::WriteVectored { fd, .. } => (fd, epoll::OUT),
            Operation::Poll { fd, events } => (fd, *events),
            Operation::SendFile { socket, .. } => match &self.extra {
                Extra::Transfer(transfer) if transfer.is_sending() => (socket, epoll::OUT),
                Extra::Direct(_) => (socket, epoll::OUT),
                // A file is always ready.
                _ => return None,
            },
            Operation::Splice { to, .. } if self.waits_for_target => (to, epoll::OUT),
            Operation::Splice { from, .. } => (from, epoll::IN),
            _ => return None,
        })
    }

    /// A step of a transfer is done.
    fn transferred(&mut self, result: i32) -> (Found, Next) {
        let Extra::Transfer(transfer) = &mut self.extra else {
            unreachable!("checked by the caller");
        };
        let sent = transfer.sent();
        if result < 0 {
            let found = if sent > 0 {
                // What went is told first; the socket will say the error again.
                Ok(Outcome::Bytes(sent as usize))
            } else {
                Err(io::Error::from_raw_os_error(-result))
            };
            return (Found::Result(found), Next::Finish);
        }
        let step = transfer.advance(result.unsigned_abs() as usize);
        if step == Step::Next && !self.cancel_asked {
            return (Found::Nothing, Next::Submit);
        }
        let sent = transfer.sent();
        if step == Step::Next && sent == 0 {
            return (
                Found::Result(self.cancelled().map(Outcome::Bytes)),
                Next::Finish,
            );
        }
        (
            Found::Result(Ok(Outcome::Bytes(sent as usize))),
            Next::Finish,
        )
    }

    /// Puts the kernel's answer into words, and what was read into the buffers.
    fn outcome(&mut self, result: i32) -> io::Result<Outcome> {
        if result < 0 {
            return self.failure(-result);
        }
        let count = result.unsigned_abs() as usize;
        Ok(match &mut self.operation {
            Operation::Accept { .. } => Outcome::Accepted(adopt(result)),
            Operation::OpenAt { .. } => Outcome::Opened(adopt(result)),
            Operation::Close { fd } => {
                forget(fd);
                Outcome::Done
            }
            Operation::Connect { .. }
            | Operation::Shutdown { .. }
            | Operation::Sync { .. }
            | Operation::Timeout { .. } => Outcome::Done,
            Operation::HangUp { .. } | Operation::Poll { .. } => {
                Outcome::Events(result.unsigned_abs())
            }
            Operation::Read { buffer, .. } | Operation::Receive { buffer, .. } => {
                // SAFETY: The kernel has written `count` bytes from the vector's end on, as it was
                // told to by `entry::build`.
                unsafe { append(std::slice::from_mut(buffer), count) };
                Outcome::Bytes(count)
            }
            Operation::ReadVectored { buffers, .. } => {
                // SAFETY: As above, one after the other.
                unsafe { append(buffers, count) };
                Outcome::Bytes(count)
            }
            Operation::ReceiveMessage { buffers, .. } => {
                // SAFETY: As above.
                unsafe { append(buffers, count) };
                let Extra::Message(message) = &self.extra else {
                    unreachable!("a message that was received has its header");
                };
                Outcome::Message(Box::new(message.describe(count)))
            }
            Operation::Statx { .. } => {
                let Extra::Status(status) = &self.extra else {
                    unreachable!("a description has room for it");
                };
                // SAFETY: The call succeeded, so the kernel has filled it.
                Outcome::Status(Box::new(of_statx(unsafe { status.assume_init_ref() })))
            }
            Operation::ReceiveMultishot { .. }
            | Operation::Send { .. }
            | Operation::SendFile { .. }
            | Operation::SendMessage { .. }
            | Operation::SendZeroCopy { .. }
            | Operation::Splice { .. }
            | Operation::Write { .. }
            | Operation::WriteVectored { .. } => Outcome::Bytes(count),
        })
    }

    fn failure(&mut self, error: i32) -> io::Result<Outcome> {
        match &mut self.operation {
            Operation::Timeout { .. } if error == libc::ETIME => return Ok(Outcome::Done),
            // Closed in spite of the error, close(2), but if the kernel never tried.
            Operation::Close { fd } if error != libc::ECANCELED => forget(fd),
            _ => {}
        }
        // A worker of the kernel that is to stop is interrupted; and what would have been tried
        // again was to stop first.
        let is_stopped = matches!(
            (error, &self.operation),
            (libc::EINTR | libc::EAGAIN, _)
                | (libc::ENOBUFS, Operation::ReceiveMultishot { .. })
                | (libc::EOPNOTSUPP, Operation::SendZeroCopy { .. })
        );
        let error = if self.cancel_asked && is_stopped {
            libc::ECANCELED
        } else {
            error
        };
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Whether an error of accept4(2) is of that one connection, which is gone: "treat them like
/// EAGAIN", as its manual says.
pub(super) fn concerns_connection_only(error: i32) -> bool {
    matches!(
        error,
        libc::ECONNABORTED
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPERM
            | libc::EPROTO
            | libc::ETIMEDOUT
    )
}

fn adopt(fd: i32) -> OwnedFd {
    // SAFETY: The kernel has just opened it for this operation; nobody else knows of it, and each
    // answer is looked at once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The kernel has closed it.
fn forget(fd: &mut Option<OwnedFd>) {
    if let Some(fd) = fd.take() {
        let _ = fd.into_raw_fd();
    }
}
