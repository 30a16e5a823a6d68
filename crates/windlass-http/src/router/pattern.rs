//! Patterns and paths in one normal form, and the values of parameters.
//!
//! In the normal form, escapes stand for bytes that are not printable ASCII, for slashes and for
//! percent signs, with capital digits; all else stands for itself (after RFC 3986 section 6.2.2).
//! So two paths whose segments decode to the same have the same normal form, and no others.

use std::ops::Range;

use super::error::RouteError;

/// The most parameters of one pattern.
pub(super) const PARAMS_MAX: usize = 8;

/// A pattern that was checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The pattern with its text in normal form.
    pub(super) normal: String,
    /// Whether its last parameter takes the rest of a path.
    pub(super) takes_rest: bool,
}

impl Pattern {
    pub(super) fn parse(declared: &str) -> Result<Self, RouteError> {
        let malformed = |why| RouteError::malformed(declared, why);
        if !declared.starts_with('/') {
            return Err(malformed("it does not begin with a slash"));
        }
        let mut normal = String::with_capacity(declared.len());
        let mut names: Vec<&str> = Vec::new();
        let mut takes_rest = false;
        let mut rest = declared;
        while let Some(first) = rest.chars().next() {
            if let Some(brace) = ["{{", "}}"].into_iter().find(|b| rest.starts_with(b)) {
                normal.push_str(brace);
                rest = &rest[2..];
            } else if let Some(inner) = rest.strip_prefix('{') {
                let Some((name, behind)) = inner.split_once('}') else {
                    return Err(malformed("a brace is not closed"));
                };
                let plain = name.strip_prefix('*').unwrap_or(name);
                if !is_name(plain) {
                    return Err(malformed("a parameter has a name that is not a word"));
                }
                if names.contains(&plain) {
                    return Err(malformed("two parameters have the same name"));
                }
                takes_rest = plain.len() < name.len();
                if takes_rest && !behind.is_empty() {
                    return Err(malformed("there is more behind what takes the rest"));
                }
                names.push(plain);
                normal.push_str(&rest[..name.len() + 2]);
                rest = behind;
            } else if matches!(first, '}' | '?' | '#') {
                return Err(malformed("it has a character that no path has"));
            } else {
                let len = first.len_utf8();
                for byte in rest[..len].bytes() {
                    // A slash of a pattern is one between segments.
                    push_normal(byte, &mut normal, byte == b'/');
                }
                rest = &rest[len..];
            }
        }
        if names.len() > PARAMS_MAX {
            return Err(malformed("it has more than 8 parameters"));
        }
        Ok(Self { normal, takes_rest })
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// An escape that is not two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadEscape;

/// Writes the normal form of `path`, which is printable ASCII.
pub(super) fn normalize(path: &str, normal: &mut String) -> Result<(), BadEscape> {
    normal.clear();
    unescape(path, |byte, escaped| push_normal(byte, normal, !escaped))
}

/// `is_plain`: it stands for itself whatever it is, but for what is not printable.
fn push_normal(byte: u8, normal: &mut String, is_plain: bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte.is_ascii_graphic() && byte != b'%' && (is_plain || byte != b'/') {
        normal.push(char::from(byte));
    } else {
        let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
        normal.extend(['%', digit(byte >> 4), digit(byte)]);
    }
}

/// Calls `each` with each byte of `text`, decoded, and whether it was escaped.
fn unescape(text: &str, mut each: impl FnMut(u8, bool)) -> Result<(), BadEscape> {
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = match (*byte, tail) {
            (b'%', [high, low, tail @ ..]) => {
                each(digit(*high)? << 4 | digit(*low)?, true);
                tail
            }
            (b'%', _) => return Err(BadEscape),
            (byte, tail) => {
                each(byte, false);
                tail
            }
        };
    }
    Ok(())
}

fn digit(byte: u8) -> Result<u8, BadEscape> {
    let digit = char::from(byte).to_digit(16).ok_or(BadEscape)?;
    Ok(digit as u8)
}

/// What of `path` is behind its first `segments` segments; a slash if that is nothing.
pub(super) fn skip_segments(path: &str, segments: usize) -> &str {
    memchr::memchr_iter(b'/', path.as_bytes())
        .nth(segments)
        .map_or("/", |at| &path[at..])
}

/// Room for the values of parameters that have escapes.
#[derive(Debug, Default)]
pub(super) struct DecodedParams(String);

/// A value that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotUtf8;

impl DecodedParams {
    /// Decodes the values in `params`, at most [`PARAMS_MAX`] that are in normal form.
    pub(super) fn decode<'a>(
        &'a mut self,
        params: &mut [(&'a str, &'a str)],
    ) -> Result<(), NotUtf8> {
        let mut ranges: [Range<usize>; PARAMS_MAX] = Default::default();
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.clear();
        for ((_, value), range) in params.iter().zip(&mut ranges) {
            if value.contains('%') {
                let start = bytes.len();
                unescape(value, |byte, _| bytes.push(byte)).map_err(|BadEscape| NotUtf8)?;
                *range = start..bytes.len();
                // Each for itself: halves of a character in two values are no character.
                str::from_utf8(&bytes[start..]).map_err(|_| NotUtf8)?;
            }
        }
        self.0 = String::from_utf8(bytes).map_err(|_| NotUtf8)?;
        for ((_, value), range) in params.iter_mut().zip(ranges) {
            if !range.is_empty() {
                *value = &self.0[range];
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(path: &str) -> Result<String, BadEscape> {
        let mut normal = "left over".to_owned();
        normalize(path, &mut normal).map(|()| normal)
    }

    #[test]
    fn normal_form_decodes_all_but_what_would_change_the_meaning() {
        for (path, expected) in [
            ("/a%62c", "/abc"),
            ("/a%2fb", "/a%2Fb"),
            ("/%2541", "/%2541"),
            ("/%25%34%31", "/%2541"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a%20b%00", "/a%20b%00"),
            ("/%7Bid%7d", "/{id}"),
        ] {
            assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
        }
        for bad in ["/%", "/%4", "/%zz", "/%+1", "/%4%31"] {
            assert_eq!(normal(bad), Err(BadEscape), "{bad}");
        }
    }

    #[test]
    fn pattern_text_is_normal_and_parameters_stay() {
        let parse = |text: &str| Pattern::parse(text).map(|pattern| pattern.normal);
        assert_eq!(parse("/café/{id}").as_deref(), Ok("/caf%C3%A9/{id}"));
        assert_eq!(parse("/50% off/{{x}}").as_deref(), Ok("/50%25%20off/{{x}}"));
        assert!(Pattern::parse("/{*rest}").expect("valid").takes_rest);
        for bad in [
            "",
            "a",
            "{a}",
            "/{",
            "/}",
            "/{}",
            "/{*}",
            "/{a}/{a}",
            "/{a b}",
            "/a?b",
            "/a#b",
            "/{*a}/b",
            "/{a/b}",
            "/{?}",
            "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn segments_are_skipped_up_to_the_slash_behind() {
        for (path, segments, rest) in [
            ("/a/b/c", 1, "/b/c"),
            ("/a/b/c", 0, "/a/b/c"),
            ("/a", 1, "/"),
            ("/a/", 1, "/"),
            ("/a//b", 1, "//b"),
        ] {
            assert_eq!(skip_segments(path, segments), rest, "{path} {segments}");
        }
    }

    #[test]
    fn halves_of_a_character_are_not_joined() {
        let mut params = DecodedParams::default();
        assert!(params.decode(&mut [("a", "%C3"), ("b", "%A9")]).is_err());
        let mut whole = [("a", "x"), ("b", "%C3%A9")];
        params.decode(&mut whole).expect("UTF-8");
        assert_eq!(whole, [("a", "x"), ("b", "é")]);
    }

    proptest! {
        #[test]
        fn paths_have_the_same_normal_form_if_and_only_if_their_segments_decode_alike(
            one in "/[a/]{0,4}(%2[fF]|%61|%25|%C3|a|/|A){0,4}",
            other in "/[a/]{0,4}(%2[fF]|%61|%25|%C3|a|/|A){0,4}",
        ) {
            let segments = |path: &str| -> Vec<Vec<u8>> {
                path.split('/').map(|segment| {
                    let mut bytes = Vec::new();
                    unescape(segment, |byte, _| bytes.push(byte)).expect("valid");
                    bytes
                }).collect()
            };
            prop_assert_eq!(normal(&one) == normal(&other), segments(&one) == segments(&other));
        }

        #[test]
        fn a_value_is_decoded_once(value in "\\PC{1,12}") {
            let mut escaped = String::new();
            value.bytes().for_each(|byte| push_normal(byte, &mut escaped, false));
            let mut params = DecodedParams::default();
            let mut decoded = [("a", &*escaped)];
            prop_assert!(params.decode(&mut decoded).is_ok());
            prop_assert_eq!(decoded, [("a", &*value)]);
        }
    }
}
