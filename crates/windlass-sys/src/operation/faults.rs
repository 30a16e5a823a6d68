//! Faults of ordinary calls, made on purpose: for tests of what carries out operations by them.

/// Decides which calls and reports go wrong. None, unless it was made by [`random`](Self::random).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Faults {
    state: u64,
    /// Of so many, one goes wrong.
    one_in: u64,
    left: u64,
}

/// What happens instead of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// It is interrupted.
    Interrupted,
    /// It says that it would block.
    WouldBlock,
}

/// What happens to a report of readiness.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFault {
    /// It comes later.
    Delayed,
    /// It comes twice.
    Duplicated,
    /// One of something that is not ready comes with it.
    Spurious,
}

impl Faults {
    /// Of `one_in` calls, reports and lengths one goes wrong, at random, until `count` have. The
    /// same `seed` gives the same faults.
    #[must_use]
    pub const fn random(seed: u64, one_in: u32, count: u64) -> Self {
        Self {
            state: seed,
            one_in: if one_in == 0 { 1 } else { one_in as u64 },
            left: count,
        }
    }

    #[inline]
    pub(crate) fn next_call(&mut self) -> Option<CallFault> {
        match self.draw()? % 2 {
            0 => Some(CallFault::Interrupted),
            _ => Some(CallFault::WouldBlock),
        }
    }

    /// How much of `len` bytes a call is to move at most.
    #[inline]
    pub(crate) fn limit(&mut self, len: usize) -> usize {
        match self.draw() {
            Some(number) => (number as usize % len.max(1)).max(1),
            None => len,
        }
    }

    /// What is to happen to the next report.
    #[inline]
    pub fn next_report(&mut self) -> Option<ReportFault> {
        match self.draw()? % 3 {
            0 => Some(ReportFault::Delayed),
            1 => Some(ReportFault::Duplicated),
            _ => Some(ReportFault::Spurious),
        }
    }

    #[inline]
    fn draw(&mut self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        self.draw_some()
    }

    #[cold]
    fn draw_some(&mut self) -> Option<u64> {
        // Knuth's MMIX generator; its high bits are the good ones.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = self.state >> 33;
        if !number.is_multiple_of(self.one_in) {
            return None;
        }
        self.left -= 1;
        Some(number / self.one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_none_but_those_that_were_asked_for() {
        let mut none = Faults::default();
        assert_eq!((none.next_call(), none.limit(9)), (None, 9));
        let mut three = Faults::random(1, 1, 3);
        let found = (0..100).filter(|_| three.next_call().is_some()).count();
        assert_eq!(found, 3);
        let mut some = Faults::random(1, 4, u64::MAX);
        let found = (0..4000).filter(|_| some.next_report().is_some()).count();
        assert!((800..1200).contains(&found), "{found}");
        assert!((0..1000).all(|_| (1..=9).contains(&some.limit(9))));
    }
}
