//! Writing an output queue to a socket: bytes by send, file segments by sendfile.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use windlass_sys::file;
use windlass_sys::net::{self, More};

use crate::session::{Front, Output};

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models) enum Flushed {
    /// Everything was taken.
    All,
    /// The socket takes no more for now.
    Full,
    /// It may take more, but others must have their turn.
    Yielded,
}

/// Why a flush failed.
#[derive(Debug)]
pub(in crate::models) enum FlushError {
    /// The peer is gone.
    Socket,
    /// A file is shorter than it was: what was promised can't be sent.
    Truncated,
}

/// Slices handed to one call.
const SLICES: usize = 16;
/// A head waits for no more than this to leave with it.
const FOLLOWS_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of files sent in one call: others must have their turn.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Writes as much of `output` as `socket` takes.
pub(in crate::models) fn flush(
    socket: BorrowedFd<'_>,
    output: &mut Output,
    sent_bytes: &mut u64,
) -> Result<Flushed, FlushError> {
    if let Some(bytes) = output.as_copied() {
        // Nearly all answers: one send.
        let len = bytes.len();
        let sent = net::send(socket, bytes, More::Flush).map_err(|_| FlushError::Socket)?;
        let Some(sent) = sent else {
            return Ok(Flushed::Full);
        };
        *sent_bytes += sent as u64;
        output.advance(sent as u64);
        return Ok(if sent == len {
            Flushed::All
        } else {
            Flushed::Full
        });
    }
    let mut file_budget = FILE_BYTES_MAX;
    loop {
        let (sent, asked) = match output.front() {
            None => return Ok(Flushed::All),
            Some(Front::File { file, offset, len }) => {
                let asked = len.min(file_budget);
                if asked == 0 {
                    return Ok(Flushed::Yielded);
                }
                let mut offset = offset;
                // At most the budget, so it fits.
                let sent = file::send_file(socket, file.as_fd(), &mut offset, asked as usize)
                    .map_err(|_| FlushError::Socket)?;
                if sent == Some(0) {
                    return Err(FlushError::Truncated);
                }
                file_budget -= sent.unwrap_or(0) as u64;
                // Less than asked may also be the end of the file: only the next call tells.
                (sent, 0)
            }
            Some(Front::Bytes(bytes)) if !output.has_more_behind_front() => (
                net::send(socket, bytes, More::Flush).map_err(|_| FlushError::Socket)?,
                bytes.len(),
            ),
            Some(Front::Bytes(_)) => send_bytes(socket, output).map_err(|_| FlushError::Socket)?,
        };
        let Some(sent) = sent else {
            return Ok(Flushed::Full);
        };
        *sent_bytes += sent as u64;
        output.advance(sent as u64);
        if sent < asked {
            // The socket's buffer is full; asking again would only say so.
            return Ok(Flushed::Full);
        }
    }
}

/// Sends all bytes up to the next file segment at once; answers how many of how many went.
fn send_bytes(socket: BorrowedFd<'_>, output: &Output) -> io::Result<(Option<usize>, usize)> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let count = output.io_slices(&mut slices);
    let slices = &slices[..count];
    let asked = slices.iter().map(|slice| slice.len()).sum::<usize>();
    // The head of an answer waits for the file behind it, to leave in one segment. Of a long file
    // not: behind a part of a segment the kernel sends its pages at several times the cost.
    let behind = output.queued_bytes() - asked as u64;
    let more = if behind > 0 && behind <= FOLLOWS_BYTES_MAX {
        More::Follows
    } else {
        More::Flush
    };
    Ok((net::send_slices(socket, slices, more)?, asked))
}
