//! What is done with files: opened, closed, described, and moved within the kernel.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use super::{Faults, ready_for};
use crate::epoll;
use crate::errno::{check, retry_with_faults};
use crate::fd::{Blocking, blocking};
use crate::file::{FileStatus, describe};
use crate::operation::parts::open_flags;
use crate::operation::{OpenOptions, Position, SharedFd, SyncExtent};
use crate::signal;

/// What a socket that blocks is given at once when it is writable.
const PAGE_BYTES: usize = 4096;

fn at(directory: Option<&SharedFd>) -> BorrowedFd<'_> {
    directory.map_or(CWD, |directory| directory.as_fd())
}

/// Opens a file, openat(2).
pub(super) fn open(
    directory: Option<&SharedFd>,
    path: &CStr,
    options: OpenOptions,
) -> io::Result<OwnedFd> {
    let flags = OFlags::from_bits_retain(open_flags(options).cast_unsigned());
    let mode = Mode::from_raw_mode(options.mode);
    let directory = at(directory);
    Ok(retry_on_intr(|| {
        rustix::fs::openat(directory, path, flags, mode)
    })?)
}

/// Closes a descriptor, close(2). Whatever it answers, it is closed.
pub(super) fn close(fd: &mut Option<OwnedFd>) -> io::Result<()> {
    let fd = fd.take().ok_or(Errno::INVAL)?.into_raw_fd();
    // SAFETY: Its owner has just given it up, so nobody else uses the number.
    check(unsafe { libc::close(fd) })?;
    Ok(())
}

/// Describes a file, statx(2).
pub(super) fn status(directory: Option<&SharedFd>, path: &CStr) -> io::Result<FileStatus> {
    let flags = if path.is_empty() {
        AtFlags::EMPTY_PATH
    } else {
        AtFlags::empty()
    };
    describe(at(directory), path, flags)
}

/// Waits until content is on its device.
pub(super) fn sync(fd: &SharedFd, extent: SyncExtent) -> io::Result<()> {
    Ok(retry_on_intr(|| match extent {
        SyncExtent::All => rustix::fs::fsync(fd),
        SyncExtent::Data => rustix::fs::fdatasync(fd),
    })?)
}

/// Sends up to `count` bytes of a file to a socket: by sendfile(2) where that neither waits nor
/// raises a signal, else through memory. Zero: the file ends at `from`.
pub(super) fn send_part(
    file: &File,
    from: u64,
    count: usize,
    socket: &SharedFd,
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    let count = faults.limit(count);
    if type_of(socket)? != FileType::Socket {
        return Err(Errno::NOTSOCK.into());
    }
    let is_direct =
        blocking(socket.as_fd())? == Blocking::Nonblocking && signal::is_ignored(libc::SIGPIPE)?;
    if is_direct {
        let sent = retry_with_faults(faults, || {
            let mut offset = from;
            Ok(rustix::fs::sendfile(
                socket,
                file,
                Some(&mut offset),
                count,
            )?)
        });
        // A file that can't be mapped.
        if !matches!(&sent, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
            return sent;
        }
    }
    let mut content = vec![0; count];
    let len = retry_on_intr(|| rustix::io::pread(file, &mut content[..], from))?;
    if len == 0 {
        return Ok(Some(0));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_with_faults(faults, || {
        Ok(rustix::net::send(socket, &content[..len], flags)?)
    })
}

/// What came of a splice.
pub(super) enum Spliced {
    Bytes(usize),
    /// There is nothing to be moved.
    From,
    /// There is no room.
    To,
}

/// Moves bytes between a pipe and something else, splice(2).
pub(super) fn splice(
    (from, from_position): (&SharedFd, Position),
    (to, to_position): (&SharedFd, Position),
    length: u32,
    faults: &mut Faults,
) -> io::Result<Spliced> {
    if length == 0 {
        return Ok(Spliced::Bytes(0));
    }
    let (from_type, to_type) = (type_of(from)?, type_of(to)?);
    if from_type != FileType::Fifo && to_type != FileType::Fifo {
        return Err(Errno::INVAL.into());
    }
    if (from_type == FileType::Fifo && from_position != Position::Current)
        || (to_type == FileType::Fifo && to_position != Position::Current)
    {
        return Err(Errno::SPIPE.into());
    }
    // The flag of the call is about pipes only: of the rest poll(2) is asked.
    if ready_for(from.as_fd(), epoll::IN)? == 0 {
        return Ok(Spliced::From);
    }
    if ready_for(to.as_fd(), epoll::OUT)? == 0 {
        return Ok(Spliced::To);
    }
    let mut length = faults.limit(length as usize);
    if to_type == FileType::Socket && blocking(to.as_fd())? == Blocking::Blocking {
        length = length.min(PAGE_BYTES);
    }
    let moved = retry_with_faults(faults, || {
        let (mut from_offset, mut to_offset) = (offset(from_position), offset(to_position));
        let flags = SpliceFlags::NONBLOCK;
        Ok(rustix::pipe::splice(
            from,
            from_offset.as_mut(),
            to,
            to_offset.as_mut(),
            length,
            flags,
        )?)
    })?;
    Ok(moved.map_or(Spliced::To, Spliced::Bytes))
}

fn offset(position: Position) -> Option<u64> {
    match position {
        Position::At(offset) => Some(offset),
        Position::Current => None,
    }
}

fn type_of(fd: &SharedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}
