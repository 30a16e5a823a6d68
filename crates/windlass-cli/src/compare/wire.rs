//! What the processes of a comparison tell each other: lines, JSON where there are figures.
//!
//! ```text
//!  parent ──"figures"──▶ server      server ──ServerSays, UsageFigures──▶ parent
//!  parent ──"go"───────▶ load        load ────LoadSays────────────────────▶ parent
//! ```
//!
//! Either child ends when its standard input does: none outlives the parent.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_sys::usage::{ProcessUsage, process_usage};

use crate::manual;

/// Asks a server for its [`UsageFigures`].
pub(super) const FIGURES: &str = "figures";
/// Tells a load generator to measure.
pub(super) const GO: &str = "go";

/// A server's first line.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum ServerSays {
    Failed(String),
    Listening(SocketAddr),
}

/// What a process has used, with all its threads.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct UsageFigures {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
}

impl UsageFigures {
    /// Of this process, until now.
    pub(super) fn take() -> Self {
        // Refused, it is the same at the begin and at the end.
        process_usage().map_or_else(|_| Self::default(), Self::from)
    }

    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            user_s: (self.user_s - earlier.user_s).max(0.0),
            system_s: (self.system_s - earlier.system_s).max(0.0),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }

    pub(super) fn cpu_s(self) -> f64 {
        self.user_s + self.system_s
    }
}

impl From<ProcessUsage> for UsageFigures {
    fn from(usage: ProcessUsage) -> Self {
        Self {
            user_s: usage.user.as_secs_f64(),
            system_s: usage.system.as_secs_f64(),
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
        }
    }
}

/// A load generator's lines.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum LoadSays {
    Failed(String),
    /// All connections are open and warm, and nothing is under way.
    Ready,
    Result(Box<LoadResult>),
}

/// What a load generator has measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct LoadResult {
    /// Answers within the window.
    pub(super) completed: u64,
    /// All answers, those to the last requests of the window included.
    pub(super) answered: u64,
    pub(super) window_s: f64,
    /// Processor time of the load generator within the window.
    pub(super) load_cpu_s: f64,
    /// How late requests at a fixed rate were sent though a connection was free: the generator's own
    /// fault.
    pub(super) late_p99_s: f64,
    /// Latencies, in nanoseconds, and how many had each.
    pub(super) latencies: Vec<(u64, u64)>,
    /// The same of the requests that compute.
    pub(super) compute_latencies: Vec<(u64, u64)>,
    /// What went wrong, and how often.
    pub(super) errors: BTreeMap<String, u64>,
    /// What the slow clients have read.
    pub(super) slow_bytes: u64,
    /// Requests of slow clients that were answered completely.
    pub(super) slow_answered: u64,
}

/// Prints one line, at once.
pub(super) fn tell(what: &impl Serialize) -> Result<(), Box<dyn Error>> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    manual::print(&line)
}

/// A duration as humantime reads it.
pub(super) fn span(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_difference_that_is_never_negative() {
        let figures = |user_s, voluntary_switches| UsageFigures {
            user_s,
            voluntary_switches,
            ..UsageFigures::default()
        };
        assert_eq!(figures(3.0, 5).since(figures(1.0, 2)), figures(2.0, 3));
        assert_eq!(figures(1.0, 2).since(figures(3.0, 5)), figures(0.0, 0));
    }
}
