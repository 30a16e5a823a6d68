//! Time-outs as the kernel takes them.

use std::time::Duration;

// epoll_pwait2 and pselect6 are called directly and take the kernel's own layout, two 64-bit words;
// where the C library's is another these calls would read beyond it.
const _: () = assert!(
    size_of::<libc::timespec>() == 16 && size_of::<libc::time_t>() == 8,
    "the C library's timespec is the kernel's"
);

/// `timeout` as a `timespec`; what does not fit is clamped, and the kernel saturates on its side.
#[inline]
pub(crate) fn from_duration(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_timeout_is_clamped() {
        let ts = from_duration(Duration::MAX);
        assert_eq!((ts.tv_sec, ts.tv_nsec), (libc::time_t::MAX, 999_999_999));
    }
}
