//! Encryption of a session's queued output, as far as the driver's queue has room.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use windlass::session::{Front, Output};

use crate::channel::Channel;

/// Why sending failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The keys are used up, or TLS can't send any more.
    Exhausted,
    /// A file is shorter than it was, or can't be read.
    Truncated,
}

/// How much is encrypted before what was is written, if the session waits for room anyway. It
/// fits, with what encryption adds, into the buffer that an output queue keeps when it is empty.
pub(super) const PIECE_BYTES: usize = 60 * 1024;
/// A front of this length is encrypted where it is; a shorter one is joined with what follows.
const IN_PLACE_BYTES: usize = 16 * 1024;

/// Encrypts what `from` begins with into `to`, at most `room` bytes of it and at least one;
/// answers how many. `piece` is memory to gather in. `from` is not empty.
pub(super) fn send_piece(
    channel: &mut Channel,
    from: &mut Output,
    to: &mut Output,
    piece: &mut Vec<u8>,
    room: u64,
) -> Result<u64, SendError> {
    let room = usize::try_from(room).map_or(PIECE_BYTES, |room| room.clamp(1, PIECE_BYTES));
    if let Some(Front::Bytes(bytes)) = from.front()
        && (bytes.len() >= IN_PLACE_BYTES.min(room) || !from.has_more_behind_front())
    {
        let bytes = &bytes[..bytes.len().min(room)];
        channel.send(bytes, to).map_err(|_| SendError::Exhausted)?;
        let sent = bytes.len() as u64;
        from.advance(sent);
        return Ok(sent);
    }
    if piece.len() < PIECE_BYTES {
        piece.resize(PIECE_BYTES, 0);
    }
    let filled = gather(from, &mut piece[..room])?;
    channel
        .send(&piece[..filled], to)
        .map_err(|_| SendError::Exhausted)?;
    Ok(filled as u64)
}

/// Moves what `from` begins with into `piece`.
fn gather(from: &mut Output, piece: &mut [u8]) -> Result<usize, SendError> {
    let mut filled = 0;
    while let Some(front) = from.front() {
        let room = &mut piece[filled..];
        if room.is_empty() {
            break;
        }
        let moved = match front {
            Front::Bytes(bytes) => {
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                len
            }
            Front::File { file, offset, len } => {
                let len = usize::try_from(len).map_or(room.len(), |len| len.min(room.len()));
                match read_at(file, &mut room[..len], offset) {
                    // What was promised is not there any more.
                    Ok(0) | Err(_) => return Err(SendError::Truncated),
                    Ok(count) => count,
                }
            }
        };
        filled += moved;
        from.advance(moved as u64);
    }
    Ok(filled)
}

/// pread(2).
fn read_at(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(room, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
