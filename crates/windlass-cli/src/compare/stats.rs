//! Medians with their spread, and latencies.

use hdrhistogram::{CreationError, Histogram};
use serde::Serialize;

/// The longest latency that is told from longer ones: a minute, in nanoseconds.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Latencies are right to three digits.
const DIGITS: u8 = 3;

/// The middle of what several rounds gave, and how far they were apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of at least one value, none of them NaN; else `None`.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }
}

/// An empty histogram of latencies in nanoseconds.
pub(super) fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
}

/// The values that were recorded, and how often each.
pub(super) fn to_pairs(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}

/// The histogram of several lists of [`to_pairs`].
pub(super) fn from_pairs<'a>(
    lists: impl IntoIterator<Item = &'a [(u64, u64)]>,
) -> Result<Histogram<u64>, CreationError> {
    let mut histogram = histogram()?;
    for &(value, count) in lists.into_iter().flatten() {
        histogram.saturating_record_n(value, count);
    }
    Ok(histogram)
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    // Below 2^53.
    ns as f64 / 1e9
}

/// Puts `items` into an order that `seed` decides, each order as likely (Fisher and Yates' shuffle
/// with the generator SplitMix64).
pub(super) fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let other = mixed % (last as u64 + 1);
        items.swap(last, usize::try_from(other).unwrap_or(last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_whatever_the_order() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        let expected = |median, min, max| Some(Spread { median, min, max });
        assert_eq!(spread(&[3.0, 1.0, 2.0]), expected(2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), expected(2.5, 1.0, 4.0));
        assert_eq!(spread(&[7.0]), expected(7.0, 7.0, 7.0));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn histograms_survive_the_wire_and_add_up() {
        let mut one = histogram().expect("bounds");
        for value in [100, 100, 5_000, 1_234_567] {
            one.saturating_record(value);
        }
        let pairs = to_pairs(&one);
        let sum = from_pairs([&pairs[..], &pairs[..]]).expect("bounds");
        assert_eq!(sum.len(), 8);
        for quantile in [0.1, 0.5, 0.9, 1.0] {
            let (alone, both) = (
                one.value_at_quantile(quantile),
                sum.value_at_quantile(quantile),
            );
            assert!(alone.abs_diff(both) <= alone / 1000, "{quantile}");
        }
    }

    #[test]
    fn what_takes_longer_than_a_minute_is_kept_at_the_end() {
        let mut one = histogram().expect("bounds");
        one.saturating_record(u64::MAX);
        assert!(seconds(one.max()) >= 60.0);
    }

    #[test]
    fn a_seed_decides_the_order() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..10).collect();
            shuffle(&mut items, seed);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        shuffle::<u32>(&mut [], 1);
    }
}
