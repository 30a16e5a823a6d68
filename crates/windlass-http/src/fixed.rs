//! An answer that is the same each time, laid out once.

use bytes::Bytes;
use windlass::session::Output;

use crate::date::DATE_BYTES;
use crate::responder::{DATE_NAME, Framer, Persistence, write_content_length};
use crate::response::{Body, Response};

/// A body up to this size is copied along with the head; a longer one is shared.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// A prebuilt answer: only `Date` and `Connection` differ from one use to the next.
///
/// Answering with it is one copy of the whole and one of the date. Files are not sent this way.
#[derive(Clone, Debug)]
pub struct FixedResponse {
    status: crate::Status,
    /// The answer, for each way a connection may go on; with the body if it is short.
    images: [Image; 3],
    /// A long body.
    shared: Bytes,
    body_bytes: u64,
    /// Where in each image the date goes.
    date_at: usize,
}

#[derive(Clone, Debug)]
struct Image {
    bytes: Vec<u8>,
    head_bytes: usize,
}

impl FixedResponse {
    /// Lays `response` out.
    ///
    /// # Panics
    ///
    /// If its body is a file.
    #[must_use]
    pub fn new(response: Response) -> Self {
        let Response {
            status,
            header_lines,
            body,
            ..
        } = response;
        let Body::Bytes(mut body) = body else {
            panic!("a fixed answer's body must be bytes")
        };
        if !status.has_body() {
            body = Bytes::new();
        }
        let mut status_line = Vec::new();
        status.write_line(&mut status_line);
        status_line.extend_from_slice(DATE_NAME);
        let image = |persistence: Persistence| {
            let mut bytes = status_line.clone();
            bytes.extend_from_slice(&[b' '; DATE_BYTES]);
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(&header_lines);
            if status.has_length() {
                write_content_length(&mut bytes, body.len() as u64);
            }
            bytes.extend_from_slice(persistence.line());
            bytes.extend_from_slice(b"\r\n");
            let head_bytes = bytes.len();
            if body.len() <= COPY_BYTES_MAX {
                bytes.extend_from_slice(&body);
            }
            Image { bytes, head_bytes }
        };
        Self {
            status,
            images: Persistence::ALL.map(image),
            date_at: status_line.len(),
            body_bytes: body.len() as u64,
            shared: if body.len() > COPY_BYTES_MAX {
                body
            } else {
                Bytes::new()
            },
        }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> crate::Status {
        self.status
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
        let image = &self.images[framer.persistence as usize];
        let bytes = if framer.head_only {
            &image.bytes[..image.head_bytes]
        } else {
            &image.bytes[..]
        };
        output.push_with(|buf| {
            let start = buf.len();
            if extra.is_empty() {
                buf.extend_from_slice(bytes);
            } else {
                // Behind the date and its line end.
                let (head, tail) = bytes.split_at(self.date_at + DATE_BYTES + 2);
                buf.extend_from_slice(head);
                buf.extend_from_slice(extra);
                buf.extend_from_slice(tail);
            }
            buf[start + self.date_at..][..DATE_BYTES].copy_from_slice(date);
        });
        if framer.head_only {
            return 0;
        }
        if !self.shared.is_empty() {
            output.push_shared(self.shared.clone());
        }
        self.body_bytes
    }
}
