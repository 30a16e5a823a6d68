//! Where an answer is about to be framed: whether it is compressed, and by whom.

use std::panic::AssertUnwindSafe;

use super::Compression;
use super::encoder::compress;
use super::fields::{Fields, for_compressed};
use super::source::CompressedSource;
use crate::content_coding::Coding;
use crate::responder::{Answered, ResponseHead};
use crate::response::{Body, Response};
use crate::status::Status;

const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// What becomes of an answer.
#[derive(Debug)]
pub(crate) enum Negotiated<'a> {
    /// It was given, or will be by a job.
    Answered(Answered),
    /// It is to be framed.
    Framed(ResponseHead<'a>, Body),
}

/// Prepares an answer whose head is complete but for its framing.
#[cold]
pub(crate) fn negotiate<'a>(
    head: ResponseHead<'a>,
    body: Body,
    compression: &Compression,
) -> Negotiated<'a> {
    let coding = head.responder.framer.coding;
    let mut added = Fields::default();
    added.read(head.responder.extra);
    let mut fields = added;
    fields.read(&head.responder.scratch[head.lines_start..]);
    let (len, is_stream) = match &body {
        Body::Stream { len, .. } => (*len, true),
        body => (Some(body.len()), false),
    };
    // The client may hold the compressed answer, and must not take it for another.
    let was_perhaps_compressed = head.status == Status::NOT_MODIFIED && fields.has_etag;
    let may_compress = fields.is_compressible && compression.fits(head.status, len, is_stream);
    // A validator in lines that a wrapping handler added cannot be made weak here.
    if fields.is_final || added.has_etag || !(may_compress || was_perhaps_compressed) {
        return Negotiated::Framed(head, body);
    }
    let vary = if fields.varies { &[][..] } else { VARY };
    let Some(level) = compression.level(coding) else {
        head.responder.scratch.extend_from_slice(vary);
        return Negotiated::Framed(head, body);
    };
    let mut lines = for_compressed(&head.responder.scratch[head.lines_start..]);
    lines.extend_from_slice(vary);
    if may_compress {
        lines.extend_from_slice(b"Content-Encoding: ");
        lines.extend_from_slice(coding.name().as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    if may_compress && !is_stream && !head.responder.framer.head_only {
        return Negotiated::Answered(answer_by_job(head, lines, body, coding, level));
    }
    let scratch = &mut *head.responder.scratch;
    scratch.truncate(head.lines_start);
    scratch.extend_from_slice(&lines);
    match body {
        body if !may_compress => Negotiated::Framed(head, body),
        Body::Stream { source, len } => match CompressedSource::new(source, len, coding) {
            Ok(source) => {
                let source = Box::new(source);
                Negotiated::Framed(head, Body::Stream { source, len: None })
            }
            // Nothing was answered: that makes it 500.
            Err(_) => Negotiated::Answered(Answered::new()),
        },
        // How long it would be is known after the work only, which is not done for HEAD.
        Body::Bytes(_) | Body::File { .. } | Body::Pieces(_) => {
            Negotiated::Answered(head.finish_without_length())
        }
    }
}

/// Has the answer made in the pool: with `lines`, and `body` compressed.
fn answer_by_job(
    head: ResponseHead<'_>,
    lines: Vec<u8>,
    body: Body,
    coding: Coding,
    level: u32,
) -> Answered {
    let status = head.status;
    // Unwinding leaves nothing behind that is half done: the job owns all it uses.
    let work = AssertUnwindSafe(move || match compress(coding, level, &body) {
        Ok(compressed) => Response {
            header_lines: lines,
            ..Response::new(status).body(compressed)
        },
        Err(_) => Response::text(Status::INTERNAL_SERVER_ERROR, "the content cannot be read"),
    });
    head.responder.job(work)
}
