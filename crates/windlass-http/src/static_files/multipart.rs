//! Several parts of a file in one answer: `multipart/byteranges` (RFC 9110 section 14.6).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;

use super::range::Part;
use super::representation::{Content, Representation};
use crate::responder::{Answered, Responder};
use crate::response::{Piece, ResponseError};
use crate::status::Status;

/// Makes boundaries that are in no content: 128 bits that nobody can guess, never the same twice.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    keys: [RandomState; 2],
    count: u64,
}

impl Boundaries {
    fn next(&mut self) -> String {
        self.count += 1;
        let [high, low] = &self.keys;
        format!(
            "{:016x}{:016x}",
            high.hash_one(self.count),
            low.hash_one(self.count)
        )
    }
}

/// Sends two or more parts. The length of the whole is known, so nothing needs to be chunked.
pub(super) fn send(
    representation: &Representation,
    parts: &[Part],
    boundaries: &mut Boundaries,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let boundary = boundaries.next();
    let content_type = representation.content_type;
    let (name, parameters) = (content_type.name(), content_type.parameters());
    let len = representation.status.len;
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut line_end = "";
    for part in parts {
        let Part { first, last } = part;
        let head = format!(
            "{line_end}--{boundary}\r\nContent-Type: {name}{parameters}\r\n\
             Content-Range: bytes {first}-{last}/{len}\r\n\r\n"
        );
        line_end = "\r\n";
        pieces.push(Piece::Bytes(head.into()));
        pieces.push(content(representation, *part));
    }
    pieces.push(Piece::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    Ok(response
        .start(Status::PARTIAL_CONTENT)
        .lines(representation.lines_without_type())
        .header_fmt(
            "Content-Type",
            format_args!("multipart/byteranges; boundary={boundary}"),
        )?
        .pieces(pieces))
}

fn content(representation: &Representation, part: Part) -> Piece {
    match representation.content() {
        Content::File(file) => Piece::File {
            file: Arc::clone(file),
            offset: part.first,
            len: part.len(),
        },
        Content::Memory(content) => {
            // Positions in memory fit.
            let content = &content[part.first as usize..=part.last as usize];
            Piece::Bytes(Bytes::copy_from_slice(content))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_never_the_same_and_need_no_quotes() {
        let (mut one, mut other) = (Boundaries::default(), Boundaries::default());
        let made = [one.next(), one.next(), other.next(), other.next()];
        for (n, boundary) in made.iter().enumerate() {
            assert!(!made[..n].contains(boundary));
            assert_eq!(boundary.len(), 32);
            assert!(boundary.bytes().all(|b| b.is_ascii_alphanumeric()));
        }
    }
}
