//! What the process has used, getrusage(2) `RUSAGE_SELF`: all threads, also those that have ended.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::errno::check;

/// What the process has used since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Processor time outside of the kernel. The kernel knows the sum of both to the nanosecond,
    /// and divides it by what the ticks of its clock met.
    pub user: Duration,
    /// Processor time within the kernel.
    pub system: Duration,
    /// How often a thread gave up the processor because it had to wait.
    pub voluntary_switches: u64,
    /// How often the processor was taken from a thread that could have gone on.
    pub involuntary_switches: u64,
}

/// Asks what this process has used. Any thread may.
///
/// # Errors
///
/// None is known; a filter of system calls may refuse.
pub fn process_usage() -> io::Result<ProcessUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a local, valid for the write of one rusage; the kernel keeps no address.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    check(result)?;
    // SAFETY: `usage` was zeroed above, and a rusage is integers only, so that what the kernel left
    // as it was is a value too.
    let usage = unsafe { usage.assume_init() };
    Ok(ProcessUsage {
        user: to_duration(usage.ru_utime),
        system: to_duration(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    })
}

/// The kernel's times and counts are never negative.
fn to_duration(time: libc::timeval) -> Duration {
    Duration::from_secs(count(time.tv_sec)) + Duration::from_micros(count(time.tv_usec))
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// The sum of both kinds of time, which is exact: a clock's tick that meets the one or the other
    /// may be long in coming.
    fn used() -> Duration {
        let usage = process_usage().expect("usage");
        usage.user + usage.system
    }

    #[test]
    fn threads_that_have_ended_count() {
        let before = process_usage().expect("usage");
        let spins = thread::spawn(|| {
            let begun = used();
            while used() == begun {
                std::hint::spin_loop();
            }
        });
        spins.join().expect("no panic");
        let after = process_usage().expect("usage");
        assert!(after.user + after.system > before.user + before.system);
        // Waiting for the thread, at the least, was one.
        assert!(after.voluntary_switches >= before.voluntary_switches);
    }
}
