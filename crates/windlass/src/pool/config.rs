//! Configuration of a worker pool.

use std::thread;
use std::time::Duration;

/// How a worker pool behaves; fixed for its life.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// What its threads are named after: `<name>-1` and so on; Linux shows the first 15 bytes
    /// (default `pool`). Must not contain a NUL.
    pub name: String,
    /// The most threads, at least 1 (default: one per processor, but not less than 4, as most jobs
    /// wait more than they compute).
    pub threads: usize,
    /// How many threads are started at once and stay, 1 to `threads`; values outside are brought
    /// into the range (default 1). The others are started by a job that finds no idle thread.
    pub threads_min: usize,
    /// After how long without a job a thread beyond `threads_min` ends; `None`: never (default
    /// 10 s).
    pub idle_timeout: Option<Duration>,
    /// How many jobs may wait while all `threads` are busy (default 1024): a pool has never more
    /// than `threads + queue_max` jobs.
    pub queue_max: usize,
    /// The stack of each thread, in bytes; `None`: as std does, 2 MiB or `RUST_MIN_STACK` (default).
    /// Only what is touched costs memory.
    pub stack_bytes: Option<usize>,
}

/// The fewest threads that a default pool may grow to.
const THREADS_DEFAULT_MIN: usize = 4;

impl Default for PoolConfig {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            name: "pool".to_owned(),
            threads: processors.max(THREADS_DEFAULT_MIN),
            threads_min: 1,
            idle_timeout: Some(Duration::from_secs(10)),
            queue_max: 1024,
            stack_bytes: None,
        }
    }
}
