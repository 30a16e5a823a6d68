//! The `Range` header (RFC 9110 section 14.1 and 14.2), one range of bytes.

use crate::syntax::parse_decimal;

/// What part of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// From `first` to `last`, both included and within the file.
    Part { first: u64, last: u64 },
    /// No byte of the range is in the file: 416.
    Unsatisfiable,
    /// No range, or one to be ignored: another unit, bad syntax, more than one, an empty file.
    Whole,
}

impl Range {
    /// The range that `value` asks for of a file of `len` bytes.
    ///
    /// All ranges of an empty file are ignored: it is sent whole, with 200.
    pub(super) fn parse(value: &[u8], len: u64) -> Self {
        let Some((unit, spec)) = value.split_at_checked(6) else {
            return Self::Whole;
        };
        if !unit.eq_ignore_ascii_case(b"bytes=") || len == 0 {
            return Self::Whole;
        }
        let Some(dash) = memchr::memchr(b'-', spec) else {
            return Self::Whole;
        };
        let (first, last) = (&spec[..dash], &spec[dash + 1..]);
        if first.is_empty() {
            return match position(last) {
                None => Self::Whole,
                Some(0) => Self::Unsatisfiable,
                Some(suffix) => Self::Part {
                    first: len - suffix.min(len),
                    last: len - 1,
                },
            };
        }
        let Some(first) = position(first) else {
            return Self::Whole;
        };
        let last = if last.is_empty() {
            Some(u64::MAX)
        } else {
            position(last)
        };
        match last {
            Some(last) if last < first => Self::Whole,
            Some(_) if first >= len => Self::Unsatisfiable,
            Some(last) => Self::Part {
                first,
                last: last.min(len - 1),
            },
            None => Self::Whole,
        }
    }
}

/// A position of digits only. One that does not fit is beyond the end of every file.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(parse_decimal(digits).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pf38_ranges_of_ten_bytes() {
        let part = |first, last| Range::Part { first, last };
        for (value, expected) in [
            ("bytes=-3", part(7, 9)),
            ("bytes=-0", Range::Unsatisfiable),
            ("bytes=-99", part(0, 9)),
            ("bytes=-99999999999999999999", part(0, 9)),
            ("bytes=0-", part(0, 9)),
            ("bytes=9-", part(9, 9)),
            ("bytes=10-", Range::Unsatisfiable),
            ("bytes=5-2", Range::Whole),
            ("bytes=0-0", part(0, 0)),
            ("BYTES=1-2", part(1, 2)),
            ("bytes=0-99999999999999999999", part(0, 9)),
            ("bytes=18446744073709551615-", Range::Unsatisfiable),
            ("bytes=99999999999999999999-", Range::Unsatisfiable),
            ("bytes= 0-1", Range::Whole),
            ("bytes=0 -1", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes=", Range::Whole),
            ("bytes=--1", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("lines=0-1", Range::Whole),
            ("", Range::Whole),
        ] {
            assert_eq!(Range::parse(value.as_bytes(), 10), expected, "{value}");
        }
    }

    #[test]
    fn pf38_empty_file_has_no_ranges() {
        for value in ["bytes=0-", "bytes=-1", "bytes=-0", "bytes=0-0", "bytes=1-2"] {
            assert_eq!(Range::parse(value.as_bytes(), 0), Range::Whole, "{value}");
        }
    }

    proptest! {
        #[test]
        fn pf38_a_part_is_always_within_the_file(value in "(bytes=)?[0-9]{0,21}-[0-9]{0,21}", len: u64) {
            if let Range::Part { first, last } = Range::parse(value.as_bytes(), len) {
                prop_assert!(first <= last && last < len);
            }
        }
    }
}
