//! The engine's time: nanoseconds on a monotonic clock that the driver reads.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since the driver's origin (584 years fit).
///
/// The engine compares and adds; it never asks for the time. Sums that would overflow stay at
/// [`Instant::FAR`], which no clock reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any clock will show: a deadline that never comes.
    pub const FAR: Self = Self(u64::MAX);

    /// `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `self + duration`, or [`Instant::FAR`] if that is out of range.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        // u128 nanoseconds above u64 are beyond FAR in any case.
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// As [`Instant::saturating_add`].
    fn add(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_clamped_not_wrapped() {
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::FAR);
        assert_eq!(Instant::FAR + Duration::from_nanos(1), Instant::FAR);
        assert_eq!(Instant::ZERO.saturating_since(Instant::FAR), Duration::ZERO);
    }
}
