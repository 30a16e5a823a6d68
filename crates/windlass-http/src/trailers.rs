//! Trailer fields of a chunked body (RFC 9110 section 6.5), kept apart from the headers.

use crate::syntax::trim_blanks;

/// The trailer fields of a body, in order. Never to be merged into the headers: a client may put
/// any name there, `Authorization` and `Host` too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailers {
    /// Checked lines, each with a line feed.
    lines: Vec<u8>,
}

impl Trailers {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Names as they came and values without blanks around them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines.split(|b| *b == b'\n').filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let name = str::from_utf8(&line[..colon]).ok()?;
            Some((name, trim_blanks(&line[colon + 1..])))
        })
    }

    /// The value of the first field called `name`, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Appends a line, without its end, of a token, a colon and a valid value.
    pub(crate) fn push_line(&mut self, line: &[u8]) {
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_case() {
        let mut trailers = Trailers::default();
        assert!(trailers.is_empty() && trailers.get("a").is_none());
        trailers.push_line(b"Sum:\t 1:2 ");
        trailers.push_line(b"B:");
        assert_eq!(trailers.get("sum"), Some(&b"1:2"[..]));
        assert_eq!(trailers.get("b"), Some(&b""[..]));
        assert_eq!(trailers.iter().count(), 2);
    }
}
