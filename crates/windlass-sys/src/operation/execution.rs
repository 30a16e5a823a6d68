//! Operations that are carried out by ordinary system calls, step by step, none of which waits.
//!
//! An [`Execution`] is one operation and how far it is. Each [`step`](Execution::step) does what can
//! be done at once, and says what has to be waited for before the next. What an operation means
//! is told by [`Operation`]; this does it as the ring does.
//!
//! # How a call is kept from waiting
//!
//! - Sockets: `MSG_DONTWAIT`. For accept4(2) and connect(2), which have no such flag, `O_NONBLOCK` is
//!   set for the moment of the call, and taken back; see [`momentarily`].
//! - Pipes and devices: `RWF_NOWAIT`; where the kernel has no such thing for them (pipes before
//!   Linux 6.4) poll(2) is asked first, and at most `PIPE_BUF` bytes are written.
//! - Regular files and directories are read, written and opened at once, which may take as long as
//!   their device does.
//!
//! # Threads
//!
//! Any, one at a time. Where poll(2) is asked first, another thread or process that reads the same
//! pipe may take what it told of, and the call waits.
//!
//! [`momentarily`]: crate::fd::momentarily_nonblocking

mod bytes;
mod files;
mod sockets;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::fs::FileType;
use rustix::io::Errno;

pub use super::faults::{Faults, ReportFault};
use super::{Operation, Outcome, Position, Repeat, SharedFd};
use crate::epoll;
use crate::net::AcceptError;
use crate::poll::{self, PollFd};
use crate::provided::{BufferPools, PoolId};

/// One operation, and how far it is.
#[derive(Debug)]
pub struct Execution {
    operation: Operation,
    nature: Option<Nature>,
    /// Bytes that were moved, of an operation that takes several calls.
    moved: u64,
    /// Whether anything was done already.
    has_begun: bool,
}

/// What came of a step.
#[derive(Debug)]
pub enum Step {
    /// Some was done, and more may be possible at once.
    Again,
    /// It has to wait.
    Blocked(Blocked),
    /// It is complete.
    Done(io::Result<Outcome>),
    /// One of its completions; more will come, perhaps at once.
    More(io::Result<Outcome>),
}

/// What an operation has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// A buffer of a pool.
    Buffer(PoolId),
    /// That a while has passed: nothing tells of it.
    Pause,
    /// That a descriptor is ready for these flags of [`epoll`].
    Ready(RawFd, u32),
    /// That so much time has passed.
    Time(Duration),
}

/// Which operations on a descriptor are done in the order of their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that take from it.
    In,
    /// Those that put into it.
    Out,
}

/// What kind of thing a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// Is never waited for.
    File,
    Socket,
    /// A pipe, a terminal, an eventfd, ….
    Stream,
}

/// Of what is long, so much is done in a step.
const STEP_BYTES: usize = 128 * 1024;

impl Execution {
    /// Of `operation`, of which nothing was done.
    #[must_use]
    pub const fn new(operation: Operation) -> Self {
        Self {
            operation,
            nature: None,
            moved: 0,
            has_begun: false,
        }
    }

    /// In which queue of which descriptor it has a place; `None`: it is done in no particular order.
    #[must_use]
    pub fn queue(&self) -> Option<(RawFd, Direction)> {
        let (fd, direction) = match &self.operation {
            Operation::Accept { listener: fd, .. }
            | Operation::Read { fd, .. }
            | Operation::ReadVectored { fd, .. }
            | Operation::Receive { socket: fd, .. }
            | Operation::ReceiveMessage { socket: fd, .. }
            | Operation::ReceiveMultishot { socket: fd, .. } => (fd, Direction::In),
            Operation::Connect { socket: fd, .. }
            | Operation::Send { socket: fd, .. }
            | Operation::SendFile { socket: fd, .. }
            | Operation::SendMessage { socket: fd, .. }
            | Operation::SendZeroCopy { socket: fd, .. }
            | Operation::Write { fd, .. }
            | Operation::WriteVectored { fd, .. } => (fd, Direction::Out),
            _ => return None,
        };
        Some((fd.as_raw_fd(), direction))
    }

    /// Does what can be done at once.
    pub fn step(&mut self, pools: &BufferPools, faults: &mut Faults) -> Step {
        let step = match self.try_step(pools, faults) {
            Ok(step) => step,
            Err(error) => Step::Done(Err(error)),
        };
        if !matches!(step, Step::Blocked(_)) {
            self.has_begun = true;
        }
        step
    }

    /// The descriptor can't be waited for. Answers whether the next step does it nevertheless, though
    /// it may take a while.
    pub fn do_without_waiting(&mut self) -> bool {
        let before = self.nature.replace(Nature::File);
        before.is_some_and(|nature| nature != Nature::Socket)
    }

    /// Whether anything of it was done: a request to cancel comes late.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// What it comes to if it goes no further.
    ///
    /// # Errors
    ///
    /// `ECANCELED`, if it has moved nothing.
    pub fn cancelled(&self) -> io::Result<Outcome> {
        if self.moved > 0 {
            return Ok(Outcome::Bytes(self.moved as usize));
        }
        Err(Errno::CANCELED.into())
    }

    /// The operation, to be given back.
    #[must_use]
    pub fn into_operation(self) -> Operation {
        self.operation
    }

    fn try_step(&mut self, pools: &BufferPools, faults: &mut Faults) -> io::Result<Step> {
        let nature = &mut self.nature;
        Ok(match &mut self.operation {
            Operation::Accept { listener, repeat } => accept(listener, *repeat, faults)?,
            Operation::Close { fd } => done(files::close(fd)),
            Operation::Connect { socket, address } => {
                match sockets::connect(socket, address, self.has_begun, faults)? {
                    sockets::Connected::Yes => done(Ok(())),
                    sockets::Connected::Later => Step::Blocked(Blocked::Pause),
                    sockets::Connected::UnderWay => {
                        self.has_begun = true;
                        until_ready(socket, epoll::OUT)
                    }
                }
            }
            Operation::OpenAt {
                directory,
                path,
                options,
            } => Step::Done(files::open(directory.as_ref(), path, *options).map(Outcome::Opened)),
            Operation::HangUp { fd } => poll_once(fd, 0)?,
            Operation::Poll { fd, events } => poll_once(fd, *events)?,
            Operation::Read {
                fd,
                buffer,
                position,
            } => {
                let nature = learn(nature, fd)?;
                let buffers = std::slice::from_mut(buffer);
                let count = bytes::read(fd, nature, buffers, *position, faults)?;
                counted(count, fd, epoll::IN)
            }
            Operation::ReadVectored {
                fd,
                buffers,
                position,
            } => {
                let nature = learn(nature, fd)?;
                let count = bytes::read(fd, nature, buffers, *position, faults)?;
                counted(count, fd, epoll::IN)
            }
            Operation::Receive { socket, buffer } => {
                let buffers = std::slice::from_mut(buffer);
                let nature = Nature::Socket;
                let count = bytes::read(socket, nature, buffers, Position::Current, faults)?;
                counted(count, socket, epoll::IN)
            }
            Operation::ReceiveMessage { socket, buffers } => {
                match sockets::receive_message(socket, buffers, faults)? {
                    Some(message) => Step::Done(Ok(Outcome::Message(Box::new(message)))),
                    None => until_ready(socket, epoll::IN),
                }
            }
            Operation::ReceiveMultishot { socket, pool } => {
                receive_into(pools, *pool, socket, faults)?
            }
            Operation::Send { socket, payload } | Operation::SendZeroCopy { socket, payload } => {
                let rest = bytes::rest_of(payload, self.moved)?;
                let len = rest.len();
                match bytes::send(socket, &rest[..len.min(STEP_BYTES)], faults) {
                    Ok(Some(count)) => {
                        self.moved += count as u64;
                        again_unless(count == len, self.moved)
                    }
                    Ok(None) => until_ready(socket, epoll::OUT),
                    Err(error) => ended_by(error, self.moved),
                }
            }
            Operation::SendFile {
                file,
                offset,
                length,
                socket,
            } => {
                let left = length.checked_sub(self.moved).filter(|left| *left > 0);
                let left = left.ok_or(Errno::INVAL)?.min(STEP_BYTES as u64) as usize;
                let from = offset.saturating_add(self.moved);
                match files::send_part(file, from, left, socket, faults) {
                    Ok(Some(count)) => {
                        self.moved += count as u64;
                        again_unless(count == 0 || self.moved == *length, self.moved)
                    }
                    Ok(None) => until_ready(socket, epoll::OUT),
                    Err(error) => ended_by(error, self.moved),
                }
            }
            Operation::SendMessage {
                socket,
                payloads,
                address,
            } => {
                let count = sockets::send_message(socket, payloads, address.as_ref(), faults)?;
                counted(count, socket, epoll::OUT)
            }
            Operation::Shutdown { socket, side } => done(sockets::shutdown(socket, *side)),
            Operation::Splice {
                from,
                from_position,
                to,
                to_position,
                length,
            } => {
                match files::splice((from, *from_position), (to, *to_position), *length, faults)? {
                    files::Spliced::Bytes(count) => bytes_done(count),
                    files::Spliced::From => until_ready(from, epoll::IN),
                    files::Spliced::To => until_ready(to, epoll::OUT),
                }
            }
            Operation::Statx { directory, path } => {
                let status = files::status(directory.as_ref(), path);
                Step::Done(status.map(|status| Outcome::Status(Box::new(status))))
            }
            Operation::Sync { fd, extent } => done(files::sync(fd, *extent)),
            Operation::Timeout { after } if !self.has_begun => {
                self.has_begun = true;
                Step::Blocked(Blocked::Time(*after))
            }
            Operation::Timeout { .. } => done(Ok(())),
            Operation::Write {
                fd,
                payload,
                position,
            } => {
                let nature = learn(nature, fd)?;
                let payloads = std::slice::from_ref(payload);
                let count = bytes::write(fd, nature, payloads, *position, faults)?;
                counted(count, fd, epoll::OUT)
            }
            Operation::WriteVectored {
                fd,
                payloads,
                position,
            } => {
                let nature = learn(nature, fd)?;
                let count = bytes::write(fd, nature, payloads, *position, faults)?;
                counted(count, fd, epoll::OUT)
            }
        })
    }
}

/// Looks once at what kind of thing `fd` is, fstat(2).
fn learn(nature: &mut Option<Nature>, fd: &SharedFd) -> io::Result<Nature> {
    if let Some(nature) = *nature {
        return Ok(nature);
    }
    let stat = rustix::fs::fstat(fd)?;
    let found = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice => Nature::File,
        FileType::Socket => Nature::Socket,
        _ => Nature::Stream,
    };
    *nature = Some(found);
    Ok(found)
}

fn accept(listener: &SharedFd, repeat: Repeat, faults: &mut Faults) -> io::Result<Step> {
    let result = match sockets::accept(listener, faults) {
        Ok(None) => return Ok(until_ready(listener, epoll::IN)),
        Ok(Some(socket)) => Ok(Outcome::Accepted(socket)),
        Err(error) => Err(error),
    };
    let goes_on = match &result {
        Err(error) => is_of_connection_only(error),
        Ok(_) => true,
    };
    Ok(if goes_on && repeat == Repeat::Multishot {
        Step::More(result)
    } else {
        Step::Done(result)
    })
}

fn is_of_connection_only(error: &io::Error) -> bool {
    Errno::from_io_error(error)
        .is_some_and(|error| matches!(AcceptError::from_errno(error), AcceptError::Connection(_)))
}

fn receive_into(
    pools: &BufferPools,
    pool: PoolId,
    socket: &SharedFd,
    faults: &mut Faults,
) -> io::Result<Step> {
    if !pools.contains(pool) {
        return Err(Errno::NOENT.into());
    }
    let Some(mut buffer) = pools.acquire(pool) else {
        return Ok(Step::Blocked(Blocked::Buffer(pool)));
    };
    Ok(match bytes::receive(socket, buffer.room_mut(), faults)? {
        None => until_ready(socket, epoll::IN),
        Some(0) => bytes_done(0),
        Some(count) => {
            buffer.set_len(count);
            Step::More(Ok(Outcome::Buffer(buffer)))
        }
    })
}

/// Asks poll(2) once, without waiting.
fn poll_once(fd: &SharedFd, events: u32) -> io::Result<Step> {
    let found = ready_for(fd.as_fd(), events)?;
    Ok(if found == 0 {
        until_ready(fd, events)
    } else {
        Step::Done(Ok(Outcome::Events(found)))
    })
}

/// Which of `events` are there now, as flags of [`epoll`]: poll(2) has the same.
fn ready_for(fd: BorrowedFd<'_>, events: u32) -> io::Result<u32> {
    let mut fds = [PollFd::new(fd.as_raw_fd(), events as i16)];
    let count = poll::poll(&mut fds, Some(Duration::ZERO))?;
    Ok(if count == 0 {
        0
    } else {
        u32::from(fds[0].found().cast_unsigned())
    })
}

fn until_ready(fd: &SharedFd, events: u32) -> Step {
    Step::Blocked(Blocked::Ready(fd.as_raw_fd(), events))
}

fn counted(count: Option<usize>, fd: &SharedFd, events: u32) -> Step {
    count.map_or_else(|| until_ready(fd, events), bytes_done)
}

fn bytes_done(count: usize) -> Step {
    Step::Done(Ok(Outcome::Bytes(count)))
}

fn done(result: io::Result<()>) -> Step {
    Step::Done(result.map(|()| Outcome::Done))
}

fn again_unless(is_done: bool, moved: u64) -> Step {
    if is_done {
        bytes_done(moved as usize)
    } else {
        Step::Again
    }
}

/// What went before the error is told first; the socket will say the error again.
fn ended_by(error: io::Error, moved: u64) -> Step {
    if moved > 0 {
        bytes_done(moved as usize)
    } else {
        Step::Done(Err(error))
    }
}
