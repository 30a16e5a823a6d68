//! From the path of a request to a path below the root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A decoded path, relative to the root: no segment is empty, `.`, `..` or begins with a dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RelativePath<'a> {
    bytes: &'a [u8],
    names_directory: bool,
}

/// Why a path names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadPath {
    /// It has a segment that is never served.
    Hidden,
    /// It cannot be decoded, or has a NUL or a backslash in it.
    Malformed,
}

impl<'a> RelativePath<'a> {
    /// Decodes `path`, which begins with a slash, into `buf`: once (RFC 3986 section 2.4).
    pub(super) fn decode(path: &str, buf: &'a mut Vec<u8>) -> Result<Self, BadPath> {
        buf.clear();
        let names_directory = path.ends_with('/');
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            if !buf.is_empty() {
                buf.push(b'/');
            }
            let start = buf.len();
            decode_segment(segment.as_bytes(), buf)?;
            // With the dot segments goes all that is hidden by custom.
            if buf[start..].starts_with(b".") || buf[start..].contains(&b'/') {
                return Err(BadPath::Hidden);
            }
        }
        Ok(Self {
            bytes: buf,
            names_directory,
        })
    }

    pub(super) fn as_path(&self) -> &'a Path {
        let bytes = if self.bytes.is_empty() {
            b"."
        } else {
            self.bytes
        };
        Path::new(OsStr::from_bytes(bytes))
    }

    /// Whether the request's path ended in a slash.
    pub(super) fn names_directory(&self) -> bool {
        self.names_directory
    }
}

fn decode_segment(segment: &[u8], buf: &mut Vec<u8>) -> Result<(), BadPath> {
    let mut rest = segment;
    while let [byte, tail @ ..] = rest {
        let (byte, tail) = match (*byte, tail) {
            (b'%', [high, low, tail @ ..]) => (hex_digit(*high)? << 4 | hex_digit(*low)?, tail),
            (b'%', _) => return Err(BadPath::Malformed),
            (byte, tail) => (byte, tail),
        };
        if matches!(byte, 0 | b'\\') {
            return Err(BadPath::Malformed);
        }
        buf.push(byte);
        rest = tail;
    }
    Ok(())
}

fn hex_digit(byte: u8) -> Result<u8, BadPath> {
    let digit = (byte as char).to_digit(16).ok_or(BadPath::Malformed)?;
    Ok(digit as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(path: &str) -> Result<(String, bool), BadPath> {
        let mut buf = Vec::new();
        let path = RelativePath::decode(path, &mut buf)?;
        Ok((
            path.as_path().to_string_lossy().into_owned(),
            path.names_directory(),
        ))
    }

    #[test]
    fn pf40_paths_are_decoded_once() {
        assert_eq!(decode("/"), Ok((".".into(), true)));
        assert_eq!(decode("/a%20b/c.txt"), Ok(("a b/c.txt".into(), false)));
        assert_eq!(decode("//a///b/"), Ok(("a/b".into(), true)));
        assert_eq!(decode("/%2541"), Ok(("%41".into(), false)));
        assert_eq!(decode("/a..b/c.."), Ok(("a..b/c..".into(), false)));
    }

    #[test]
    fn pf40_paths_that_could_lead_elsewhere_are_refused() {
        for path in [
            "/..",
            "/../a",
            "/a/../b",
            "/%2e%2e/a",
            "/.%2E/a",
            "/.",
            "/a/./b",
            "/.git/config",
            "/%2fetc/passwd",
            "/a%2Fb",
            "/..%2f",
        ] {
            assert_eq!(decode(path), Err(BadPath::Hidden), "{path}");
        }
        for path in [
            "/a%00", "/%00", "/a\\b", "/..%5c", "/%5C", "/%", "/%4", "/%zz", "/%+1",
        ] {
            assert_eq!(decode(path), Err(BadPath::Malformed), "{path}");
        }
    }

    proptest! {
        #[test]
        fn pf40_no_decoded_path_is_absolute_or_climbs(path in "/([a.%/2fFeE5cC0\\\\]|%2e|%2f|\\.\\.){0,20}") {
            let mut buf = Vec::new();
            if let Ok(path) = RelativePath::decode(&path, &mut buf) {
                prop_assert!(path.as_path().is_relative());
                for part in path.as_path().components() {
                    let normal = matches!(part, std::path::Component::Normal(_));
                    prop_assert!(normal || path.as_path() == Path::new("."));
                }
            }
        }
    }
}
