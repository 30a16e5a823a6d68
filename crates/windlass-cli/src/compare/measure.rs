//! One run: a server, a load, and what the server used for it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use windlass_sys::limits::descriptor_limit;

use super::child::{Role, RunError};
use super::interrupt::Interrupt;
use super::machine::{Pinning, kib_of};
use super::model::Model;
use super::syscalls::Counter;
use super::wire::{FIGURES, GO, LoadResult, LoadSays, ServerSays, UsageFigures, span};
use super::workload::Workload;

/// How long a process may take for its next line, beyond what it was told to do.
const LINE_LIMIT: Duration = Duration::from_secs(15);
/// Descriptors that are not for idle connections.
const DESCRIPTORS_LEFT: u64 = 512;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) model: Model,
    pub(super) workload: Workload,
    /// Requests per second; `None`: a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) duration: Duration,
}

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) connections: u32,
    pub(super) idle: u32,
    pub(super) threads: Option<u32>,
    pub(super) pinning: &'a Pinning,
    /// The files that are served.
    pub(super) dir: &'a Path,
    pub(super) scratch: &'a Path,
    pub(super) compute_steps: u64,
    pub(super) interrupt: &'a Interrupt,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) load: LoadResult,
    pub(super) used: UsageFigures,
    pub(super) process: ProcessFigures,
    /// How many processors other programs kept busy meanwhile, or the hypervisor.
    pub(super) others_busy: f64,
}

/// What the kernel says of the server while all connections are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessFigures {
    pub(super) rss_peak_bytes: u64,
    pub(super) pss_bytes: u64,
    pub(super) threads: u64,
}

/// A server and its load, ready to be measured.
struct Pair {
    server: Role,
    load: Role,
}

impl Bench<'_> {
    /// Measures.
    pub(super) fn measure(&self, run: &Run) -> Result<Sample, RunError> {
        let mut pair = self.start(run)?;
        let before = pair.figures()?;
        let (busy_before, begun) = (busy_ticks(), Instant::now());
        let load = pair.go(run)?;
        let (busy, elapsed) = (busy_ticks().saturating_sub(busy_before), begun.elapsed());
        let used = pair.figures()?.since(before);
        let process = ProcessFigures::of(pair.server.pid())?;
        let busy_s = busy as f64 / clock_ticks_per_second() as f64;
        let others_s = (busy_s - used.cpu_s() - load.load_cpu_s).max(0.0);
        Ok(Sample {
            others_busy: others_s / elapsed.as_secs_f64(),
            load,
            used,
            process,
        })
    }

    /// Counts the system calls for each request.
    pub(super) fn count_calls(&self, run: &Run, counter: &Counter) -> Result<f64, RunError> {
        let mut pair = self.start(run)?;
        let counting = counter
            .start(pair.server.pid(), self.scratch, self.interrupt)
            .map_err(RunError::Failed)?;
        let load = pair.go(run)?;
        let count = counting.end().map_err(RunError::Failed)?;
        match load.answered {
            0 => Err(RunError::Failed("no request was answered".into())),
            answered => Ok(count as f64 / answered as f64),
        }
    }

    fn start(&self, run: &Run) -> Result<Pair, RunError> {
        if self.interrupt.is_set() {
            return Err(RunError::Interrupted);
        }
        let mut server = Role::start(
            "compare-server",
            &self.server_arguments(run),
            self.interrupt,
        )?;
        let addr = match server.hear(LINE_LIMIT)? {
            ServerSays::Listening(addr) => addr.to_string(),
            ServerSays::Failed(why) => return Err(RunError::Unavailable(why)),
        };
        let arguments = self.load_arguments(run, addr);
        let mut load = Role::start("compare-load", &arguments, self.interrupt)?;
        match load.hear(LINE_LIMIT + warm_up(run.duration))? {
            LoadSays::Ready => Ok(Pair { server, load }),
            LoadSays::Failed(why) => Err(RunError::Failed(why)),
            LoadSays::Result(_) => Err(RunError::Failed("a result before it was asked for".into())),
        }
    }

    fn server_arguments(&self, run: &Run) -> Vec<String> {
        let mut arguments = vec![
            format!("--model={}", run.model),
            format!("--workload={}", run.workload),
            format!("--dir={}", self.dir.display()),
            format!("--compute-steps={}", self.compute_steps),
        ];
        arguments.extend(self.threads.map(|threads| format!("--threads={threads}")));
        arguments.extend(cpus(&self.pinning.server));
        arguments
    }

    fn load_arguments(&self, run: &Run, addr: String) -> Vec<String> {
        let mut arguments = vec![
            format!("--addr={addr}"),
            format!("--workload={}", run.workload),
            format!("--connections={}", self.connections),
            format!("--idle={}", self.idle),
            format!("--warm-up={}", span(warm_up(run.duration))),
            format!("--duration={}", span(run.duration)),
        ];
        arguments.extend(run.rate.map(|rate| format!("--rate={rate}")));
        arguments.extend(cpus(&self.pinning.load));
        arguments
    }
}

fn cpus(cpus: &[usize]) -> Option<String> {
    let numbers: Vec<_> = cpus.iter().map(usize::to_string).collect();
    (!cpus.is_empty()).then(|| format!("--cpus={}", numbers.join(",")))
}

/// How long requests are made before anything is measured.
fn warm_up(duration: Duration) -> Duration {
    (duration / 4).clamp(Duration::from_millis(50), Duration::from_millis(500))
}

/// As many idle connections as there are descriptors for.
pub(super) fn idle_possible(asked: u32, connections: u32) -> u32 {
    let hard = descriptor_limit().hard.unwrap_or(u64::MAX);
    let left = hard.saturating_sub(DESCRIPTORS_LEFT + u64::from(connections));
    u32::try_from(left).map_or(asked, |left| asked.min(left))
}

/// For how long all processors were busy, together, in ticks: the first line of /proc/stat, see
/// proc(5). Zero if it can't be read.
fn busy_ticks() -> u64 {
    busy_of(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn busy_of(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields = line.unwrap_or_default().split_whitespace();
    let ticks = fields.map(|ticks| ticks.parse::<u64>().unwrap_or(0));
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    let busy = ticks.take(8).enumerate();
    busy.filter(|(at, _)| !matches!(at, 3 | 4))
        .map(|(_, ticks)| ticks)
        .sum()
}

impl Pair {
    fn figures(&mut self) -> Result<UsageFigures, RunError> {
        self.server.tell(FIGURES)?;
        self.server.hear(LINE_LIMIT)
    }

    fn go(&mut self, run: &Run) -> Result<LoadResult, RunError> {
        self.load.tell(GO)?;
        match self.load.hear(LINE_LIMIT + run.duration)? {
            LoadSays::Result(result) => Ok(*result),
            LoadSays::Failed(why) => Err(RunError::Failed(why)),
            LoadSays::Ready => Err(RunError::Failed("the load is ready twice".into())),
        }
    }
}

impl ProcessFigures {
    fn of(pid: u32) -> Result<Self, RunError> {
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{pid}/{name}"))
                .map_err(|error| RunError::Failed(format!("/proc/{pid}/{name}: {error}")))
        };
        // Of kernels that have no smaps_rollup nothing is known, which is zero.
        let rollup = read("smaps_rollup").unwrap_or_default();
        Ok(Self::parse(&read("status")?, &rollup))
    }

    fn parse(status: &str, rollup: &str) -> Self {
        Self {
            rss_peak_bytes: kib_of(status, "VmHWM").unwrap_or(0) * 1024,
            pss_bytes: kib_of(rollup, "Pss").unwrap_or(0) * 1024,
            // Without the one that answers the parent.
            threads: kib_of(status, "Threads").unwrap_or(1).saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_process_are_read() {
        let status = "Name:\twindlass\nVmHWM:\t    2048 kB\nThreads:\t5\n";
        let rollup = "00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss: 3 kB\nPss: 2 kB\n";
        let expected = ProcessFigures {
            rss_peak_bytes: 2048 * 1024,
            pss_bytes: 2048,
            threads: 4,
        };
        assert_eq!(ProcessFigures::parse(status, rollup), expected);
    }

    #[test]
    fn waiting_is_not_being_busy() {
        let stat = "cpu  1 2 4 1000 1000 8 16 32 64 128\ncpu0 9 9 9 9 9 9 9 9 9 9\n";
        assert_eq!(busy_of(stat), 63);
        assert_eq!(busy_of(""), 0);
        assert!(busy_ticks() > 0);
    }

    #[test]
    fn idle_connections_leave_descriptors_for_others() {
        let possible = idle_possible(u32::MAX, 64);
        let hard = descriptor_limit().hard.unwrap_or(u64::MAX);
        assert!(u64::from(possible) + 64 < hard);
        assert_eq!(idle_possible(0, 64), 0);
    }
}
