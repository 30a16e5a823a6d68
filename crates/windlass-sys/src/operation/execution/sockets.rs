//! Connections, messages and shutdown, without waiting.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::Faults;
use crate::errno::{count_or_error, retry_with_faults};
use crate::fd::momentarily_nonblocking;
use crate::operation::parts::{Message, append, encode, parts_of, rooms};
use crate::operation::{Address, MessageInfo, Payload, SharedFd};

/// Takes one connection, accept4(2).
pub(super) fn accept(listener: &SharedFd, faults: &mut Faults) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    retry_with_faults(faults, || {
        momentarily_nonblocking(listener.as_fd(), || {
            Ok(rustix::net::accept_with(listener, flags)?)
        })
    })
}

/// Whether a socket is connected.
pub(super) enum Connected {
    /// Nothing tells when it can be tried again: a listener of the same host is busy.
    Later,
    /// When the socket is writable, it may be.
    UnderWay,
    Yes,
}

/// Connects, connect(2); `has_begun`: it was under way.
pub(super) fn connect(
    socket: &SharedFd,
    address: &Address,
    has_begun: bool,
    faults: &mut Faults,
) -> io::Result<Connected> {
    let address = encode(address)?;
    if has_begun && faults.next_call().is_some() {
        return Ok(Connected::UnderWay);
    }
    let connected = momentarily_nonblocking(socket.as_fd(), || {
        Ok(rustix::net::connect(socket, &address))
    })?;
    match connected {
        Ok(()) => Ok(Connected::Yes),
        Err(Errno::ISCONN) if has_begun => Ok(Connected::Yes),
        // After an interruption the connection goes on being made.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connected::UnderWay),
        Err(Errno::ALREADY) if has_begun => Ok(Connected::UnderWay),
        // The queue of a Unix listener is full.
        Err(Errno::AGAIN)
            if matches!(address.address_family(), rustix::net::AddressFamily::UNIX) =>
        {
            Ok(Connected::Later)
        }
        Err(error) => Err(error.into()),
    }
}

/// Receives one message, recvmsg(2).
pub(super) fn receive_message(
    socket: &SharedFd,
    buffers: &mut [Vec<u8>],
    faults: &mut Faults,
) -> io::Result<Option<MessageInfo>> {
    let mut message = Message::to_receive(rooms(buffers)?);
    let count = retry_with_faults(faults, || {
        let header = &raw mut message.header;
        // SAFETY: The header and all that it names are owned by `message`, but the parts, which
        // name spare capacity of `buffers`; both outlive the call.
        let rc = unsafe { libc::recvmsg(socket.as_raw_fd(), header, libc::MSG_DONTWAIT) };
        count_or_error(rc)
    })?;
    Ok(count.map(|count| {
        // SAFETY: The call has written `count` bytes into the spare capacity that `rooms` named,
        // one buffer after the other.
        unsafe { append(buffers, count) };
        message.describe(count)
    }))
}

/// Sends one message, sendmsg(2).
pub(super) fn send_message(
    socket: &SharedFd,
    payloads: &[Payload],
    address: Option<&Address>,
    faults: &mut Faults,
) -> io::Result<Option<usize>> {
    let destination = address.map(encode).transpose()?;
    let message = Message::to_send(parts_of(payloads)?, destination);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    retry_with_faults(faults, || {
        let header = &raw const message.header;
        // SAFETY: The header and all that it names are owned by `message`, but the bytes of the
        // payloads, which are borrowed; both outlive the call.
        count_or_error(unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags) })
    })
}

pub(super) fn shutdown(socket: &SharedFd, side: Shutdown) -> io::Result<()> {
    let side = match side {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    Ok(rustix::net::shutdown(socket, side)?)
}
