//! The header lines of an answer, as far as compression depends on them or changes them.

use crate::syntax::{list_members, trim_blanks};

/// What header lines say of compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// A type that is worth it.
    pub(super) is_compressible: bool,
    /// The answer is to be sent as it is.
    pub(super) is_final: bool,
    pub(super) has_etag: bool,
    /// Caches are told already that it depends on `Accept-Encoding`.
    pub(super) varies: bool,
}

impl Fields {
    /// Takes account of `lines`, each with its line end.
    pub(super) fn read(&mut self, lines: &[u8]) {
        for (name, value, _) in split(lines) {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if is("content-type") {
                self.is_compressible = is_compressible(value);
            } else if is("content-encoding") || is("content-range") || is_digest(name) {
                self.is_final = true;
            } else if is("cache-control") {
                self.is_final |= has_member(value, "no-transform");
            } else if is("etag") {
                self.has_etag = true;
            } else if is("vary") {
                self.varies |= has_member(value, "accept-encoding") || has_member(value, "*");
            }
        }
    }
}

/// The same lines for an answer that is compressed: with a weak `ETag` (RFC 9110 section 8.8.1),
/// and no offer of ranges.
pub(super) fn for_compressed(lines: &[u8]) -> Vec<u8> {
    let mut changed = Vec::with_capacity(lines.len() + 64);
    for (name, value, line) in split(lines) {
        if name.eq_ignore_ascii_case(b"accept-ranges") {
            continue;
        }
        if name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/") {
            changed.extend_from_slice(name);
            changed.extend_from_slice(b": W/");
            changed.extend_from_slice(value);
            changed.extend_from_slice(b"\r\n");
        } else {
            changed.extend_from_slice(line);
        }
    }
    changed
}

/// Names, values and whole lines.
fn split(mut lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    std::iter::from_fn(move || {
        // No value has a line feed in it.
        let end = memchr::memchr(b'\n', lines)? + 1;
        let (line, rest) = lines.split_at(end);
        lines = rest;
        let colon = memchr::memchr(b':', line)?;
        let value = line[colon + 1..].trim_ascii_end();
        Some((&line[..colon], trim_blanks(value), line))
    })
}

fn has_member(value: &[u8], member: &str) -> bool {
    list_members(value).any(|found| found.eq_ignore_ascii_case(member.as_bytes()))
}

/// Whether the field is a digest of the very bytes that are sent (RFC 9530, RFC 3230).
fn is_digest(name: &[u8]) -> bool {
    ["content-digest", "repr-digest", "digest", "content-md5"]
        .iter()
        .any(|digest| name.eq_ignore_ascii_case(digest.as_bytes()))
}

/// Whether content of a media type is expected to shrink.
fn is_compressible(content_type: &[u8]) -> bool {
    const TYPES: [&str; 14] = [
        "application/atom+xml",
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/manifest+json",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
        "font/otf",
        "font/ttf",
        "image/bmp",
    ];
    let essence = content_type.split(|b| *b == b';').next();
    let essence = trim_blanks(essence.unwrap_or_default()).to_ascii_lowercase();
    essence.starts_with(b"text/")
        || essence.ends_with(b"+json")
        || essence.ends_with(b"+xml")
        || TYPES.iter().any(|known| essence == known.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Fields {
        let mut fields = Fields::default();
        fields.read(lines.as_bytes());
        fields
    }

    #[test]
    fn text_and_its_like_are_compressible_whatever_their_parameters_and_case() {
        for (value, expected) in [
            ("text/html; charset=utf-8", true),
            ("Text/CSS", true),
            ("application/json", true),
            ("application/problem+json;x=y", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("application/gzip", false),
            ("application/octet-stream", false),
            ("", false),
            ("texts/html", false),
        ] {
            let fields = read(&format!("Content-Type: {value}\r\n"));
            assert_eq!(fields.is_compressible, expected, "{value}");
        }
    }

    #[test]
    fn answers_that_may_not_be_changed_are_final() {
        for line in [
            "Content-Encoding: br",
            "content-range: bytes 0-1/2",
            "Cache-Control: public, No-Transform",
            "Content-Digest: sha-256=:abc=:",
        ] {
            assert!(read(&format!("A: b\r\n{line}\r\n")).is_final, "{line}");
        }
        assert!(!read("Cache-Control: no-store\r\nVary: Origin\r\n").is_final);
        assert!(read("Vary: Origin, accept-encoding\r\n").varies && read("Vary: *\r\n").varies);
    }

    #[test]
    fn etag_becomes_weak_once_and_ranges_are_not_offered() {
        let lines = b"A: b\r\nETag: \"x\"\r\naccept-ranges: bytes\r\nC:\r\n";
        let weak = b"A: b\r\nETag: W/\"x\"\r\nC:\r\n";
        assert_eq!(for_compressed(lines), weak);
        assert_eq!(for_compressed(weak), weak);
    }
}
