//! Operations of the Proactor pattern as plain data: what is to be done, with all that it needs.
//!
//! An [`Operation`] owns everything that the kernel reads or writes on its behalf: buffers,
//! addresses, paths and descriptors. A driver keeps it until its last [`Completion`] and gives it
//! back there, so that no buffer is freed, reused or moved while the kernel may use it, and a
//! descriptor stays open. Nothing borrowed can be put in: there is no way to take it back early.
//!
//! Two drivers carry them out with one meaning: [`uring::Ring`](crate::uring::Ring) hands them to
//! the kernel, an emulated one waits until they can be done and does them by ordinary calls.
//!
//! # Meaning
//!
//! - Whether a descriptor blocks (`O_NONBLOCK`) makes no difference: an operation that would block
//!   waits, and no completion says "would block".
//! - Reads append to their vector: they fill its spare capacity, and never grow it. An operation
//!   that has no room, or nothing to send, fails with `EINVAL`.
//! - [`Send`](Operation::Send) completes when everything was sent; with less only if it failed or
//!   was cancelled on the way. [`Write`](Operation::Write) is one write(2).
//! - Operations on one descriptor that are in flight together run in no particular order.
//! - A cancelled operation fails with `ECANCELED` and has done nothing: a stream read took nothing,
//!   an accept took no connection. If it had begun to, it completes with what it took.

pub mod execution;
pub(crate) mod faults;
pub(crate) mod parts;
mod payload;
mod table;

use std::ffi::CString;
use std::fs::File;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

pub use self::payload::Payload;
pub use self::table::OpTable;

use crate::file::FileStatus;
use crate::provided::{PoolId, ProvidedBuffer};

/// A descriptor that an operation shares with others: open as long as one of them is in flight.
pub type SharedFd = Arc<OwnedFd>;

/// Names one operation, from its start to its last completion. A driver's ids are never equal to
/// one that it gave before, but after 2^31 operations in one place of its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(u64);

impl OpId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    /// Restores an id from [`to_bits`](Self::to_bits). Any number is accepted: one that names
    /// nothing is treated as complete.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The id as one word; the highest bit is zero.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The place in the driver's table: small, dense, and reused; for tables beside it.
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op{}.{}", self.slot(), self.generation())
    }
}

/// Something to be done, with everything that it needs.
#[derive(Debug)]
pub enum Operation {
    /// Takes connections, accept4(2), close-on-exec and non-blocking:
    /// [`Accepted`](Outcome::Accepted). Cancelled, it has taken none, or completes with it.
    Accept {
        /// The listening socket.
        listener: SharedFd,
        /// One, or one after the other until cancelled. An error ends it, but for one that only
        /// concerns the connection (`ECONNABORTED`, …), which is reported and not the last
        /// completion. Out of descriptors (`EMFILE`): start it again after a pause.
        repeat: Repeat,
    },
    /// Closes a descriptor, close(2): [`Done`](Outcome::Done). `None` in its completion, unless it
    /// was cancelled before.
    Close {
        /// The descriptor; nobody else may share it.
        fd: Option<OwnedFd>,
    },
    /// Connects a socket, connect(2): [`Done`](Outcome::Done). Cancelled, the socket must be closed.
    Connect {
        /// The socket.
        socket: SharedFd,
        /// The peer.
        address: Address,
    },
    /// Waits until a descriptor is broken or closed on both sides, and no sooner, whatever can be
    /// read: [`Events`](Outcome::Events), `ERR` or `HUP` among them. For whoever reads nothing at
    /// present.
    HangUp {
        /// The descriptor.
        fd: SharedFd,
    },
    /// Opens a file, openat(2), closed on exec: [`Opened`](Outcome::Opened).
    OpenAt {
        /// Where a relative path begins; `None`: at the working directory.
        directory: Option<SharedFd>,
        /// The path.
        path: CString,
        /// For what, and how.
        options: OpenOptions,
    },
    /// Waits until a descriptor is ready, once: [`Events`](Outcome::Events).
    Poll {
        /// The descriptor.
        fd: SharedFd,
        /// Flags of [`epoll`](crate::epoll): `IN`, `OUT`, `PRI`, `RDHUP`.
        events: u32,
    },
    /// Reads once, read(2) or pread(2): [`Bytes`](Outcome::Bytes), zero at the end.
    Read {
        /// What to read.
        fd: SharedFd,
        /// Bytes are appended, up to its capacity.
        buffer: Vec<u8>,
        /// From where.
        position: Position,
    },
    /// Reads into several buffers, readv(2) or preadv(2): [`Bytes`](Outcome::Bytes).
    ReadVectored {
        /// What to read.
        fd: SharedFd,
        /// Bytes are appended to each, up to its capacity, before the next. At most 1024.
        buffers: Vec<Vec<u8>>,
        /// From where.
        position: Position,
    },
    /// Receives once, recv(2): [`Bytes`](Outcome::Bytes), zero when the peer is done sending.
    Receive {
        /// The socket.
        socket: SharedFd,
        /// Bytes are appended, up to its capacity.
        buffer: Vec<u8>,
    },
    /// Receives one message, recvmsg(2): [`Message`](Outcome::Message).
    ReceiveMessage {
        /// The socket.
        socket: SharedFd,
        /// Bytes are appended to each, up to its capacity, before the next. At most 1024.
        buffers: Vec<Vec<u8>>,
    },
    /// Receives again and again into buffers of a pool: [`Buffer`](Outcome::Buffer) each time, and
    /// last [`Bytes`](Outcome::Bytes)`(0)` when the peer is done sending. While the pool has none
    /// left it waits for one to be returned. Cancelled, what was received before is completed
    /// before. A pool that the driver has not: `EINVAL`.
    ReceiveMultishot {
        /// The socket.
        socket: SharedFd,
        /// The pool.
        pool: PoolId,
    },
    /// Sends everything, send(2) until it is done: [`Bytes`](Outcome::Bytes). No `SIGPIPE`.
    Send {
        /// The socket.
        socket: SharedFd,
        /// What to send. It comes back as it was: [advance](Payload::advance) it to send a rest.
        payload: Payload,
    },
    /// Sends a part of a file: [`Bytes`](Outcome::Bytes), fewer than asked for if the file ends
    /// before or the socket fails. By sendfile(2) if the socket does not block (as accepted ones do
    /// not): it waits for a file that is not in the page cache, and `SIGPIPE` is raised by a peer that
    /// is gone, unless it is ignored, as Rust's runtime does.
    SendFile {
        /// The file.
        file: Arc<File>,
        /// Where the part begins.
        offset: u64,
        /// How long it is, in bytes.
        length: u64,
        /// The socket.
        socket: SharedFd,
    },
    /// Sends one message, sendmsg(2): [`Bytes`](Outcome::Bytes). No `SIGPIPE`.
    SendMessage {
        /// The socket.
        socket: SharedFd,
        /// Its parts, at most 1024.
        payloads: Vec<Payload>,
        /// To whom, if the socket is not connected.
        address: Option<Address>,
    },
    /// As [`Send`](Operation::Send), of pages that the network takes as they are; complete only when it does
    /// not need them any more. Of use from some tens of kilobytes on.
    SendZeroCopy {
        /// The socket.
        socket: SharedFd,
        /// What to send.
        payload: Payload,
    },
    /// Ends sending, receiving or both, shutdown(2): [`Done`](Outcome::Done).
    Shutdown {
        /// The socket.
        socket: SharedFd,
        /// Which side.
        side: Shutdown,
    },
    /// Moves bytes between a pipe and something else within the kernel, splice(2):
    /// [`Bytes`](Outcome::Bytes).
    Splice {
        /// Where from.
        from: SharedFd,
        /// From where on; [`Position::Current`] for what has none.
        from_position: Position,
        /// Where to.
        to: SharedFd,
        /// From where on.
        to_position: Position,
        /// At most so many bytes.
        length: u32,
    },
    /// Describes a file, statx(2): [`Status`](Outcome::Status).
    Statx {
        /// Where a relative path begins; `None`: at the working directory.
        directory: Option<SharedFd>,
        /// The path; empty: `directory` itself, which may then be any file.
        path: CString,
    },
    /// Waits until a file's content is on its device, fsync(2) or fdatasync(2):
    /// [`Done`](Outcome::Done).
    Sync {
        /// The file.
        fd: SharedFd,
        /// What of it.
        extent: SyncExtent,
    },
    /// Completes after a time: [`Done`](Outcome::Done).
    Timeout {
        /// How long, on the monotonic clock.
        after: Duration,
    },
    /// Writes once, write(2) or pwrite(2): [`Bytes`](Outcome::Bytes), perhaps fewer than there are.
    Write {
        /// Where to.
        fd: SharedFd,
        /// What.
        payload: Payload,
        /// From where on.
        position: Position,
    },
    /// Writes several parts, writev(2) or pwritev(2): [`Bytes`](Outcome::Bytes).
    WriteVectored {
        /// Where to.
        fd: SharedFd,
        /// What, at most 1024 parts.
        payloads: Vec<Payload>,
        /// From where on.
        position: Position,
    },
}

/// Whether an operation goes on after its first completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// One completion.
    Once,
    /// Until it fails or is cancelled.
    Multishot,
}

/// Where in a file to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// So many bytes from its start.
    At(u64),
    /// At the file's own position, which moves; for what has none (sockets, pipes) just here.
    Current,
}

impl Position {
    /// As the kernel takes it: -1 is the current one.
    #[must_use]
    pub(crate) const fn as_kernel(self) -> u64 {
        match self {
            Self::At(offset) => offset,
            Self::Current => u64::MAX,
        }
    }
}

/// What of a file must be on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncExtent {
    /// Content, and of the rest what is needed to read it (fdatasync).
    Data,
    /// Content and everything about it (fsync).
    All,
}

/// A socket's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of the Internet.
    Internet(SocketAddr),
    /// A path in the file system, at most 107 bytes.
    Unix(PathBuf),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Internet(address)
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// For what.
    pub access: Access,
    /// Whether it is made if it is not there (`O_CREAT`), or must not be there (`O_EXCL`).
    pub create: Create,
    /// Whether it is emptied (`O_TRUNC`).
    pub truncate: bool,
    /// Whether all writes go to its end (`O_APPEND`).
    pub append: bool,
    /// Permissions of a new one, before the process's mask (default 0o666).
    pub mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            access: Access::Read,
            create: Create::Never,
            truncate: false,
            append: false,
            mode: 0o666,
        }
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
    /// Writing.
    Write,
}

/// Whether a file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// If it is not there.
    IfMissing,
    /// It must be there.
    Never,
    /// It must not be there.
    New,
}

/// What an operation that succeeded brought.
#[derive(Debug)]
pub enum Outcome {
    /// A connection.
    Accepted(OwnedFd),
    /// Bytes in a buffer of a pool.
    Buffer(ProvidedBuffer),
    /// So many bytes were moved.
    Bytes(usize),
    /// It is done.
    Done,
    /// The descriptor is ready: flags of [`epoll`](crate::epoll).
    Events(u32),
    /// A message.
    Message(Box<MessageInfo>),
    /// A file.
    Opened(OwnedFd),
    /// What a file is.
    Status(Box<FileStatus>),
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    /// How many bytes of it are in the buffers.
    pub bytes: usize,
    /// From whom, if the socket tells.
    pub from: Option<Address>,
    /// Whether it was longer than the buffers (`MSG_TRUNC`); the rest is lost.
    pub truncated: bool,
}

/// What came of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub id: OpId,
    /// What came of it.
    pub result: io::Result<Outcome>,
    /// The operation itself, with its buffers, in its last completion; `None`: more will come.
    pub operation: Option<Operation>,
}

impl Completion {
    /// Whether more completions of this operation will come.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.operation.is_none()
    }

    /// Whether the operation was cancelled before it did anything.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(&self.result, Err(error) if error.raw_os_error() == Some(libc::ECANCELED))
    }

    /// The buffer of a [`Read`](Operation::Read) or [`Receive`](Operation::Receive), with what was
    /// read appended; or what a [`Send`](Operation::Send) or [`Write`](Operation::Write) was of, if
    /// that was a vector. Empty for other operations.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        match self.operation {
            Some(Operation::Read { buffer, .. } | Operation::Receive { buffer, .. }) => buffer,
            Some(
                Operation::Send { payload, .. }
                | Operation::SendZeroCopy { payload, .. }
                | Operation::Write { payload, .. },
            ) => payload.into_vec().unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

/// What a request to cancel an operation comes to. In each case the operation's last completion
/// comes exactly once, and brings its buffers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was complete before: its last completion was given out, or is about to be, unchanged.
    AlreadyComplete,
    /// It has not begun, and will not: it completes with `ECANCELED`.
    Cancelled,
    /// It is under way, and was asked to stop. It completes with `ECANCELED` if it took nothing,
    /// else with what it took.
    Requested,
}
