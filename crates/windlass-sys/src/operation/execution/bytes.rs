//! Reads and writes that do not wait, of one buffer or several.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, iovec, msghdr};
use rustix::net::{RecvFlags, SendFlags};

use super::{Faults, Nature, ready_for};
use crate::epoll;
use crate::errno::{count_or_error, retry_with_faults};
use crate::fd::{Blocking, blocking};
use crate::operation::parts::{append, part_of, parts_of, room, rooms};
use crate::operation::{Payload, Position, SharedFd};

/// What a pipe takes at once if poll(2) says that it takes anything, pipe(7) `PIPE_BUF`.
const PIPE_BYTES: usize = libc::PIPE_BUF;

/// Appends to `buffers`, at most up to their capacities.
pub(super) fn read(
    fd: &SharedFd,
    nature: Nature,
    buffers: &mut [Vec<u8>],
    position: Position,
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    // One buffer, the usual case, needs no list on the heap.
    let (mut one, mut several);
    let parts: &mut [iovec] = if let [buffer] = buffers {
        one = [room(buffer)?];
        &mut one
    } else {
        several = rooms(buffers)?;
        &mut several
    };
    let limit = faults.limit(total(parts));
    let parts = first_bytes(parts, limit);
    let count = retry_with_faults(faults, || read_parts(fd, nature, parts, position))?;
    if let Some(count) = count {
        // SAFETY: The call has written `count` bytes into the spare capacity that `rooms` named,
        // one buffer after the other.
        unsafe { append(buffers, count) };
    }
    Ok(count)
}

/// Writes once; what `payloads` have.
pub(super) fn write(
    fd: &SharedFd,
    nature: Nature,
    payloads: &[Payload],
    position: Position,
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    let (mut one, mut several);
    let parts: &mut [iovec] = if let [payload] = payloads {
        one = [part_of(payload)];
        &mut one
    } else {
        several = parts_of(payloads)?;
        &mut several
    };
    if total(parts) == 0 {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let limit = faults.limit(total(parts));
    let parts = first_bytes(parts, limit);
    retry_with_faults(faults, || write_parts(fd, nature, parts, position))
}

/// Receives into `room`, recv(2).
pub(super) fn receive(
    socket: &SharedFd,
    room: &mut [u8],
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    let limit = faults.limit(room.len());
    retry_with_faults(faults, || {
        let received = rustix::net::recv(socket, &mut room[..limit], RecvFlags::DONTWAIT);
        Ok(received.map(|(_, count)| count)?)
    })
}

/// Sends once, send(2).
pub(super) fn send(
    socket: &SharedFd,
    bytes: &[u8],
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    let limit = faults.limit(bytes.len());
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_with_faults(faults, || {
        Ok(rustix::net::send(socket, &bytes[..limit], flags)?)
    })
}

/// What is left to be sent.
pub(super) fn rest_of(payload: &Payload, moved: u64) -> io::Result<&[u8]> {
    let rest = payload.as_slice().get(moved as usize..).unwrap_or_default();
    if rest.is_empty() {
        return Err(rustix::io::Errno::INVAL.into());
    }
    Ok(rest)
}

fn total(parts: &[iovec]) -> usize {
    let lengths = parts.iter().map(|part| part.iov_len);
    lengths.fold(0, usize::saturating_add)
}

/// The parts that hold the first `limit` bytes; a part may become shorter.
fn first_bytes(parts: &mut [iovec], limit: usize) -> &[iovec] {
    let mut left = limit;
    for part in parts.iter_mut() {
        part.iov_len = part.iov_len.min(left);
        left -= part.iov_len;
    }
    parts
}

fn read_parts(
    fd: &SharedFd,
    nature: Nature,
    parts: &[iovec],
    position: Position,
) -> io::Result<usize> {
    if let Position::At(offset) = position {
        return read_at(fd, parts, offset);
    }
    match nature {
        Nature::File => read_here(fd, parts),
        Nature::Socket => {
            let mut header = header_of(parts);
            // SAFETY: `header` and the parts that it names outlive the call, and the parts name
            // memory that may be written, as in `read`.
            let rc = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
            count_or_error(rc)
        }
        Nature::Stream => match read_now(fd, parts) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                if blocking(fd.as_fd())? == Blocking::Blocking
                    && ready_for(fd.as_fd(), epoll::IN)? == 0
                {
                    return Err(rustix::io::Errno::AGAIN.into());
                }
                read_here(fd, parts)
            }
            other => other,
        },
    }
}

fn write_parts(
    fd: &SharedFd,
    nature: Nature,
    parts: &[iovec],
    position: Position,
) -> io::Result<usize> {
    if let Position::At(offset) = position {
        return write_at(fd, parts, offset);
    }
    match nature {
        Nature::File => write_here(fd, parts),
        Nature::Socket => {
            let header = header_of(parts);
            // SAFETY: `header` and the parts that it names outlive the call, and the parts name
            // the bytes of payloads that the caller borrows.
            let rc =
                unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
            count_or_error(rc)
        }
        Nature::Stream => match write_now(fd, parts) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => write_asked(fd, parts),
            other => other,
        },
    }
}

/// Writes into what knows no `RWF_NOWAIT`.
fn write_asked(fd: &SharedFd, parts: &[iovec]) -> io::Result<usize> {
    if blocking(fd.as_fd())? == Blocking::Nonblocking {
        return write_here(fd, parts);
    }
    if ready_for(fd.as_fd(), epoll::OUT)? == 0 {
        return Err(rustix::io::Errno::AGAIN.into());
    }
    let mut parts = parts.to_vec();
    write_here(fd, first_bytes(&mut parts, PIPE_BYTES))
}

fn header_of(parts: &[iovec]) -> msghdr {
    // SAFETY: A header of zeros is a valid one, without name, parts and control data.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    // What is called with it only reads the array.
    header.msg_iov = parts.as_ptr().cast_mut();
    header.msg_iovlen = parts.len() as _;
    header
}

/// At most 1024, as `rooms` and `parts_of` check.
fn count_of(parts: &[iovec]) -> c_int {
    parts.len() as c_int
}

fn read_here(fd: &SharedFd, parts: &[iovec]) -> io::Result<usize> {
    // SAFETY: The parts name memory that may be written, as in `read`, and outlive the call.
    count_or_error(unsafe { libc::readv(fd.as_raw_fd(), parts.as_ptr(), count_of(parts)) })
}

fn read_at(fd: &SharedFd, parts: &[iovec], offset: u64) -> io::Result<usize> {
    let offset = offset.cast_signed();
    // SAFETY: As in `read_here`.
    let rc = unsafe { libc::preadv64(fd.as_raw_fd(), parts.as_ptr(), count_of(parts), offset) };
    count_or_error(rc)
}

fn read_now(fd: &SharedFd, parts: &[iovec]) -> io::Result<usize> {
    let count = count_of(parts);
    // SAFETY: As in `read_here`.
    let rc =
        unsafe { libc::preadv64v2(fd.as_raw_fd(), parts.as_ptr(), count, -1, libc::RWF_NOWAIT) };
    count_or_error(rc)
}

fn write_here(fd: &SharedFd, parts: &[iovec]) -> io::Result<usize> {
    // SAFETY: The parts name bytes that are borrowed, as in `write`, and outlive the call.
    count_or_error(unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), count_of(parts)) })
}

fn write_at(fd: &SharedFd, parts: &[iovec], offset: u64) -> io::Result<usize> {
    let offset = offset.cast_signed();
    // SAFETY: As in `write_here`.
    let rc = unsafe { libc::pwritev64(fd.as_raw_fd(), parts.as_ptr(), count_of(parts), offset) };
    count_or_error(rc)
}

fn write_now(fd: &SharedFd, parts: &[iovec]) -> io::Result<usize> {
    let count = count_of(parts);
    // SAFETY: As in `write_here`.
    let rc =
        unsafe { libc::pwritev64v2(fd.as_raw_fd(), parts.as_ptr(), count, -1, libc::RWF_NOWAIT) };
    count_or_error(rc)
}
