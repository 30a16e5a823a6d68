//! Content codings (RFC 9110 section 8.4.1), and which of them a client accepts.
//!
//! A client that sends no `Accept-Encoding` is given what is not encoded: it would have to accept
//! anything by the letter (section 12.5.3), but what asks without the header rarely decodes.

use crate::negotiation::{WEIGHT_MAX, Weight, weighted_members};
use crate::request::Request;

/// A content coding, the less wanted first where a client has no preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coding {
    /// None.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl Coding {
    pub(crate) const ALL: [Self; 4] = [Self::Identity, Self::Gzip, Self::Zstd, Self::Brotli];

    /// As in `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Brotli => "br",
        }
    }

    /// What is appended to the name of a file that is encoded so.
    pub(crate) const fn extension(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
            Self::Brotli => ".br",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        // RFC 9110 section 8.4.1.3: an old name of the same.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// The weights that a request gives to codings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedCodings {
    weights: [Weight; Coding::ALL.len()],
}

impl AcceptedCodings {
    /// What the `Accept-Encoding` header of `request` says.
    pub(crate) fn parse(request: &Request<'_>) -> Self {
        Self::of_values(request.header_values("accept-encoding"))
    }

    fn of_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut named = [None; Coding::ALL.len()];
        let mut rest = None;
        for (name, weight) in values.flat_map(weighted_members) {
            let slot = if name == b"*" {
                &mut rest
            } else if let Some(coding) = Coding::from_name(name) {
                &mut named[coding as usize]
            } else {
                continue;
            };
            // Of one that is named twice, the greater weight.
            *slot = (*slot).max(Some(weight));
        }
        let weights = Coding::ALL.map(|coding| match (named[coding as usize], rest) {
            (Some(weight), _) => weight,
            // Without a word of it, the identity is acceptable, but nothing is less wanted.
            (None, Some(0)) => 0,
            (None, _) if coding == Coding::Identity => 1,
            (None, Some(weight)) => weight,
            (None, None) => 0,
        });
        Self { weights }
    }

    /// How much `coding` is wanted; 0: not acceptable.
    pub(crate) fn weight(&self, coding: Coding) -> Weight {
        debug_assert!(self.weights[coding as usize] <= WEIGHT_MAX);
        self.weights[coding as usize]
    }

    /// The acceptable codings, best first: by weight, then Brotli, Zstandard, gzip, none.
    pub(crate) fn by_preference(&self) -> impl Iterator<Item = Coding> {
        let mut order = Coding::ALL;
        order.sort_unstable_by_key(|coding| std::cmp::Reverse((self.weight(*coding), *coding)));
        let acceptable = self.weights.iter().filter(|weight| **weight > 0).count();
        order.into_iter().take(acceptable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Coding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    fn order(value: &str) -> Vec<Coding> {
        AcceptedCodings::of_values([value.as_bytes()].into_iter())
            .by_preference()
            .collect()
    }

    #[test]
    fn codings_are_ordered_by_weight_then_by_what_packs_best() {
        for (value, expected) in [
            ("", &[Identity][..]),
            ("gzip", &[Gzip, Identity]),
            ("gzip, br, zstd", &[Brotli, Zstd, Gzip, Identity]),
            ("gzip, deflate, br", &[Brotli, Gzip, Identity]),
            ("gzip;q=1.0, br;q=0.9", &[Gzip, Brotli, Identity]),
            ("GZIP ; Q=0.5 , X-Gzip;q=0.7", &[Gzip, Identity]),
            ("gzip;q=0", &[Identity]),
            ("br;q=0.001", &[Brotli, Identity]),
            ("identity, gzip;q=0.5", &[Identity, Gzip]),
            ("identity;q=0.5, gzip", &[Gzip, Identity]),
            ("identity;q=0, gzip", &[Gzip]),
            ("identity;q=0", &[]),
            ("*;q=0", &[]),
            ("*;q=0, gzip", &[Gzip]),
            ("*;q=0, identity", &[Identity]),
            ("*", &[Brotli, Zstd, Gzip, Identity]),
            ("*;q=0.5, gzip", &[Gzip, Brotli, Zstd, Identity]),
            ("*, br;q=0", &[Zstd, Gzip, Identity]),
            ("gzip;q=2, br;q=x", &[Identity]),
            ("gzipped, brotli", &[Identity]),
        ] {
            assert_eq!(order(value), expected, "{value}");
        }
    }

    #[test]
    fn repeated_headers_are_one_list_and_none_at_all_accepts_only_the_identity() {
        let both = AcceptedCodings::of_values([&b"gzip"[..], b"br"].into_iter());
        assert!(both.by_preference().eq([Brotli, Gzip, Identity]));
        let none = AcceptedCodings::of_values([].into_iter());
        assert!(none.by_preference().eq([Identity]));
    }

    proptest! {
        #[test]
        fn the_order_falls_with_the_weights_and_holds_no_refused_coding(
            value in "((gzip|br|zstd|identity|\\*|x)( ?; ?q=(0|1|0\\.[0-9]{0,3}|x))?,? ?){0,6}"
        ) {
            let accepted = AcceptedCodings::of_values([value.as_bytes()].into_iter());
            let order: Vec<_> = accepted.by_preference().collect();
            prop_assert!(order.iter().all(|coding| accepted.weight(*coding) > 0));
            let falls = order.is_sorted_by(|a, b| {
                (accepted.weight(*a), *a) > (accepted.weight(*b), *b)
            });
            prop_assert!(falls, "the order rises");
        }

        #[test]
        fn no_value_panics(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = AcceptedCodings::of_values([&value[..]].into_iter()).by_preference().count();
        }
    }
}
