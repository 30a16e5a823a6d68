//! Bodies of answers that are made piece by piece, with back-pressure.
//!
//! A [`BodySource`] is asked for more when there is room, so that a peer that reads slowly holds
//! up its producer and nothing else. A source that has nothing yet says so, and uses the
//! connection's notifier when it has. The framing is ours: chunked, or a length that was promised,
//! or the end of the connection for HTTP/1.0 (RFC 9112 section 6.3).

use std::fmt;
use std::io::Write;

use bytes::Bytes;
use windlass::Instant;
use windlass::session::{Notifier, Now, Output, Wakeups};

use crate::response::{ResponseError, write_header};

/// Makes the body of an answer. Dropped when it ended, or when the connection did.
pub trait BodySource: Send + 'static {
    /// Appends some of the body. Called when there is room, in the connection's thread: must not
    /// block. Should append until [`BodyWriter::is_full`] says stop, or all there is.
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced;

    /// When to be asked again at the latest, though nothing was notified: for a sign of life, or a
    /// time-out. Asked after each [`Produced::Pending`].
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl<F> BodySource for F
where
    F: FnMut(&mut BodyWriter<'_, '_>) -> Produced + Send + 'static,
{
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        self(body)
    }
}

/// What a source says of the rest of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    /// It is complete.
    End,
    /// It cannot be made; the connection is reset, so that the client does not take a part for the
    /// whole.
    Failed,
    /// There is more at once, when there is room.
    More,
    /// There is no more yet: the notifier will be used.
    Pending,
}

/// Where a source appends. Pieces are gathered into few chunks.
pub struct BodyWriter<'a, 'b> {
    pub(crate) output: &'a mut Output,
    /// Small pieces that are not framed yet.
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) framing: &'a mut StreamFraming,
    pub(crate) written_bytes: &'a mut u64,
    pub(crate) trailers: &'a mut Vec<u8>,
    pub(crate) wakeups: &'a mut Wakeups<'b>,
    pub(crate) now: Now,
    pub(crate) hints: Hints,
}

/// What a source may want to know of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    pub(crate) peer_ended: bool,
    pub(crate) stopping: bool,
}

/// How the end of a streamed body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFraming {
    /// More was made than was promised.
    Broken,
    Chunked,
    /// By the end of the connection.
    Close,
    /// So many bytes are still owed.
    Length(u64),
}

/// Gathered pieces make a chunk from this size on; longer ones are a chunk of their own.
const CHUNK_BYTES: usize = 16 * 1024;

impl BodyWriter<'_, '_> {
    /// Appends a copy of `data`. What is more than the length that was promised is dropped, and the
    /// connection reset.
    pub fn push(&mut self, data: &[u8]) {
        if !self.count(data.len()) {
            return;
        }
        if self.scratch.len() + data.len() > CHUNK_BYTES {
            self.flush();
        }
        if data.len() >= CHUNK_BYTES {
            self.begin_chunk(data.len());
            self.output.push(data);
            self.end_chunk();
        } else {
            self.scratch.extend_from_slice(data);
        }
    }

    /// Appends `data` by reference; worth it from a few KiB up. As [`push`](Self::push) else.
    pub fn push_shared(&mut self, data: Bytes) {
        if data.len() < CHUNK_BYTES {
            return self.push(&data);
        }
        if !self.count(data.len()) {
            return;
        }
        self.flush();
        self.begin_chunk(data.len());
        self.output.push_shared(data);
        self.end_chunk();
    }

    /// Adds a trailer field, sent at the end if the body is chunked, else dropped (RFC 9110 section
    /// 6.5.1).
    ///
    /// # Errors
    ///
    /// If name or value is not valid, or the field is one that the session sets itself.
    pub fn trailer(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), ResponseError> {
        write_header(self.trailers, name, value.as_ref())
    }

    /// Whether the output is full: a source stops then with [`Produced::More`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.output.is_full() || self.scratch.len() >= CHUNK_BYTES * 4
    }

    /// How much of the body was appended since its beginning.
    pub(crate) fn written_bytes(&self) -> u64 {
        *self.written_bytes
    }

    /// The connection's notifier, for who will have more of the body later.
    #[must_use]
    pub fn notifier(&mut self) -> Notifier {
        self.wakeups.notifier()
    }

    /// The time of the call.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// Whether the client has closed its sending side. It may still read; who sends without an end
    /// of its own should take it for a sign that it left.
    #[must_use]
    pub fn peer_ended(&self) -> bool {
        self.hints.peer_ended
    }

    /// Whether the server stops gracefully: a source without an end of its own should end now.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.hints.stopping
    }

    /// Counts what is to be appended; answers whether it may be.
    fn count(&mut self, bytes: usize) -> bool {
        if let StreamFraming::Length(left) = *self.framing {
            *self.framing = match left.checked_sub(bytes as u64) {
                Some(left) => StreamFraming::Length(left),
                None => StreamFraming::Broken,
            };
        }
        let may = *self.framing != StreamFraming::Broken;
        if may {
            *self.written_bytes += bytes as u64;
        }
        may
    }

    /// Frames what was gathered.
    pub(crate) fn flush(&mut self) {
        if self.scratch.is_empty() {
            return;
        }
        self.begin_chunk(self.scratch.len());
        self.output.push(self.scratch);
        self.scratch.clear();
        self.end_chunk();
    }

    fn begin_chunk(&mut self, bytes: usize) {
        if *self.framing == StreamFraming::Chunked {
            self.output.push_with(|buf| {
                write!(buf, "{bytes:x}\r\n").expect("writing to a Vec does not fail");
            });
        }
    }

    fn end_chunk(&mut self) {
        if *self.framing == StreamFraming::Chunked {
            self.output.push(b"\r\n");
        }
    }

    /// Ends the body; answers whether it is as long as was promised.
    pub(crate) fn finish(&mut self) -> bool {
        self.flush();
        match *self.framing {
            StreamFraming::Chunked => {
                self.output.push(b"0\r\n");
                self.output.push(self.trailers);
                self.output.push(b"\r\n");
                true
            }
            StreamFraming::Broken => false,
            StreamFraming::Close => true,
            StreamFraming::Length(left) => left == 0,
        }
    }
}

impl fmt::Debug for BodyWriter<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter")
            .field("framing", &self.framing)
            .finish_non_exhaustive()
    }
}
