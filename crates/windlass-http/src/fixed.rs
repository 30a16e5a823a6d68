//! An answer that is the same each time, laid out once.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use windlass::session::Output;

use crate::date::DATE_BYTES;
use crate::responder::{DATE_NAME, Framer, Persistence, write_content_length};
use crate::response::{Body, Piece, Response};
use crate::status::Status;

/// A body up to this size is copied along with the head; a longer one is shared.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// A prebuilt answer: only `Date` and `Connection` differ from one use to the next.
///
/// Answering with it is one copy of the whole and one of the date; a long body is sent by
/// reference, a file by the kernel.
#[derive(Clone, Debug)]
pub struct FixedResponse {
    status: Status,
    /// The answer on a connection that goes on; with the body if that is short.
    image: Vec<u8>,
    head_bytes: usize,
    /// Where in the image the date goes.
    date_at: usize,
    /// What of the body is not in the image.
    rest: Rest,
    body_bytes: u64,
}

#[derive(Clone, Debug)]
enum Rest {
    File {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
    None,
    Pieces(Arc<[Piece]>),
    Shared(Bytes),
}

impl FixedResponse {
    /// Lays `response` out.
    ///
    /// # Panics
    ///
    /// If its body is a stream: that can be sent only once.
    #[must_use]
    pub fn new(response: Response) -> Self {
        let Response {
            status,
            header_lines,
            body,
            ..
        } = response;
        let body = if status.has_body() {
            body
        } else {
            Body::Bytes(Bytes::new())
        };
        let body_bytes = body.len();
        let mut image = Vec::with_capacity(256 + header_lines.len());
        status.write_line(&mut image);
        image.extend_from_slice(DATE_NAME);
        let date_at = image.len();
        image.extend_from_slice(&[b' '; DATE_BYTES]);
        image.extend_from_slice(b"\r\n");
        image.extend_from_slice(&header_lines);
        if status.has_length() {
            write_content_length(&mut image, body_bytes);
        }
        image.extend_from_slice(Persistence::Persistent.line());
        image.extend_from_slice(b"\r\n");
        let head_bytes = image.len();
        let rest = match body {
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                image.extend_from_slice(&bytes);
                Rest::None
            }
            Body::Bytes(bytes) => Rest::Shared(bytes),
            Body::File { file, offset, len } => Rest::File { file, offset, len },
            Body::Pieces(pieces) => Rest::Pieces(pieces.into()),
            Body::Stream { .. } => panic!("a fixed answer's body must not be a stream"),
        };
        image.shrink_to_fit();
        Self {
            status,
            image,
            head_bytes,
            date_at,
            rest,
            body_bytes,
        }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The body, if it is in memory and in one piece.
    pub(crate) fn body_in_memory(&self) -> Option<&[u8]> {
        match &self.rest {
            Rest::None => Some(&self.image[self.head_bytes..]),
            Rest::Shared(bytes) => Some(bytes),
            Rest::File { .. } | Rest::Pieces(_) => None,
        }
    }

    /// How much memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let body = match &self.rest {
            Rest::Shared(bytes) => bytes.len(),
            Rest::File { .. } | Rest::None | Rest::Pieces(_) => 0,
        };
        self.image.capacity() + body + size_of::<Self>()
    }

    /// Appends the answer; answers how many bytes of body.
    #[inline]
    pub(crate) fn write(
        &self,
        output: &mut Output,
        framer: Framer,
        date: &[u8; DATE_BYTES],
        extra: &[u8],
    ) -> u64 {
        let (head, body) = self.image.split_at(self.head_bytes);
        output.push_with(|buf| {
            let start = buf.len();
            if extra.is_empty()
                && framer.persistence == Persistence::Persistent
                && !framer.head_only
            {
                buf.extend_from_slice(&self.image);
            } else {
                // Behind the date and its line end.
                let (start, head_end) =
                    head[..head.len() - 2].split_at(self.date_at + DATE_BYTES + 2);
                buf.extend_from_slice(start);
                buf.extend_from_slice(extra);
                buf.extend_from_slice(head_end);
                buf.extend_from_slice(framer.persistence.line());
                buf.extend_from_slice(b"\r\n");
                if !framer.head_only {
                    buf.extend_from_slice(body);
                }
            }
            buf[start + self.date_at..][..DATE_BYTES].copy_from_slice(date);
        });
        if framer.head_only {
            return 0;
        }
        match &self.rest {
            Rest::None => {}
            Rest::File { file, offset, len } => output.push_file(Arc::clone(file), *offset, *len),
            Rest::Pieces(pieces) => pieces.iter().cloned().for_each(|piece| piece.push(output)),
            Rest::Shared(bytes) => output.push_shared(bytes.clone()),
        }
        self.body_bytes
    }
}
