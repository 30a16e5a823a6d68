//! What the measuring programs share: arguments, a clock, a random sequence, a median.
//!
//! The programs take the arguments and print the lines of a side-by-side driver, so that they can
//! stand beside programs written on other loops: `disp` (event dispatch), `timer` (timers), `post`
//! (cross-thread posts), `hello` (a fixed HTTP answer),
//! `raw_proactor` (the same, by the proactor alone). `ring` compares what a ring can do.

#![forbid(unsafe_code)]

use windlass_sys::clock::monotonic_ns;

/// The number that follows `name` on the command line, or `default`.
#[must_use]
pub fn arg_num(name: &str, default: u64) -> u64 {
    arg_text(name)
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// What follows `name` on the command line.
#[must_use]
pub fn arg_text(name: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != name).nth(1)
}

/// Whether `name` is on the command line.
#[must_use]
pub fn arg_flag(name: &str) -> bool {
    std::env::args().any(|arg| arg == name)
}

/// The sequence xorshift64*, the same in each program of the driver.
#[derive(Debug)]
pub struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(88_172_645_463_325_252)
    }
}

impl Random {
    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(2_685_821_657_736_338_717)
    }
}

/// The middle value.
#[must_use]
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds per item since `start_ns`.
#[must_use]
pub fn ns_each(start_ns: u64, count: u64) -> f64 {
    (monotonic_ns() - start_ns) as f64 / count as f64
}
