//! Inline commands: words between spaces, some of them in quotes, as a person types them.

use std::ops::Range;

/// Splits `line` into words, which are appended to `text` without their quotes; nothing if a quote
/// is not closed, or something other than a space follows one that is.
pub(super) fn split(line: &[u8], text: &mut Vec<u8>, words: &mut Vec<Range<usize>>) -> Option<()> {
    let mut rest = skip_spaces(line);
    while !rest.is_empty() {
        let start = text.len();
        rest = split_word(rest, text)?;
        words.push(start..text.len());
        rest = skip_spaces(rest);
    }
    Some(())
}

/// Spaces as the C library has them.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_space(byte));
    &line[start.unwrap_or(line.len())..]
}

/// Appends the first word; answers what is behind it.
fn split_word<'a>(mut line: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        line = match line {
            [] => return Some(&[]),
            [space, rest @ ..] if is_space(*space) => return Some(rest),
            [b'"', rest @ ..] => return end_of_quoted(double_quoted(rest, text)?),
            [b'\'', rest @ ..] => return end_of_quoted(single_quoted(rest, text)?),
            [byte, rest @ ..] => {
                text.push(*byte);
                rest
            }
        };
    }
}

/// A closing quote ends the word.
fn end_of_quoted(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [next, ..] if !is_space(*next) => None,
        _ => Some(rest),
    }
}

fn double_quoted<'a>(mut line: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        line = match line {
            [] => return None,
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                rest
            }
            [b'\\', escaped, rest @ ..] => {
                text.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                text.push(*byte);
                rest
            }
        };
    }
}

fn single_quoted<'a>(mut line: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        line = match line {
            [] => return None,
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'\'', rest @ ..] => {
                text.push(b'\'');
                rest
            }
            [byte, rest @ ..] => {
                text.push(*byte);
                rest
            }
        };
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (mut text, mut ranges) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut ranges)?;
        Some(ranges.into_iter().map(|word| text[word].to_vec()).collect())
    }

    #[test]
    fn words_and_quotes_are_split() {
        for (line, expected) in [
            (&b""[..], &[][..]),
            (b"  \t ", &[]),
            (b"set a  b", &[&b"set"[..], b"a", b"b"]),
            (b"set a \"b c\" ", &[b"set", b"a", b"b c"]),
            (b"\"\\x41\\n\\q\\x4\"", &[b"A\nqx4"]),
            (b"'a\\'b\\n'", &[b"a'b\\n"]),
            (b"\"\"", &[b""]),
            (b"ab\"cd\" e", &[b"abcd", b"e"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.to_vec()).collect();
            assert_eq!(words(line), Some(expected), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\\"", "get \"a"] {
            assert_eq!(words(line.as_bytes()), None, "{line}");
        }
    }
}
