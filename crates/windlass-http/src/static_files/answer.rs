//! The answer with a file, a part of it, or why not.

use std::sync::Arc;

use super::conditional::Outcome;
use super::multipart::{self, Boundaries};
use super::range::{Part, Ranges};
use super::representation::{Content, Representation};
use crate::method::Method;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// Sends `representation` as `request` asks for it.
pub(super) fn answer(
    representation: &Representation,
    boundaries: &mut Boundaries,
    request: &Request<'_>,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let asks = Asks::of(request);
    if asks.conditions {
        match representation.validators.judge(request) {
            Outcome::Failed => {
                let detail = "the file is not what the condition asks for";
                return Ok(response.respond(Response::text(Status::PRECONDITION_FAILED, detail)));
            }
            Outcome::NotModified => {
                return Ok(response
                    .start(Status::NOT_MODIFIED)
                    .lines(representation.metadata_lines())
                    .empty());
            }
            Outcome::Send => {}
        }
    }
    match asks.ranges(representation, request) {
        Ranges::Whole if response.may_compress(representation.status.len) => {
            let head = response.start(Status::OK).lines(representation.lines());
            Ok(match representation.content() {
                Content::File(file) => head.file(Arc::clone(file), 0, representation.status.len),
                Content::Memory(content) => head.body(content),
            })
        }
        Ranges::Whole => Ok(response.fixed(&representation.whole)),
        Ranges::Unsatisfiable => Ok(response
            .start(Status::RANGE_NOT_SATISFIABLE)
            .header_fmt(
                "Content-Range",
                format_args!("bytes */{}", representation.status.len),
            )?
            .empty()),
        Ranges::Parts(parts) => match parts.as_slice() {
            [part] => send_part(representation, *part, response),
            parts => multipart::send(representation, parts, boundaries, response),
        },
    }
}

fn send_part(
    representation: &Representation,
    part: Part,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let Part { first, last } = part;
    let value = format_args!("bytes {first}-{last}/{}", representation.status.len);
    let head = response
        .start(Status::PARTIAL_CONTENT)
        .lines(representation.lines())
        .header_fmt("Content-Range", value)?;
    Ok(match representation.content() {
        Content::File(file) => head.file(Arc::clone(file), first, part.len()),
        // Positions in memory fit.
        Content::Memory(content) => head.body(&content[first as usize..=last as usize]),
    })
}

/// Which of the headers that decide on the answer are there.
#[derive(Clone, Copy, Debug, Default)]
struct Asks {
    conditions: bool,
    range_count: u32,
}

impl Asks {
    /// Looks at each header once: most requests have none of them.
    fn of(request: &Request<'_>) -> Self {
        let mut asks = Self::default();
        for (name, _) in request.headers() {
            match name.len() {
                5 if name.eq_ignore_ascii_case("range") => asks.range_count += 1,
                8 | 13 | 17 | 19 if is_condition(name) => asks.conditions = true,
                _ => {}
            }
        }
        asks
    }

    /// What to send. `Range` is for GET only and may stand once (RFC 9110 section 14.2): twice
    /// it is as if it were not there.
    fn ranges(self, representation: &Representation, request: &Request<'_>) -> Ranges {
        if self.range_count != 1
            || request.method() != Method::Get
            || !representation.validators.judge_range(request)
        {
            return Ranges::Whole;
        }
        request.header("range").map_or(Ranges::Whole, |value| {
            Ranges::parse(value, representation.status.len)
        })
    }
}

fn is_condition(name: &str) -> bool {
    [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
    ]
    .iter()
    .any(|condition| name.eq_ignore_ascii_case(condition))
}
