//! Sending a part of a file to a socket that blocks, or of a file that sendfile(2) does not take: a
//! chunk is read, then sent, then the next.

use std::io;

use io_uring::{opcode, squeue};

use super::entry::fd;
use crate::operation::Operation;

/// Bytes that are read and sent at once.
pub(super) const CHUNK_BYTES: u64 = 128 * 1024;

/// How far a transfer is.
pub(super) struct Transfer {
    buffer: Vec<u8>,
    /// How much of the buffer was sent.
    at: usize,
    offset: u64,
    left: u64,
    sent: u64,
}

/// What follows a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Another step.
    Next,
    /// Nothing more: everything was sent, or the file is at its end.
    Done,
}

impl Transfer {
    pub(super) fn new(operation: &Operation) -> io::Result<Self> {
        let &Operation::SendFile { offset, length, .. } = operation else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if length == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // At most the chunk, so it fits.
        let room = length.min(CHUNK_BYTES) as usize;
        Ok(Self {
            buffer: Vec::with_capacity(room),
            at: 0,
            offset,
            left: length,
            sent: 0,
        })
    }

    /// How much was sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether it is at its socket, not at its file.
    pub(super) fn is_sending(&self) -> bool {
        self.at < self.buffer.len()
    }

    /// The entry of the next step.
    pub(super) fn entry(&mut self, operation: &Operation) -> squeue::Entry {
        let Operation::SendFile { file, socket, .. } = operation else {
            unreachable!("a transfer belongs to the operation that it was made from");
        };
        if self.is_sending() {
            let rest = &self.buffer[self.at..];
            return opcode::Send::new(fd(socket), rest.as_ptr(), rest.len() as u32)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .build();
        }
        self.buffer.clear();
        self.at = 0;
        let len = self.left.min(self.buffer.capacity() as u64) as u32;
        opcode::Read::new(fd(file), self.buffer.as_mut_ptr(), len)
            .offset(self.offset)
            .build()
    }

    /// The step before is done, with `count` bytes.
    pub(super) fn advance(&mut self, count: usize) -> Step {
        if self.is_sending() {
            self.at += count;
            self.sent += count as u64;
            return if self.left == 0 && !self.is_sending() {
                Step::Done
            } else {
                Step::Next
            };
        }
        if count == 0 {
            return Step::Done;
        }
        let count = count.min(self.buffer.capacity());
        // SAFETY: The read that is complete has written `count` bytes from the buffer's start on,
        // and was for no more than its capacity.
        unsafe { self.buffer.set_len(count) };
        self.offset += count as u64;
        self.left -= (count as u64).min(self.left);
        Step::Next
    }
}
