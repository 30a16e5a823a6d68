//! The machine: what it is, and who runs on which of its processors.

use std::fs;
use std::io;
use std::num::NonZeroU64;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use serde::Serialize;
use windlass::event_loop::{EventLoop, LoopConfig};
use windlass::proactor::{DriverChoice, Fallback};

use super::congestion;

/// What the figures were measured on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
    /// TCP's congestion control in the runs.
    pub(super) congestion_control: String,
    pub(super) pinning: Pinning,
    /// Why there is no io_uring: `uring-proactor` has the emulated driver then.
    pub(super) uring_missing: Option<String>,
}

impl Machine {
    pub(super) fn look() -> Self {
        let release = rustix::system::uname();
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let processors = usable();
        Self {
            cpu: value_of(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: processors.len().max(1),
            memory_bytes: kib_of(&memory, "MemTotal").unwrap_or(0) * 1024,
            kernel: format!(
                "{} {}",
                release.sysname().to_string_lossy(),
                release.release().to_string_lossy()
            ),
            congestion_control: congestion::in_use().unwrap_or_else(|_| "unknown".to_owned()),
            pinning: Pinning::of(&processors),
            uring_missing: uring_missing(),
        }
    }
}

/// Why a server's loop would not get io_uring, if it would not.
fn uring_missing() -> Option<String> {
    let mut config = LoopConfig::default();
    config.proactor.driver = DriverChoice::Automatic;
    match EventLoop::<()>::with_config(config) {
        Ok(event_loop) => event_loop.proactor_fallback().map(Fallback::to_string),
        // Then no server starts either, which says why.
        Err(_) => None,
    }
}

/// Which processors server and load generator stay on; empty where there is only one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pinning {
    pub(super) server: Vec<usize>,
    pub(super) load: Vec<usize>,
}

impl Pinning {
    /// The load generator, which is one thread, has the last; the server all others.
    fn of(processors: &[usize]) -> Self {
        match processors {
            [] | [_] => Self::default(),
            [server @ .., load] => Self {
                server: server.to_vec(),
                load: vec![*load],
            },
        }
    }
}

/// The processors that this process may use.
fn usable() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Keeps the calling thread, and those it starts later, on these processors; none: where it is.
pub(super) fn stay_on(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// Has the calling thread woken as exactly as the kernel can, not up to 50 µs later.
pub(super) fn be_punctual() {
    // Refused, waits are late; the figure of late requests shows it.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// The value behind `name` and a colon.
pub(super) fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim())
    })
}

/// The number of a line such as `VmHWM:     1234 kB`, without its unit.
pub(super) fn kib_of(text: &str, name: &str) -> Option<u64> {
    value_of(text, name)?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_has_a_processor_of_its_own_if_there_are_two() {
        let pinning = |server: &[usize], load: &[usize]| Pinning {
            server: server.to_vec(),
            load: load.to_vec(),
        };
        assert_eq!(Pinning::of(&[0]), pinning(&[], &[]));
        assert_eq!(Pinning::of(&[0, 1]), pinning(&[0], &[1]));
        assert_eq!(Pinning::of(&[2, 3, 5]), pinning(&[2, 3], &[5]));
    }

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "VmHWM:\t  12 kB\nVmHWM2: 13 kB\nmodel name\t: A CPU: fast\n";
        assert_eq!(kib_of(text, "VmHWM"), Some(12));
        assert_eq!(value_of(text, "model name"), Some("A CPU: fast"));
        assert_eq!(value_of(text, "model"), None);
    }

    #[test]
    fn this_machine_is_known() {
        let machine = Machine::look();
        assert!(machine.cores >= 1 && machine.kernel.starts_with("Linux "));
        assert!(machine.memory_bytes > 0);
    }
}
