//! The lag histogram: how late handlers run, and with the same buckets how long they take.

use std::fmt;
use std::time::Duration;

/// Lateness in buckets of relative width 1/8, from 1 ns to 584 years.
///
/// Two kinds of lateness go into that of [`Reactor::lag`](super::Reactor::lag): of timers, from the deadline to the turn that runs them; and of
/// each turn with several handlers, from the end of the wait to the end of its last handler: no
/// event of the turn waited longer than that.
#[derive(Clone)]
pub struct LagHistogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

impl Default for LagHistogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl LagHistogram {
    #[inline]
    pub(super) fn record(&mut self, lag_ns: u64) {
        self.counts[bucket(lag_ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(lag_ns);
        self.max_ns = self.max_ns.max(lag_ns);
    }

    /// How many lags were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The lag that a share `q` of all (0 to 1) does not exceed, to 12.5 %; zero without any.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        // A count is far below 2^53.
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(at).min(self.max_ns));
            }
        }
        Duration::ZERO
    }

    /// Each bucket that has any: its upper bound and how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled.map(|(at, count)| (Duration::from_nanos(upper_bound(at)), *count))
    }
}

impl fmt::Debug for LagHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LagHistogram")
            .field("count", &self.count)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    let sub = (ns >> (exponent - SUB_BITS)) as usize % SUB;
    (exponent - SUB_BITS + 1) as usize * SUB + sub
}

/// The largest value that goes to a bucket.
fn upper_bound(at: usize) -> u64 {
    if at < SUB {
        return at as u64;
    }
    let shift = (at / SUB - 1) as u32;
    let next = (SUB + at % SUB + 1) as u128;
    u64::try_from((next << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_within_its_bucket() {
        for bits in 0..64 {
            for value in [
                1_u64 << bits,
                (1 << bits) + (1 << bits) / 3,
                u64::MAX >> bits,
            ] {
                let at = bucket(value);
                assert!(at < BUCKETS && upper_bound(at) >= value, "{value} in {at}");
                assert!(at == 0 || upper_bound(at - 1) < value, "{value} in {at}");
            }
        }
    }

    #[test]
    fn quantiles_come_from_the_counts() {
        let mut lag = LagHistogram::default();
        for us in 1..=100 {
            lag.record(us * 1000);
        }
        assert_eq!(lag.count(), 100);
        assert_eq!(lag.sum(), Duration::from_micros(5050));
        assert_eq!(lag.max(), Duration::from_micros(100));
        let median = lag.quantile(0.5).as_micros();
        assert!((50..=57).contains(&median), "{median}");
        assert_eq!(lag.quantile(1.0), Duration::from_micros(100));
        assert_eq!(LagHistogram::default().quantile(0.9), Duration::ZERO);
    }
}
