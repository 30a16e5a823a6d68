//! Clocks: clock_gettime(2) through the C library's vDSO call, with no system call in the usual
//! case. (rustix's own look-up of the vDSO does not survive valgrind, which hides it.)

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds on `CLOCK_MONOTONIC`: never set back, stands still while the machine sleeps.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// As [`monotonic_ns`], of the last tick (`CLOCK_MONOTONIC_COARSE`): cheaper, and behind by up to
/// [`coarse_resolution_ns`].
#[inline]
#[must_use]
pub fn monotonic_coarse_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// The step of [`monotonic_coarse_ns`], clock_getres(2): 1 to 10 ms by the kernel's configuration.
#[must_use]
pub fn coarse_resolution_ns() -> u64 {
    let step = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    to_ns(step.tv_sec, step.tv_nsec)
}

/// Milliseconds since 1970-01-01 UTC (`CLOCK_REALTIME`); may jump. Zero before 1970.
#[inline]
#[must_use]
pub fn realtime_unix_ms() -> u64 {
    read_ns(libc::CLOCK_REALTIME) / 1_000_000
}

#[inline]
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a local, valid for the write of one timespec. The clocks above exist on
    // every Linux; if a filter of system calls refuses nevertheless, `now` stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    to_ns(now.tv_sec, now.tv_nsec)
}

/// Negative seconds do not come from a monotonic clock; a wrong wall-clock is clamped to zero. The
/// product fits for 584 years.
#[inline]
fn to_ns(seconds: i64, ns: i64) -> u64 {
    (seconds.max(0) as u64)
        .wrapping_mul(NS_PER_SECOND)
        .wrapping_add(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_go_back() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
    }

    #[test]
    fn coarse_time_is_behind_and_not_far() {
        let coarse = monotonic_coarse_ns();
        assert!(coarse <= monotonic_ns());
        assert!(coarse_resolution_ns() > 0);
    }

    #[test]
    fn realtime_agrees_with_std() {
        let ours = u128::from(realtime_unix_ms());
        let std = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is after 1970")
            .as_millis();
        assert!(std.abs_diff(ours) < 60_000);
    }
}
