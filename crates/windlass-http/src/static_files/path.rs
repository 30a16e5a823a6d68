//! From the path of a request to a path below the root.

use std::ffi::CStr;

use crate::static_files::Dotfiles;

/// A path relative to the root, and room to try neighbours of it.
///
/// No segment is empty, `.` or `..`, and none has a slash, a backslash or a NUL in it.
#[derive(Debug, Default)]
pub(super) struct LookupPath {
    /// The path; while the kernel reads it, with a suffix and a NUL behind it. That of a fallback
    /// has a slash before it, which no other has: so its key differs.
    bytes: Vec<u8>,
    /// How long the path of the request is.
    decoded_len: usize,
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

impl LookupPath {
    /// Decodes `path`, which begins with a slash: once (RFC 3986 section 2.4).
    pub(super) fn decode(&mut self, path: &str, dotfiles: Dotfiles) -> Result<(), BadPath> {
        let buf = &mut self.bytes;
        buf.clear();
        self.names_directory = path.ends_with('/');
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            if !buf.is_empty() {
                buf.push(b'/');
            }
            let start = buf.len();
            decode_segment(segment.as_bytes(), buf)?;
            let decoded = &buf[start..];
            if is_hidden(decoded, dotfiles, start == 0) || decoded.contains(&b'/') {
                return Err(BadPath::Hidden);
            }
        }
        self.decoded_len = buf.len();
        Ok(())
    }

    /// Whether the request's path ended in a slash.
    pub(super) fn names_directory(&self) -> bool {
        self.names_directory
    }

    /// Takes the file called `name` in the directory that was decoded.
    pub(super) fn enter(&mut self, name: &[u8]) {
        self.leave();
        if self.decoded_len > 0 {
            self.bytes.push(b'/');
        }
        self.bytes.extend_from_slice(name);
    }

    /// Takes what was decoded again.
    pub(super) fn leave(&mut self) {
        self.bytes.truncate(self.decoded_len);
    }

    /// Takes the file at `path` in place of what is not there.
    pub(super) fn fall_back(&mut self, path: &[u8]) {
        self.bytes.clear();
        self.bytes.push(b'/');
        self.bytes.extend_from_slice(path);
    }

    pub(super) fn is_fallback(&self) -> bool {
        self.bytes.first() == Some(&b'/')
    }

    /// What tells this path from all others.
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes
    }

    /// The path, without slashes around it; that of the root is empty.
    pub(super) fn relative(&self) -> &[u8] {
        &self.bytes[usize::from(self.is_fallback())..]
    }

    /// Calls `look_up` with the path and `suffix` behind it, for the kernel.
    pub(super) fn with_suffix<R>(&mut self, suffix: &str, look_up: impl FnOnce(&CStr) -> R) -> R {
        let len = self.bytes.len();
        let start = usize::from(self.is_fallback());
        let name = if len == 0 { "." } else { suffix };
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        let path = CStr::from_bytes_with_nul(&self.bytes[start..])
            .expect("decoding and options refuse each other NUL");
        let result = look_up(path);
        self.bytes.truncate(len);
        result
    }
}

/// Whether a segment is never served; `is_first` of the path.
pub(super) fn is_hidden(segment: &[u8], dotfiles: Dotfiles, is_first: bool) -> bool {
    match segment {
        b"." | b".." => true,
        b".well-known" if is_first => false,
        _ => dotfiles == Dotfiles::Hide && segment.starts_with(b"."),
    }
}

/// Whether `path` is one or more names with slashes between them, and none is special.
pub(super) fn is_plain(path: &[u8]) -> bool {
    path.split(|b| *b == b'/')
        .all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0))
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

    fn decode_with(path: &str, dotfiles: Dotfiles) -> Result<(String, bool), BadPath> {
        let mut decoded = LookupPath::default();
        decoded.decode(path, dotfiles)?;
        let names_directory = decoded.names_directory();
        let path = decoded.with_suffix("", |path| path.to_string_lossy().into_owned());
        Ok((path, names_directory))
    }

    fn decode(path: &str) -> Result<(String, bool), BadPath> {
        decode_with(path, Dotfiles::Hide)
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
            "/%2fetc/passwd",
            "/a%2Fb",
            "/..%2f",
            "/.well-known/../a",
        ] {
            for dotfiles in [Dotfiles::Hide, Dotfiles::Serve] {
                assert_eq!(decode_with(path, dotfiles), Err(BadPath::Hidden), "{path}");
            }
        }
        for path in [
            "/a%00", "/%00", "/a\\b", "/..%5c", "/%5C", "/%", "/%4", "/%zz", "/%+1",
        ] {
            assert_eq!(decode(path), Err(BadPath::Malformed), "{path}");
        }
    }

    #[test]
    fn dotfiles_are_hidden_unless_told_otherwise_and_well_known_is_not() {
        for path in [
            "/.git/config",
            "/a/.b",
            "/...",
            "/.well-known/.a",
            "/a/.well-known/b",
        ] {
            assert_eq!(decode(path), Err(BadPath::Hidden), "{path}");
            assert!(decode_with(path, Dotfiles::Serve).is_ok(), "{path}");
        }
        assert!(decode("/.well-known/security.txt").is_ok());
        assert_eq!(decode("/.well-known2"), Err(BadPath::Hidden));
    }

    #[test]
    fn neighbours_are_named_and_left_again() {
        let mut path = LookupPath::default();
        path.decode("/a/", Dotfiles::Hide).expect("a path");
        path.enter(b"index.html");
        assert_eq!(path.key(), b"a/index.html");
        path.with_suffix(".br", |full| assert_eq!(full, c"a/index.html.br"));
        path.enter(b"b");
        assert_eq!((path.key(), path.relative()), (&b"a/b"[..], &b"a/b"[..]));
        path.fall_back(b"app.html");
        assert_eq!(
            (path.key(), path.relative()),
            (&b"/app.html"[..], &b"app.html"[..])
        );
        path.with_suffix("", |full| assert_eq!(full, c"app.html"));
        path.decode("/", Dotfiles::Hide).expect("a path");
        path.enter(b"b");
        assert_eq!(path.key(), b"b");
    }

    proptest! {
        #[test]
        fn pf40_no_decoded_path_is_absolute_or_climbs(
            path in "/([a.%/2fFeE5cC0\\\\]|%2e|%2f|\\.\\.){0,20}",
            serves_dotfiles: bool,
        ) {
            let dotfiles = if serves_dotfiles { Dotfiles::Serve } else { Dotfiles::Hide };
            let mut decoded = LookupPath::default();
            if decoded.decode(&path, dotfiles).is_ok() {
                prop_assert!(decoded.key().is_empty() || is_plain(decoded.key()));
                prop_assert!(!decoded.is_fallback());
            }
        }
    }
}
