//! Submission entries: how each operation is told to the kernel, and the memory that it needs for
//! that beside what the operation owns.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use io_uring::types::{Fd, FsyncFlags, Timespec};
use io_uring::{opcode, squeue, types};
use rustix::fs::Statx;
use rustix::net::SocketAddrAny;

use super::direct::Direct;
use super::setup::Abilities;
use super::transfer::Transfer;
use crate::file::WANTED;
use crate::operation::parts::{Message, encode, not_empty, open_flags, parts_of, rooms};
use crate::operation::{Operation, Payload, Repeat, SharedFd, SyncExtent};

/// What the kernel reads and writes beside what the operation owns. Boxed where it has an address:
/// the table of operations may move.
#[expect(
    dead_code,
    reason = "much of it is kept for the kernel, and looked at by nobody else"
)]
pub(super) enum Extra {
    None,
    Address(Box<SocketAddrAny>),
    Direct(Box<Direct>),
    Message(Box<Message>),
    Slices(Box<[libc::iovec]>),
    Status(Box<MaybeUninit<Statx>>),
    Time(Box<Timespec>),
    Transfer(Box<Transfer>),
}

// SAFETY: The addresses in it are of memory that the operation beside it owns, or of its own boxes;
// both move together. Nothing here is tied to a thread.
unsafe impl Send for Extra {}

/// The longest single read or write, read(2).
pub(super) const LENGTH_MAX: usize = 0x7fff_f000;
/// The entry of an operation, with all its addresses. They stay valid until its completion if
/// `operation` and `extra` are kept: moved at most, neither changed nor dropped.
pub(super) fn build(
    operation: &mut Operation,
    extra: &mut Extra,
    abilities: Abilities,
) -> io::Result<squeue::Entry> {
    Ok(match operation {
        Operation::Accept { listener, repeat } => {
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            if *repeat == Repeat::Multishot && abilities.multishot {
                opcode::AcceptMulti::new(fd(listener)).flags(flags).build()
            } else {
                let nowhere = (std::ptr::null_mut(), std::ptr::null_mut());
                opcode::Accept::new(fd(listener), nowhere.0, nowhere.1)
                    .flags(flags)
                    .build()
            }
        }
        Operation::Close { fd } => {
            let fd = fd.as_ref().ok_or_else(invalid)?;
            opcode::Close::new(Fd(fd.as_raw_fd())).build()
        }
        Operation::Connect { socket, address } => {
            let address = Box::new(encode(address)?);
            let entry =
                opcode::Connect::new(fd(socket), address.as_ptr().cast(), address.addr_len());
            *extra = Extra::Address(address);
            entry.build()
        }
        Operation::OpenAt {
            directory,
            path,
            options,
        } => opcode::OpenAt::new(at(directory.as_ref()), path.as_ptr())
            .flags(open_flags(*options))
            .mode(options.mode)
            .build(),
        // The kernel adds errors and hang-ups to all polls, but also the peer's close, which is not
        // asked for: so that there may be several answers.
        Operation::HangUp { fd: subject } => {
            opcode::PollAdd::new(fd(subject), 0).multi(true).build()
        }
        Operation::Poll {
            fd: subject,
            events,
        } => opcode::PollAdd::new(fd(subject), *events).build(),
        Operation::Read {
            fd: subject,
            buffer,
            position,
        } => {
            let (start, len) = room(buffer)?;
            opcode::Read::new(fd(subject), start, len)
                .offset(position.as_kernel())
                .build()
        }
        Operation::ReadVectored {
            fd: subject,
            buffers,
            position,
        } => {
            let slices = rooms(buffers)?;
            let (start, count) = (slices.as_ptr(), slices.len() as u32);
            *extra = Extra::Slices(slices);
            opcode::Readv::new(fd(subject), start, count)
                .offset(position.as_kernel())
                .build()
        }
        Operation::Receive { socket, buffer } => {
            let (start, len) = room(buffer)?;
            opcode::Recv::new(fd(socket), start, len).build()
        }
        Operation::ReceiveMessage { socket, buffers } => {
            let mut message = Message::to_receive(rooms(buffers)?);
            let header = &raw mut message.header;
            *extra = Extra::Message(message);
            opcode::RecvMsg::new(fd(socket), header).build()
        }
        Operation::ReceiveMultishot { socket, pool } if abilities.multishot => {
            opcode::RecvMulti::new(fd(socket), pool.number()).build()
        }
        Operation::ReceiveMultishot { socket, pool } => {
            opcode::Recv::new(fd(socket), std::ptr::null_mut(), 0)
                .buf_group(pool.number())
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        }
        Operation::SendZeroCopy { socket, payload } if abilities.zero_copy_send => {
            let (start, len) = bytes_of(payload)?;
            opcode::SendZc::new(fd(socket), start, len)
                .flags(SEND_FLAGS)
                .build()
        }
        Operation::Send { socket, payload } | Operation::SendZeroCopy { socket, payload } => {
            let (start, len) = bytes_of(payload)?;
            opcode::Send::new(fd(socket), start, len)
                .flags(SEND_FLAGS)
                .build()
        }
        Operation::SendFile { .. } => transfer(operation, extra)?,
        Operation::SendMessage {
            socket,
            payloads,
            address,
        } => {
            let destination = address.as_ref().map(encode).transpose()?;
            let message = Message::to_send(parts_of(payloads)?, destination);
            let header = &raw const message.header;
            *extra = Extra::Message(message);
            opcode::SendMsg::new(fd(socket), header)
                .flags(libc::MSG_NOSIGNAL as u32)
                .build()
        }
        Operation::Shutdown { socket, side } => {
            let how = match side {
                std::net::Shutdown::Read => libc::SHUT_RD,
                std::net::Shutdown::Write => libc::SHUT_WR,
                std::net::Shutdown::Both => libc::SHUT_RDWR,
            };
            opcode::Shutdown::new(fd(socket), how).build()
        }
        Operation::Splice {
            from,
            from_position,
            to,
            to_position,
            length,
        } => opcode::Splice::new(
            fd(from),
            from_position.as_kernel().cast_signed(),
            fd(to),
            to_position.as_kernel().cast_signed(),
            *length,
        )
        .build(),
        Operation::Statx { directory, path } => {
            let mut status = Box::new(MaybeUninit::<Statx>::uninit());
            let into = status.as_mut_ptr().cast::<types::statx>();
            *extra = Extra::Status(status);
            let flags = if path.is_empty() {
                libc::AT_EMPTY_PATH
            } else {
                0
            };
            opcode::Statx::new(at(directory.as_ref()), path.as_ptr(), into)
                .flags(flags)
                .mask(WANTED.bits())
                .build()
        }
        Operation::Sync {
            fd: subject,
            extent,
        } => {
            let flags = match extent {
                SyncExtent::All => FsyncFlags::empty(),
                SyncExtent::Data => FsyncFlags::DATASYNC,
            };
            opcode::Fsync::new(fd(subject)).flags(flags).build()
        }
        Operation::Timeout { after } => {
            // What does not fit is 292 years and more.
            let secs = after.as_secs().min(i64::MAX as u64 / 1_000_000_000);
            let time = Box::new(Timespec::new().sec(secs).nsec(after.subsec_nanos()));
            let entry = opcode::Timeout::new(&raw const *time).build();
            *extra = Extra::Time(time);
            entry
        }
        Operation::Write {
            fd: subject,
            payload,
            position,
        } => {
            let (start, len) = bytes_of(payload)?;
            opcode::Write::new(fd(subject), start, len)
                .offset(position.as_kernel())
                .build()
        }
        Operation::WriteVectored {
            fd: subject,
            payloads,
            position,
        } => {
            let slices = slices_of(payloads)?;
            let (start, count) = (slices.as_ptr(), slices.len() as u32);
            *extra = Extra::Slices(slices);
            opcode::Writev::new(fd(subject), start, count)
                .offset(position.as_kernel())
                .build()
        }
    })
}

/// The kernel itself goes on after a short send (Linux 5.19), so that one completion tells of all.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// A send that never waits: it is over when the kernel has taken the entry. An answer comes if it
/// failed or the socket took less.
pub(super) fn send_at_once(socket: &SharedFd, payload: &Payload) -> io::Result<squeue::Entry> {
    let (start, len) = bytes_of(payload)?;
    Ok(opcode::Send::new(fd(socket), start, len)
        .flags(SEND_FLAGS | libc::MSG_DONTWAIT)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS))
}

fn transfer(operation: &Operation, extra: &mut Extra) -> io::Result<squeue::Entry> {
    let mut transfer = Box::new(Transfer::new(operation)?);
    let entry = transfer.entry(operation);
    *extra = Extra::Transfer(transfer);
    Ok(entry)
}

pub(super) fn fd(shared: &impl AsRawFd) -> Fd {
    Fd(shared.as_raw_fd())
}

fn at(directory: Option<&SharedFd>) -> Fd {
    Fd(directory.map_or(libc::AT_FDCWD, |directory| directory.as_raw_fd()))
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Where to append to `buffer`, and how much fits.
fn room(buffer: &mut Vec<u8>) -> io::Result<(*mut u8, u32)> {
    let spare = buffer.spare_capacity_mut();
    if spare.is_empty() {
        return Err(invalid());
    }
    let len = spare.len().min(LENGTH_MAX);
    Ok((spare.as_mut_ptr().cast(), len as u32))
}

fn bytes_of(payload: &Payload) -> io::Result<(*const u8, u32)> {
    let bytes = payload.as_slice();
    if bytes.is_empty() {
        return Err(invalid());
    }
    Ok((bytes.as_ptr(), bytes.len().min(LENGTH_MAX) as u32))
}

fn slices_of(payloads: &[Payload]) -> io::Result<Box<[libc::iovec]>> {
    not_empty(parts_of(payloads)?)
}
