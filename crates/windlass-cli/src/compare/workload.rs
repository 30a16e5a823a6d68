//! The workloads: what is asked for, and by whom.

use std::fmt;
use std::time::Duration;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Workload {
    Hello,
    File4k,
    File1m,
    Idle,
    Slow,
    Compute,
    Echo,
}

/// The body of the small answer.
pub(super) const HELLO_BODY: &str =
    "Hello! This body is 64 bytes long, whichever model has served it";
/// What is sent to and fro by [`Workload::Echo`], in bytes.
pub(super) const ECHO_BYTES: usize = 64;
/// One request of so many computes.
pub(super) const COMPUTE_EVERY: u64 = 200;
/// For how long, on a processor of its own.
pub(super) const COMPUTE_TIME: Duration = Duration::from_millis(5);
/// How often a slow client reads or writes, and how much.
pub(super) const SLOW_TICK: Duration = Duration::from_millis(5);
pub(super) const SLOW_READ_BYTES: usize = 16 * 1024;
pub(super) const SLOW_WRITE_BYTES: usize = 8;
/// What a slow reader's socket buffers, at most.
pub(super) const SLOW_BUFFER_BYTES: usize = 16 * 1024;

/// The files that are served: path below the root, length.
pub(super) const FILES: [(&str, u64); 3] = [
    ("4k", 4 * 1024),
    ("1m", 1024 * 1024),
    ("16m", 16 * 1024 * 1024),
];
pub(super) const COMPUTE_PATH: &str = "/compute";
pub(super) const SLOW_PATH: &str = "/16m";
pub(super) const SLOW_LEN: u64 = FILES[2].1;

impl Workload {
    pub(super) const ALL: [Self; 7] = [
        Self::Hello,
        Self::File4k,
        Self::File1m,
        Self::Idle,
        Self::Slow,
        Self::Compute,
        Self::Echo,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::File4k => "file-4k",
            Self::File1m => "file-1m",
            Self::Idle => "idle",
            Self::Slow => "slow",
            Self::Compute => "compute",
            Self::Echo => "echo",
        }
    }

    /// A heading.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Hello => "Small answers",
            Self::File4k => "Files of 4 KiB",
            Self::File1m => "Files of 1 MiB",
            Self::Idle => "Few active among many idle",
            Self::Slow => "Fast among slow clients",
            Self::Compute => "Some requests compute",
            Self::Echo => "Echo",
        }
    }

    /// What the clients do, and what to look for.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::Hello => {
                "GET of a fixed answer of 64 bytes over kept connections. Next to nothing is \
                 computed, so this is the cost of the model itself."
            }
            Self::File4k => {
                "GET of a static file of 4 KiB. The open file is cached; what is left is the \
                 model, one more system call and a copy."
            }
            Self::File1m => {
                "GET of a static file of 1 MiB, which the kernel sends from its page cache. Copying \
                 dominates: the models should differ little."
            }
            Self::Idle => {
                "The small answer for the active connections, while many more are open and silent. \
                 A good model pays for what happens, not for what is open."
            }
            Self::Slow => {
                "The small answer for fast clients, measured, while slow ones read a file of 16 MiB \
                 in sips of 16 KiB and others send their requests 8 bytes at a time. What the slow \
                 ones occupy must not be missed by the fast ones."
            }
            Self::Compute => {
                "The small answer, but one request of 200 computes for 5 ms. The latencies are those \
                 of the others: they show who has to wait for it. Where each model computes is in \
                 the table."
            }
            Self::Echo => {
                "64 bytes sent and sent back over a plain connection: no HTTP, only the model and \
                 the kernel."
            }
        }
    }

    /// What most requests ask for, and the length of the answer.
    pub(super) const fn path(self) -> (&'static str, u64) {
        match self {
            Self::File4k => ("/4k", FILES[0].1),
            Self::File1m => ("/1m", FILES[1].1),
            _ => ("/", HELLO_BODY.len() as u64),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a name of the command line stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named(pub(super) Vec<Workload>);

/// Reads a name of the command line; `file` is both files.
pub(super) fn parse(text: &str) -> Result<Named, String> {
    if text == "file" {
        return Ok(Named(vec![Workload::File4k, Workload::File1m]));
    }
    parse_one(text).map(|workload| Named(vec![workload]))
}

/// Reads a name that stands for one workload.
pub(super) fn parse_one(text: &str) -> Result<Workload, String> {
    let mut all = Workload::ALL.into_iter();
    all.find(|workload| workload.name() == text).ok_or_else(|| {
        let names: Vec<_> = Workload::ALL.iter().map(|one| one.name()).collect();
        format!(
            "the workloads are {}, and file for both files",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for workload in Workload::ALL {
            assert_eq!(parse(workload.name()), Ok(Named(vec![workload])));
        }
        assert_eq!(parse("file").map(|both| both.0.len()), Ok(2));
        assert!(parse("none").unwrap_err().contains("hello, file-4k"));
    }

    #[test]
    fn texts_say_what_is_done() {
        assert_eq!(HELLO_BODY.len(), 64);
        let compute = Workload::Compute.description();
        assert!(compute.contains(&format!("one request of {COMPUTE_EVERY} ")));
        assert!(compute.contains(&format!("{} ms", COMPUTE_TIME.as_millis())));
        assert!(
            Workload::Echo
                .description()
                .contains(&ECHO_BYTES.to_string())
        );
    }
}
