//! Sending a part of a file to a socket by sendfile(2), whenever the socket takes something.
//!
//! It measures better than what the ring itself can do (docs/benchmarks.md): two splices through a
//! pipe are each done by a worker thread of the kernel, and a read and a send copy every byte
//! twice. Like sendfile(2) anywhere it waits for a file that is not in the page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::fd::{Blocking, blocking};
use crate::file::send_file;
use crate::operation::SharedFd;

/// Bytes sent at once: others must have their turn.
const TURN_BYTES: u64 = 1024 * 1024;

/// How far a transfer is.
pub(super) struct Direct {
    offset: u64,
    left: u64,
    sent: u64,
}

/// What an attempt came to.
pub(super) enum Attempt {
    /// Everything was sent, or the file is at its end.
    Done,
    /// It goes on when the socket takes something again.
    Wait,
}

impl Direct {
    /// A transfer, if it can be done so: the call must not wait for the peer.
    pub(super) fn new(socket: &SharedFd, offset: u64, length: u64) -> Option<Self> {
        let is_fit = length > 0 && blocking(socket.as_fd()).ok()? == Blocking::Nonblocking;
        is_fit.then_some(Self {
            offset,
            left: length,
            sent: 0,
        })
    }

    /// How much was sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends what the socket takes.
    pub(super) fn attempt(&mut self, file: &File, socket: &SharedFd) -> io::Result<Attempt> {
        let mut turn = TURN_BYTES;
        while self.left > 0 && turn > 0 {
            // At most the turn, so it fits.
            let count = self.left.min(turn) as usize;
            match send_file(socket.as_fd(), file.as_fd(), &mut self.offset, count)? {
                None => return Ok(Attempt::Wait),
                Some(0) => return Ok(Attempt::Done),
                Some(count) => {
                    let count = count as u64;
                    self.sent += count;
                    self.left -= count.min(self.left);
                    turn -= count.min(turn);
                }
            }
        }
        Ok(if self.left == 0 {
            Attempt::Done
        } else {
            Attempt::Wait
        })
    }
}
