//! Proactive negotiation (RFC 9110 section 12): lists whose members have weights, and media types.

use crate::request::Request;
use crate::syntax::{list_members, trim_blanks};

/// A quality value in thousandths (RFC 9110 section 12.4.2): 1000 is best, 0 is refused.
pub(crate) type Weight = u16;

pub(crate) const WEIGHT_MAX: Weight = 1000;

/// The members of a list with their weights, all parameters but `q` left out. A member whose
/// weight is malformed is skipped: what it wishes for cannot be known.
pub(crate) fn weighted_members(value: &[u8]) -> impl Iterator<Item = (&[u8], Weight)> {
    list_members(value).filter_map(|member| {
        let mut parts = member.split(|b| *b == b';').map(trim_blanks);
        let name = parts.next()?;
        let weight = parts.find_map(|part| match part {
            [b'q' | b'Q', b'=', value @ ..] => Some(parse_weight(value)),
            _ => None,
        });
        Some((name, weight.unwrap_or(Some(WEIGHT_MAX))?))
    })
}

fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = Weight::from(*whole - b'0') * WEIGHT_MAX;
    for (digit, unit) in decimals.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        weight += Weight::from(*digit - b'0') * unit;
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

/// How much a client wants a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaWish {
    pub(crate) weight: Weight,
    /// The type itself is listed, not only a wildcard that covers it.
    pub(crate) by_name: bool,
}

/// What the `Accept` header says of the media type `main`/`sub`. The most specific member counts
/// (RFC 9110 section 12.5.1); parameters of media types are ignored.
pub(crate) fn media_wish(request: &Request<'_>, main: &str, sub: &str) -> MediaWish {
    let mut values = request.header_values("accept").peekable();
    if values.peek().is_none() {
        return MediaWish {
            weight: WEIGHT_MAX,
            by_name: false,
        };
    }
    let mut best = (0, 0);
    for (range, weight) in values.flat_map(weighted_members) {
        let specificity = match memchr::memchr(b'/', range).map(|at| range.split_at(at)) {
            Some((b"*", b"/*")) => 1,
            Some((found, b"/*")) if found.eq_ignore_ascii_case(main.as_bytes()) => 2,
            Some((found, rest))
                if found.eq_ignore_ascii_case(main.as_bytes())
                    && rest[1..].eq_ignore_ascii_case(sub.as_bytes()) =>
            {
                3
            }
            _ => continue,
        };
        best = best.max((specificity, weight));
    }
    MediaWish {
        weight: best.1,
        by_name: best.0 == 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_to_their_grammar() {
        for (value, weight) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("1.", Some(1000)),
            ("1.000", Some(1000)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.001", Some(1)),
            ("0.0001", None),
            ("1.001", None),
            ("2", None),
            ("", None),
            (".5", None),
            ("-1", None),
            ("0.x", None),
            ("1 ", None),
        ] {
            assert_eq!(parse_weight(value.as_bytes()), weight, "{value}");
        }
    }

    #[test]
    fn members_come_with_weights_and_bad_ones_are_skipped() {
        let found: Vec<_> = weighted_members(b"a, b;q=0.5 ,c; x=1; Q=0 ,, d;q=9, e;q").collect();
        let expected: [(&[u8], Weight); 4] = [(b"a", 1000), (b"b", 500), (b"c", 0), (b"e", 1000)];
        assert_eq!(found, expected);
    }
}
