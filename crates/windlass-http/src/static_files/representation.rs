//! A file as it is sent: described, laid out, with its content if that is short.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use windlass::files::{FileStatus, OpenFile};

use super::conditional::Validators;
use super::content_type::ContentType;
use crate::content_coding::Coding;
use crate::fixed::FixedResponse;
use crate::response::{Body, Response};
use crate::status::Status;

/// The content of a file up to this size is read into memory. In the answer it then leaves in one
/// call with its head; a longer one takes two, but is not copied.
const MEMORY_BYTES_MAX: u64 = 16 * 1024;

/// What is sent for a file, in one coding. It does not change any more.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) status: FileStatus,
    pub(super) validators: Validators,
    pub(super) content_type: ContentType,
    /// The answer with the whole of it.
    pub(super) whole: FixedResponse,
    /// Nothing if the content is in memory.
    file: Option<Arc<File>>,
    lines: Vec<u8>,
    metadata_end: usize,
    type_start: usize,
}

/// Where content is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    File(&'a Arc<File>),
    Memory(&'a [u8]),
}

/// What else is said in the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dress<'a> {
    pub(super) content_type: ContentType,
    pub(super) coding: Coding,
    pub(super) cache_control: Option<&'a [u8]>,
    /// The value of `Vary`, or nothing.
    pub(super) vary: &'static str,
}

impl Representation {
    /// That of a regular file, at `now_ms` since 1970.
    pub(super) fn new(open: OpenFile, dress: Dress<'_>, now_ms: u64) -> Self {
        let status = open.status;
        let mut validators = Validators::new(&status, dress.coding, now_ms);
        let content = if status.len <= MEMORY_BYTES_MAX {
            read(&open.file, status.len).ok()
        } else {
            None
        };
        // What was read may be newer than what was described.
        if content.is_some() && open.status_now().ok() != Some(status) {
            validators = Validators::none();
        }
        let mut lines = Vec::with_capacity(384);
        let line = |lines: &mut Vec<u8>, parts: &[&[u8]]| {
            parts.iter().for_each(|part| lines.extend_from_slice(part));
            lines.extend_from_slice(b"\r\n");
        };
        if let Some(value) = dress.cache_control {
            line(&mut lines, &[b"Cache-Control: ", value]);
        }
        if !dress.vary.is_empty() {
            line(&mut lines, &[b"Vary: ", dress.vary.as_bytes()]);
        }
        if let Some(tag) = validators.tag() {
            line(&mut lines, &[b"ETag: ", tag]);
        }
        if let Some(date) = validators.last_modified() {
            line(&mut lines, &[b"Last-Modified: ", date]);
        }
        let metadata_end = lines.len();
        line(&mut lines, &[b"Accept-Ranges: bytes"]);
        if dress.coding != Coding::Identity {
            line(
                &mut lines,
                &[b"Content-Encoding: ", dress.coding.name().as_bytes()],
            );
        }
        let type_start = lines.len();
        write!(
            lines,
            "Content-Type: {}{}\r\n",
            dress.content_type.name(),
            dress.content_type.parameters()
        )
        .expect("writing to a Vec does not fail");
        // If reading failed, the driver will find out the same, and end the connection.
        let (body, file) = match content {
            Some(content) => (Body::Bytes(content), None),
            None => {
                let file = Arc::new(open.file);
                let body = Body::File {
                    file: Arc::clone(&file),
                    offset: 0,
                    len: status.len,
                };
                (body, Some(file))
            }
        };
        let mut response = Response::new(Status::OK);
        response.header_lines.clone_from(&lines);
        response.body = body;
        let whole = FixedResponse::new(response);
        Self {
            status,
            validators,
            content_type: dress.content_type,
            whole,
            file,
            lines,
            metadata_end,
            type_start,
        }
    }

    /// Where the content is.
    pub(super) fn content(&self) -> Content<'_> {
        match &self.file {
            Some(file) => Content::File(file),
            None => Content::Memory(self.whole.body_in_memory().unwrap_or_default()),
        }
    }

    /// Whether it can be kept: a change of the file will show in its status. One of a long file
    /// is always read anew.
    pub(super) fn is_settled(&self) -> bool {
        self.validators.tag().is_some()
    }

    /// Whether it says all it can: its date was left out only because it was too new.
    pub(super) fn is_complete(&self) -> bool {
        self.validators.last_modified().is_some()
    }

    /// The header lines that also go with 304 (RFC 9110 section 15.4.5).
    pub(super) fn metadata_lines(&self) -> &[u8] {
        &self.lines[..self.metadata_end]
    }

    /// The header lines of 200, all but `Content-Type`.
    pub(super) fn lines_without_type(&self) -> &[u8] {
        &self.lines[..self.type_start]
    }

    /// The header lines of 200.
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// How much memory it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.lines.capacity() + self.whole.memory_bytes()
    }
}

fn read(file: &File, len: u64) -> io::Result<Bytes> {
    // At most MEMORY_BYTES_MAX, so it fits.
    let mut content = vec![0; len as usize];
    file.read_exact_at(&mut content, 0)?;
    Ok(content.into())
}
