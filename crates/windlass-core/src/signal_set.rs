//! A set of signal numbers.

/// Signal numbers 1 to 64 as bits of one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// The largest signal number that fits.
    pub const NUMBER_MAX: i32 = 64;

    /// Whether `number` can be in a set.
    #[must_use]
    pub const fn is_valid(number: i32) -> bool {
        number >= 1 && number <= Self::NUMBER_MAX
    }

    /// Puts `number` in. Numbers that are not valid are ignored.
    pub fn add(&mut self, number: i32) {
        if Self::is_valid(number) {
            self.0 |= 1 << (number - 1);
        }
    }

    /// Takes `number` out.
    pub fn remove(&mut self, number: i32) {
        if Self::is_valid(number) {
            self.0 &= !(1 << (number - 1));
        }
    }

    /// Whether `number` is in it.
    #[must_use]
    pub const fn contains(self, number: i32) -> bool {
        Self::is_valid(number) && self.0 >> (number - 1) & 1 == 1
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers in it, ascending.
    pub fn iter(self) -> impl Iterator<Item = i32> {
        (1..=Self::NUMBER_MAX).filter(move |&number| self.contains(number))
    }
}
