//! An answer as a value: for jobs, and to build fixed answers from.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use windlass::session::Output;

use crate::body_source::BodySource;
use crate::status::Status;
use crate::syntax::{is_token, is_value};

/// An answer that owns its parts.
///
/// ```
/// # use windlass_http::{Response, Status};
/// # fn run() -> Result<Response, windlass_http::ResponseError> {
/// Ok(Response::new(Status::OK).header("Content-Type", "text/plain")?.body("hello\n"))
/// # }
/// # assert!(run().is_ok());
/// ```
#[derive(Debug)]
pub struct Response {
    pub(crate) status: Status,
    /// Checked header lines, each with its line end.
    pub(crate) header_lines: Vec<u8>,
    pub(crate) body: Body,
    /// Whether it is a plain notice, which a page made for its status may replace.
    pub(crate) is_notice: bool,
}

pub(crate) enum Body {
    Bytes(Bytes),
    File {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
    Pieces(Vec<Piece>),
    Stream {
        source: Box<dyn BodySource>,
        len: Option<u64>,
    },
}

/// A part of a body that is put together from several, in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of a file, sent by the kernel.
    File {
        /// The file, open for reading.
        file: Arc<File>,
        /// Where the part begins.
        offset: u64,
        /// How long it is, in bytes.
        len: u64,
    },
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Appends the piece. Bytes are copied if they are few.
    pub(crate) fn push(self, output: &mut Output) {
        const COPY_BYTES_MAX: usize = 4096;
        match self {
            Self::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => output.push(&bytes),
            Self::Bytes(bytes) => output.push_shared(bytes),
            Self::File { file, offset, len } => output.push_file(file, offset, len),
        }
    }
}

impl Body {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
            // More than there is room for is a file longer than any: the sum stays at the limit.
            Self::Pieces(pieces) => pieces.iter().map(Piece::len).fold(0, u64::saturating_add),
            Self::Stream { len, .. } => len.unwrap_or(0),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Bytes(_) => "Bytes",
            Self::File { .. } => "File",
            Self::Pieces(_) => "Pieces",
            Self::Stream { .. } => "Stream",
        };
        write!(f, "{name}({})", self.len())
    }
}

impl Response {
    /// An answer without headers and body.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self {
            status,
            header_lines: Vec::new(),
            body: Body::Bytes(Bytes::new()),
            is_notice: false,
        }
    }

    /// A plain text answer: the status, a colon and `detail`, for people to read.
    #[must_use]
    pub fn text(status: Status, detail: impl fmt::Display) -> Self {
        Self {
            status,
            header_lines: TEXT_TYPE.to_vec(),
            body: Body::Bytes(format!("{status}: {detail}\n").into()),
            is_notice: true,
        }
    }

    /// Adds a header.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`](crate::ResponseHead::header).
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, ResponseError> {
        write_header(&mut self.header_lines, name, value.as_ref())?;
        Ok(self)
    }

    /// Sets the body to bytes.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = Body::Bytes(bytes.into());
        self
    }

    /// Sets the body to `len` bytes of `file` from `offset` on.
    #[must_use]
    pub fn file(mut self, file: Arc<File>, offset: u64, len: u64) -> Self {
        self.body = Body::File { file, offset, len };
        self
    }

    /// Sets the body to `pieces`, one after the other.
    #[must_use]
    pub fn pieces(mut self, pieces: Vec<Piece>) -> Self {
        self.body = Body::Pieces(pieces);
        self
    }

    /// Sets the body to what `source` makes, piece by piece.
    #[must_use]
    pub fn stream(mut self, source: impl BodySource) -> Self {
        self.body = Body::Stream {
            source: Box::new(source),
            len: None,
        };
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }
}

/// The header line of plain text.
pub(crate) const TEXT_TYPE: &[u8] = b"Content-Type: text/plain; charset=utf-8\r\n";

/// Why an answer cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseError {
    /// The name is not a token (RFC 9110 section 5.1).
    HeaderName,
    /// The value has a control byte, or a blank at an end (RFC 9110 section 5.5).
    HeaderValue,
    /// The client offered no other protocol to go on in.
    NoUpgrade,
    /// The status code is not of an interim answer.
    NotInterim,
    /// The header belongs to the session: `Connection`, `Content-Length`, `Date`, `Keep-Alive`,
    /// `Trailer`, `Transfer-Encoding`, `Upgrade`.
    ReservedHeader,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeaderName => "set a header whose name is not a token",
            Self::HeaderValue => "set a header whose value has a forbidden byte",
            Self::NoUpgrade => "upgrade a connection whose client did not offer to",
            Self::NotInterim => "send an interim answer whose status is not one",
            Self::ReservedHeader => "set a header that belongs to the session",
        })
    }
}

impl Error for ResponseError {}

/// Appends a header line; on an error nothing.
pub(crate) fn write_header(
    lines: &mut Vec<u8>,
    name: &str,
    value: &[u8],
) -> Result<(), ResponseError> {
    check_name(name)?;
    if !is_value(value) {
        return Err(ResponseError::HeaderValue);
    }
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
    Ok(())
}

pub(crate) fn check_name(name: &str) -> Result<(), ResponseError> {
    const RESERVED: [&str; 7] = [
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    if !is_token(name.as_bytes()) {
        return Err(ResponseError::HeaderName);
    }
    if RESERVED
        .iter()
        .any(|reserved| name.eq_ignore_ascii_case(reserved))
    {
        return Err(ResponseError::ReservedHeader);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pf28_bad_headers_are_errors_and_leave_nothing_behind() {
        let mut lines = Vec::new();
        for (name, value, error) in [
            ("", "v", ResponseError::HeaderName),
            ("a b", "v", ResponseError::HeaderName),
            ("a\r\nb", "v", ResponseError::HeaderName),
            ("a", "v\r\nSet-Cookie: x", ResponseError::HeaderValue),
            ("a", "v\0", ResponseError::HeaderValue),
            ("a", " v", ResponseError::HeaderValue),
            ("Content-length", "1", ResponseError::ReservedHeader),
            ("CONNECTION", "close", ResponseError::ReservedHeader),
        ] {
            assert_eq!(
                write_header(&mut lines, name, value.as_bytes()),
                Err(error),
                "{name:?}"
            );
        }
        assert!(lines.is_empty());
        write_header(&mut lines, "A", b"b").expect("valid");
        assert_eq!(lines, b"A: b\r\n");
    }
}
