//! How a handler answers: straight into the connection's output, framed by us.
//!
//! A [`Responder`] is used up by answering, and only answering gives the [`Answered`] that a
//! handler must return. The head is gathered in scratch memory of the thread, so that an error
//! midway leaves no half answer behind. `Date`, `Content-Length` and `Connection` are written here
//! and nowhere else.

use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::Write;
use std::panic::UnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use windlass::session::{Job, Output};

use crate::date::DATE_BYTES;
use crate::fixed::FixedResponse;
use crate::response::{Body, Piece, Response, ResponseError, check_name, write_header};
use crate::status::Status;
use crate::syntax::is_value;

/// The one chance to answer a request.
///
/// Dropping it without an answer makes the answer `500`.
pub struct Responder<'a> {
    pub(crate) output: &'a mut Output,
    /// Empty: the head is gathered here.
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) date: &'a [u8; DATE_BYTES],
    pub(crate) framer: Framer,
    pub(crate) outcome: &'a mut Outcome,
}

/// An answer whose head is begun.
pub struct ResponseHead<'a> {
    responder: Responder<'a>,
    status: Status,
}

/// The proof that a [`Responder`] was used.
#[derive(Debug)]
#[must_use = "the handler returns it"]
pub struct Answered(());

/// What became of a request.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// An answer was appended.
    Answered {
        status: Status,
        body_bytes: u64,
    },
    Job(Job),
    #[default]
    Nothing,
}

/// What the request settles about the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framer {
    /// The request was HEAD: the header fields of GET, no body (RFC 9110 section 9.3.2).
    pub(crate) head_only: bool,
    pub(crate) persistence: Persistence,
}

/// Whether and how the connection goes on after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It ends.
    Close,
    /// It goes on, as is usual in HTTP/1.1.
    Persistent,
    /// It goes on, which an HTTP/1.0 client must be told.
    PersistentHttp10,
}

impl Persistence {
    pub(crate) const fn line(self) -> &'static [u8] {
        match self {
            Self::Close => b"Connection: close\r\n",
            Self::Persistent => b"",
            Self::PersistentHttp10 => b"Connection: keep-alive\r\n",
        }
    }
}

/// Shared bytes up to this many are copied all the same: they then leave in one piece with the
/// head.
const COPY_BYTES_MAX: usize = 4096;

/// What stands between the status line and the date.
pub(crate) const DATE_NAME: &[u8] = b"\r\nDate: ";

impl<'a> Responder<'a> {
    /// Begins an answer that is written piece by piece.
    #[must_use]
    pub fn start(self, status: Status) -> ResponseHead<'a> {
        let scratch = &mut *self.scratch;
        status.write_line(scratch);
        scratch.extend_from_slice(DATE_NAME);
        scratch.extend_from_slice(self.date);
        scratch.extend_from_slice(b"\r\n");
        ResponseHead {
            responder: self,
            status,
        }
    }

    /// Answers with a prebuilt answer: the cheapest way.
    #[inline]
    pub fn fixed(self, response: &FixedResponse) -> Answered {
        let body_bytes = response.write(self.output, self.framer, self.date);
        *self.outcome = Outcome::Answered {
            status: response.status(),
            body_bytes,
        };
        Answered(())
    }

    /// Answers with a value.
    pub fn respond(self, response: Response) -> Answered {
        let head = self.start(response.status);
        head.responder
            .scratch
            .extend_from_slice(&response.header_lines);
        head.finish(response.body)
    }

    /// Answers with what `work` returns, once it has run in the pool. The connection's later
    /// requests wait, so that the order is kept.
    pub fn job<F>(self, work: F) -> Answered
    where
        F: FnOnce() -> Response + Send + UnwindSafe + 'static,
    {
        *self.outcome = Outcome::Job(Job::new(work));
        Answered(())
    }
}

impl fmt::Debug for Responder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("framer", &self.framer)
            .finish_non_exhaustive()
    }
}

impl ResponseHead<'_> {
    /// Adds a header.
    ///
    /// # Errors
    ///
    /// If the name is not a token, the value has a byte that no value may have, or the header is
    /// one that the session sets itself. Nothing was sent then, and a handler that returns the
    /// error makes the answer `500`.
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, ResponseError> {
        write_header(self.responder.scratch, name, value.as_ref())?;
        Ok(self)
    }

    /// Adds a header with a formatted value: `head.header_fmt("ETag", format_args!("\"{n}\""))`.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`].
    pub fn header_fmt(self, name: &str, value: Arguments<'_>) -> Result<Self, ResponseError> {
        check_name(name)?;
        let scratch = &mut *self.responder.scratch;
        scratch.extend_from_slice(name.as_bytes());
        scratch.extend_from_slice(b": ");
        let start = scratch.len();
        // Writing to a Vec fails only if the value's own Display does.
        scratch
            .write_fmt(value)
            .map_err(|_| ResponseError::HeaderValue)?;
        if !is_value(&scratch[start..]) {
            return Err(ResponseError::HeaderValue);
        }
        scratch.extend_from_slice(b"\r\n");
        Ok(self)
    }

    /// Answers without content.
    pub fn empty(self) -> Answered {
        self.body([])
    }

    /// Answers with a copy of `body`.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Answered {
        let body = body.as_ref();
        let sends_body = self.finish_head(body.len() as u64);
        let Responder {
            output, scratch, ..
        } = self.responder;
        output.push(scratch);
        if sends_body {
            output.push(body);
        }
        Answered(())
    }

    /// Answers with `body`, by reference if it is longer than a few KiB.
    pub fn shared(self, body: Bytes) -> Answered {
        self.finish(Body::Bytes(body))
    }

    /// Answers with `len` bytes of `file` from `offset` on. If the file turns out shorter, the
    /// driver ends the connection.
    pub fn file(self, file: Arc<File>, offset: u64, len: u64) -> Answered {
        self.finish(Body::File { file, offset, len })
    }

    /// Answers with `pieces`, one after the other. If a file turns out shorter than its piece, the
    /// driver ends the connection.
    pub fn pieces(self, pieces: Vec<Piece>) -> Answered {
        self.finish(Body::Pieces(pieces))
    }

    /// Adds header lines that were checked before, each with its line end.
    pub(crate) fn lines(self, lines: &[u8]) -> Self {
        self.responder.scratch.extend_from_slice(lines);
        self
    }

    fn finish(mut self, body: Body) -> Answered {
        let sends_body = self.finish_head(body.len());
        let Responder {
            output, scratch, ..
        } = self.responder;
        output.push(scratch);
        if sends_body {
            match body {
                Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => output.push(&bytes),
                Body::Bytes(bytes) => output.push_shared(bytes),
                Body::File { file, offset, len } => output.push_file(file, offset, len),
                Body::Pieces(pieces) => pieces.into_iter().for_each(|piece| piece.push(output)),
            }
        }
        Answered(())
    }

    /// Ends the head; answers whether the body follows. A body given for a status that has none
    /// is dropped (RFC 9112 section 6.3).
    fn finish_head(&mut self, body_bytes: u64) -> bool {
        let Responder {
            scratch,
            framer,
            outcome,
            ..
        } = &mut self.responder;
        let has_body = self.status.has_body();
        if self.status.has_length() {
            write_content_length(scratch, if has_body { body_bytes } else { 0 });
        }
        scratch.extend_from_slice(framer.persistence.line());
        scratch.extend_from_slice(b"\r\n");
        let sends_body = has_body && !framer.head_only;
        **outcome = Outcome::Answered {
            status: self.status,
            body_bytes: if sends_body { body_bytes } else { 0 },
        };
        sends_body
    }
}

impl fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

pub(crate) fn write_content_length(head: &mut Vec<u8>, length: u64) {
    write!(head, "Content-Length: {length}\r\n").expect("writing to a Vec does not fail");
}
