//! What system calls take for an operation, whoever makes them: parts of buffers, messages,
//! addresses, flags.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix};

use super::{Access, Address, Create, MessageInfo, OpenOptions, Payload};

/// The most parts of a vectored operation (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// A message's header, and what it points to.
pub(crate) struct Message {
    pub(crate) header: libc::msghdr,
    /// What `header` points to; looked at by its address only.
    slices: Box<[libc::iovec]>,
    address: MaybeUninit<libc::sockaddr_storage>,
    destination: Option<SocketAddrAny>,
}

impl Message {
    /// A header for recvmsg(2) into `slices`, with room for the sender's address.
    pub(crate) fn to_receive(slices: Box<[libc::iovec]>) -> Box<Self> {
        let mut message = Self::to_send(slices, None);
        message.header.msg_name = message.address.as_mut_ptr().cast();
        message.header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        message
    }

    /// A header for sendmsg(2) of `slices`.
    pub(crate) fn to_send(
        mut slices: Box<[libc::iovec]>,
        destination: Option<SocketAddrAny>,
    ) -> Box<Self> {
        let mut message = Box::new(Self {
            // SAFETY: A header of zeros is a valid one, without name, parts and control data.
            header: unsafe { std::mem::zeroed() },
            address: MaybeUninit::uninit(),
            destination: None,
            slices: Box::default(),
        });
        message.header.msg_iov = slices.as_mut_ptr();
        message.header.msg_iovlen = slices.len() as _;
        message.slices = slices;
        message.destination = destination;
        if let Some(destination) = &mut message.destination {
            message.header.msg_namelen = destination.addr_len();
            message.header.msg_name = destination.as_mut_ptr().cast();
        }
        message
    }

    /// What was received, when the kernel has filled it.
    pub(crate) fn describe(&self, bytes: usize) -> MessageInfo {
        let len = self.header.msg_namelen;
        // Without a name the kernel leaves the length zero.
        let from = (len as usize >= size_of::<libc::sa_family_t>()).then(|| {
            // SAFETY: The kernel has written `len` bytes of an address there, which is at most the
            // length of the storage that it was told.
            unsafe { SocketAddrAny::read(self.address.as_ptr().cast(), len) }
        });
        MessageInfo {
            bytes,
            from: from.and_then(decode),
            truncated: self.header.msg_flags & libc::MSG_TRUNC != 0,
        }
    }
}

fn decode(address: SocketAddrAny) -> Option<Address> {
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        return Some(Address::Internet(address));
    }
    let address = SocketAddrUnix::try_from(address).ok()?;
    Some(Address::Unix(
        OsStr::from_bytes(address.path_bytes()?).into(),
    ))
}

/// Where to append to `buffers`, and how much fits; something must.
pub(crate) fn rooms(buffers: &mut [Vec<u8>]) -> io::Result<Box<[libc::iovec]>> {
    let slices: Box<[libc::iovec]> = buffers.iter_mut().map(spare_of).collect();
    not_empty(few(slices)?)
}

/// Where to append to `buffer`, and how much fits; something must.
#[inline]
pub(crate) fn room(buffer: &mut Vec<u8>) -> io::Result<libc::iovec> {
    let spare = spare_of(buffer);
    if spare.iov_len == 0 {
        return Err(Errno::INVAL.into());
    }
    Ok(spare)
}

#[inline]
fn spare_of(buffer: &mut Vec<u8>) -> libc::iovec {
    let spare = buffer.spare_capacity_mut();
    libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: spare.len(),
    }
}

/// What `payload` has.
#[inline]
pub(crate) fn part_of(payload: &Payload) -> libc::iovec {
    let bytes = payload.as_slice();
    libc::iovec {
        // The kernel only reads there.
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// What `payloads` have, perhaps nothing: messages may be empty.
pub(crate) fn parts_of(payloads: &[Payload]) -> io::Result<Box<[libc::iovec]>> {
    let slices: Box<[libc::iovec]> = payloads.iter().map(part_of).collect();
    few(slices)
}

fn few(slices: Box<[libc::iovec]>) -> io::Result<Box<[libc::iovec]>> {
    if slices.len() > PARTS_MAX {
        return Err(Errno::INVAL.into());
    }
    Ok(slices)
}

/// Refuses parts of nothing.
pub(crate) fn not_empty(slices: Box<[libc::iovec]>) -> io::Result<Box<[libc::iovec]>> {
    if slices.iter().all(|slice| slice.iov_len == 0) {
        return Err(Errno::INVAL.into());
    }
    Ok(slices)
}

/// An address as the kernel takes it.
pub(crate) fn encode(address: &Address) -> io::Result<SocketAddrAny> {
    Ok(match address {
        Address::Internet(address) => (*address).into(),
        Address::Unix(path) => SocketAddrUnix::new(path.as_path())?.into(),
    })
}

/// Flags of open(2), closed on exec.
pub(crate) fn open_flags(options: OpenOptions) -> i32 {
    let access = match options.access {
        Access::Read => libc::O_RDONLY,
        Access::ReadWrite => libc::O_RDWR,
        Access::Write => libc::O_WRONLY,
    };
    let create = match options.create {
        Create::IfMissing => libc::O_CREAT,
        Create::Never => 0,
        Create::New => libc::O_CREAT | libc::O_EXCL,
    };
    let truncate = if options.truncate { libc::O_TRUNC } else { 0 };
    let append = if options.append { libc::O_APPEND } else { 0 };
    access | create | truncate | append | libc::O_CLOEXEC
}

/// Counts `count` bytes as part of the vectors, which are filled one after the other; at most what
/// they have room for.
///
/// # Safety
///
/// - So many bytes were written into their spare capacity, from the first vector's end on.
pub(crate) unsafe fn append(buffers: &mut [Vec<u8>], mut count: usize) {
    for buffer in buffers {
        let here = count.min(buffer.capacity() - buffer.len());
        // SAFETY: Within the capacity, and written, as the caller promises.
        unsafe { buffer.set_len(buffer.len() + here) };
        count -= here;
    }
}
