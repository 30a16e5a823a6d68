//! The flags of `windlass compare`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::model::{self, Model};
use super::workload::{self, Named, Workload};

/// What `windlass compare` is told.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CompareArguments {
    /// Measure briefly: all models and workloads within three minutes.
    #[arg(long)]
    pub(super) quick: bool,

    /// The models, by their names, with commas in between [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = model::parse)]
    pub(super) models: Vec<Model>,

    /// The workloads, by their names, with commas in between [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = workload::parse)]
    pub(super) workloads: Vec<Named>,

    /// Connections that are active [default: 64].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) connections: Option<u32>,

    /// Connections that are idle, in the workload of that name [default: 2000; with --quick 1000].
    #[arg(long, value_name = "COUNT")]
    pub(super) idle: Option<u32>,

    /// How long each run is measured [default: 1s; with --quick 200ms].
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    pub(super) duration: Option<Duration>,

    /// Threads of the models that have several [default: one loop per core, 4 workers].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,

    /// Requests per second of the runs at a fixed rate [default: for each workload, half of what
    /// the models reach in the median].
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(super) rate: Option<f64>,

    /// How often everything is measured; medians are shown [default: 3; with --quick 2].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(super) rounds: Option<u32>,

    /// Shuffles the order of the models; the same number gives the same order.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) order_seed: u64,

    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Write the page to this file.
    #[arg(long, value_name = "FILE", default_value = "windlass-compare.html")]
    pub(super) html: PathBuf,
}

/// What the hidden command `compare-server` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArguments {
    #[arg(long, value_parser = model::parse)]
    pub(super) model: Model,
    #[arg(long, value_parser = workload::parse_one)]
    pub(super) workload: Workload,
    #[arg(long)]
    pub(super) threads: Option<u32>,
    /// The processors to stay on; none: all.
    #[arg(long, value_delimiter = ',')]
    pub(super) cpus: Vec<usize>,
    /// The files to serve.
    #[arg(long)]
    pub(super) dir: PathBuf,
    /// How many steps of the computation take as long as it should.
    #[arg(long, default_value_t = 1)]
    pub(super) compute_steps: u64,
}

/// What the hidden command `compare-load` is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArguments {
    #[arg(long)]
    pub(super) addr: SocketAddr,
    #[arg(long, value_parser = workload::parse_one)]
    pub(super) workload: Workload,
    #[arg(long)]
    pub(super) connections: u32,
    /// Silent connections beside them.
    #[arg(long, default_value_t = 0)]
    pub(super) idle: u32,
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(super) warm_up: Duration,
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(super) duration: Duration,
    /// Requests per second; without it, each connection asks again when it is answered.
    #[arg(long, value_parser = parse_rate)]
    pub(super) rate: Option<f64>,
    /// The processors to stay on; none: all.
    #[arg(long, value_delimiter = ',')]
    pub(super) cpus: Vec<usize>,
}

/// How long a run may be measured.
const WINDOW_MIN: Duration = Duration::from_millis(20);
const WINDOW_MAX: Duration = Duration::from_secs(3600);

fn parse_window(text: &str) -> Result<Duration, String> {
    let window = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (WINDOW_MIN..=WINDOW_MAX).contains(&window) {
        true => Ok(window),
        false => Err("it must be from 20ms to 1h".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=1e6).contains(&rate) => Ok(rate),
        _ => Err("it must be a number from 0.1 to 1000000".to_owned()),
    }
}

const AFTER_HELP: &str = "\
Models: single-loop, multi-loop, reactor-workers, emulated-proactor, uring-proactor, \
half-sync-half-async, leader-followers, hybrid, thread-per-connection, thread-pool.

Workloads: hello, file-4k, file-1m (file is both), idle, slow, compute, echo.

Every model is measured twice in each round: in a closed loop, in which each connection asks again \
as soon as it is answered (throughput, processor time), and at a fixed rate, the same for all \
models, with latencies counted from when a request was meant to be sent. Figures of a model and a \
workload are medians over the rounds.

Examples:
  windlass compare --quick
  windlass compare --models single-loop,hybrid --workloads compute --duration 3s
  windlass compare --json figures.json --html page.html --rounds 5";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_would_measure_nothing_are_refused() {
        assert_eq!(parse_rate("2.5"), Ok(2.5));
        for rate in ["0", "-1", "inf", "NaN", "1e9", "fast"] {
            assert!(parse_rate(rate).is_err(), "{rate}");
        }
        assert_eq!(parse_window("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_window("0s").is_err() && parse_window("2h").is_err());
    }

    #[test]
    fn the_help_names_all_that_there_is() {
        for kind in Model::ALL {
            assert!(AFTER_HELP.contains(kind.name()), "{kind}");
        }
        for workload in Workload::ALL {
            assert!(AFTER_HELP.contains(workload.name()), "{workload}");
        }
    }
}
