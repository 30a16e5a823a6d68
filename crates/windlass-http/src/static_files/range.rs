//! The `Range` header (RFC 9110 section 14): which bytes of a file to send.
//!
//! Ranges that overlap or touch are made one, at the place of the first of them: so no set of
//! ranges asks for more than the file has. More than [`RANGES_MAX`] are ignored.

use crate::syntax::{parse_decimal, trim_blanks};

/// The most ranges of one request.
pub(super) const RANGES_MAX: usize = 16;

/// What of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack while one request is answered"
)]
pub(super) enum Ranges {
    /// These, of which there is at least one.
    Parts(Parts),
    /// No byte of any range is in the file: 416.
    Unsatisfiable,
    /// No range, or some to be ignored: another unit, bad syntax, too many, an empty file.
    Whole,
}

/// From `first` to `last`, both included and within the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Part {
    pub(super) fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// Whether the two have a byte in common, or none between them.
    fn joins(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// Parts of a file with at least a byte between any two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    parts: [Part; RANGES_MAX],
    count: usize,
}

impl Parts {
    pub(super) fn as_slice(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    /// Takes in one of at most [`RANGES_MAX`] parts.
    fn push(&mut self, mut part: Part) {
        let mut place = self.count;
        let mut kept = 0;
        for at in 0..self.count {
            let other = self.parts[at];
            // What is passed by once may join the part after it has grown, but then what it grew
            // by would have joined it before.
            if part.joins(other) {
                part.first = part.first.min(other.first);
                part.last = part.last.max(other.last);
                if place == self.count {
                    place = kept;
                    kept += 1;
                }
            } else {
                self.parts[kept] = other;
                kept += 1;
            }
        }
        if place == self.count {
            place = kept;
            kept += 1;
        }
        self.parts[place] = part;
        self.count = kept;
    }
}

impl Ranges {
    /// The ranges that `value` asks for of a file of `len` bytes.
    ///
    /// All ranges of an empty file are ignored: it is sent whole, with 200.
    pub(super) fn parse(value: &[u8], len: u64) -> Self {
        let Some((unit, set)) = value.split_at_checked(6) else {
            return Self::Whole;
        };
        let blank_first = matches!(set.first(), Some(b' ' | b'\t'));
        if !unit.eq_ignore_ascii_case(b"bytes=") || len == 0 || blank_first {
            return Self::Whole;
        }
        let mut parts = Parts::default();
        let mut specs_count = 0;
        // Empty members of a list are passed over (RFC 9110 section 5.6.1).
        let specs = set.split(|b| *b == b',').map(trim_blanks);
        for spec in specs.filter(|spec| !spec.is_empty()) {
            specs_count += 1;
            let Some(part) = Spec::parse(spec).filter(|_| specs_count <= RANGES_MAX) else {
                return Self::Whole;
            };
            if let Some(part) = part.of(len) {
                parts.push(part);
            }
        }
        match (specs_count, parts.count) {
            (0, _) => Self::Whole,
            (_, 0) => Self::Unsatisfiable,
            _ => Self::Parts(parts),
        }
    }
}

/// One range as it is asked for.
#[derive(Clone, Copy, Debug)]
enum Spec {
    From(u64),
    Span(u64, u64),
    Suffix(u64),
}

impl Spec {
    fn parse(spec: &[u8]) -> Option<Self> {
        let (first, last) = spec.split_at(memchr::memchr(b'-', spec)?);
        match (first, &last[1..]) {
            ([], suffix) => position(suffix).map(Self::Suffix),
            (first, []) => position(first).map(Self::From),
            (first, last) => {
                let (first, last) = (position(first)?, position(last)?);
                (first <= last).then_some(Self::Span(first, last))
            }
        }
    }

    /// What of it a file of `len` bytes has; `len` is not zero.
    fn of(self, len: u64) -> Option<Part> {
        let (first, last) = match self {
            Self::Suffix(0) => return None,
            Self::Suffix(suffix) => (len - suffix.min(len), len - 1),
            Self::From(first) => (first, len - 1),
            Self::Span(first, last) => (first, last.min(len - 1)),
        };
        (first < len).then_some(Part { first, last })
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

    /// The bytes of each part of a file, `None` for the whole.
    fn parts(value: &str, len: u64) -> Option<Vec<(u64, u64)>> {
        match Ranges::parse(value.as_bytes(), len) {
            Ranges::Whole => None,
            Ranges::Unsatisfiable => Some(Vec::new()),
            Ranges::Parts(parts) => Some(
                parts
                    .as_slice()
                    .iter()
                    .map(|part| (part.first, part.last))
                    .collect(),
            ),
        }
    }

    #[test]
    fn pf38_ranges_of_ten_bytes() {
        for (value, expected) in [
            ("bytes=-3", Some(vec![(7, 9)])),
            ("bytes=-0", Some(vec![])),
            ("bytes=-99", Some(vec![(0, 9)])),
            ("bytes=-99999999999999999999", Some(vec![(0, 9)])),
            ("bytes=0-", Some(vec![(0, 9)])),
            ("bytes=9-", Some(vec![(9, 9)])),
            ("bytes=10-", Some(vec![])),
            ("bytes=5-2", None),
            ("bytes=0-0", Some(vec![(0, 0)])),
            ("BYTES=1-2", Some(vec![(1, 2)])),
            ("bytes=0-99999999999999999999", Some(vec![(0, 9)])),
            ("bytes=18446744073709551615-", Some(vec![])),
            ("bytes=99999999999999999999-", Some(vec![])),
            ("bytes= 0-1", None),
            ("bytes=0 -1", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes=,", None),
            ("bytes=--1", None),
            ("bytes=+1-2", None),
            ("lines=0-1", None),
            ("", None),
        ] {
            assert_eq!(parts(value, 10), expected, "{value}");
        }
    }

    #[test]
    fn pf38_sets_of_ranges_of_ten_bytes() {
        for (value, expected) in [
            ("bytes=0-1,3-4", Some(vec![(0, 1), (3, 4)])),
            ("bytes=3-4 , 0-1", Some(vec![(3, 4), (0, 1)])),
            ("bytes=,0-1,,3-4,", Some(vec![(0, 1), (3, 4)])),
            ("bytes=0-0,-1", Some(vec![(0, 0), (9, 9)])),
            ("bytes=0-1,2-3", Some(vec![(0, 3)])),
            ("bytes=0-4,2-6", Some(vec![(0, 6)])),
            ("bytes=8-9,0-1,3-4,2-2", Some(vec![(8, 9), (0, 4)])),
            ("bytes=0-1,8-9,0-", Some(vec![(0, 9)])),
            ("bytes=0-1,20-30", Some(vec![(0, 1)])),
            ("bytes=20-30,-0", Some(vec![])),
            ("bytes=0-1,5-2", None),
            ("bytes=0-1,x", None),
        ] {
            assert_eq!(parts(value, 10), expected, "{value}");
        }
        let set = |count: u64| {
            let specs: Vec<_> = (0..count).map(|n| format!("{0}-{0}", n * 2)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert_eq!(parts(&set(16), 100).map(|parts| parts.len()), Some(16));
        assert_eq!(parts(&set(17), 100), None);
    }

    #[test]
    fn pf38_empty_file_has_no_ranges() {
        for value in ["bytes=0-", "bytes=-1", "bytes=-0", "bytes=0-0", "bytes=1-2"] {
            assert_eq!(parts(value, 0), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn pf38_parts_are_always_within_the_file(
            value in "(bytes=)?([0-9]{0,21}-[0-9]{0,21},? ?){1,20}", len: u64,
        ) {
            for (first, last) in parts(&value, len).unwrap_or_default() {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn pf38_parts_hold_the_bytes_asked_for_once_each(
            spans in proptest::collection::vec((0_u64..40, 0_u64..12), 1..16), len in 1_u64..40,
        ) {
            let specs: Vec<_> = spans.iter().map(|(at, n)| format!("{at}-{}", at + n)).collect();
            let found = parts(&format!("bytes={}", specs.join(",")), len).expect("valid");
            for byte in 0..len {
                let asked = spans.iter().any(|(at, n)| (*at..=at + n).contains(&byte));
                let given = found.iter().filter(|(a, b)| (*a..=*b).contains(&byte)).count();
                prop_assert_eq!(given, usize::from(asked));
            }
            for (n, a) in found.iter().enumerate() {
                prop_assert!(found[n + 1..].iter().all(|b| a.1 + 1 < b.0 || b.1 + 1 < a.0));
            }
        }
    }
}
