//! The figures of a comparison, as they are shown and written: one type for table, JSON and page.

use std::collections::BTreeMap;

use hdrhistogram::CreationError;
use serde::Serialize;

use super::machine::Machine;
use super::measure::Sample;
use super::model::{Compute, Model};
use super::stats::{self, Spread};
use super::workload::Workload;

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) date: String,
    pub(super) command: String,
    pub(super) took_s: f64,
    /// Ended by Ctrl-C: figures are missing, or of fewer rounds.
    pub(super) is_partial: bool,
    pub(super) machine: Machine,
    pub(super) settings: Settings,
    /// What counted system calls.
    pub(super) calls_by: String,
    pub(super) workloads: Vec<WorkloadReport>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Settings {
    pub(super) is_quick: bool,
    pub(super) connections: u32,
    pub(super) idle: u32,
    pub(super) duration_s: f64,
    /// `None`: one loop per processor, 4 workers.
    pub(super) threads: Option<u32>,
    /// `None`: for each workload, half of what the models reach in the median.
    pub(super) rate: Option<f64>,
    pub(super) rounds: u32,
    pub(super) order_seed: u64,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkloadReport {
    #[serde(serialize_with = "as_text")]
    pub(super) workload: Workload,
    /// Requests per second of the runs at a fixed rate, once it is known.
    pub(super) rate: Option<f64>,
    pub(super) cells: Vec<Cell>,
}

/// One model under one workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    #[serde(serialize_with = "as_text")]
    pub(super) model: Model,
    /// Where requests that compute do so.
    pub(super) compute: &'static str,
    pub(super) closed_loop: Option<Figures>,
    pub(super) fixed_rate: Option<Figures>,
    pub(super) calls: Option<Calls>,
    /// Why runs gave nothing.
    pub(super) failures: Vec<String>,
}

/// System calls of the server for each request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Calls {
    PerRequest(f64),
    Unknown(String),
}

/// What the rounds gave, in a closed loop or at a fixed rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) rounds: usize,
    pub(super) requests_per_s: Spread,
    pub(super) latency: Latency,
    /// Of the requests that compute, if there are some.
    pub(super) compute_latency: Option<Latency>,
    /// Processor time of the server, all threads, over the whole window.
    pub(super) user_s: Spread,
    pub(super) system_s: Spread,
    pub(super) cpu_us_per_request: Spread,
    pub(super) voluntary_switches: Spread,
    pub(super) involuntary_switches: Spread,
    pub(super) voluntary_per_request: Spread,
    pub(super) involuntary_per_request: Spread,
    pub(super) rss_peak_bytes: Spread,
    pub(super) pss_bytes: Spread,
    pub(super) threads: Spread,
    /// How busy the load generator was: near 1, it was the limit.
    pub(super) load_busy: Spread,
    pub(super) late_p99_s: Spread,
    /// How many processors other programs kept busy meanwhile, or the hypervisor.
    pub(super) others_busy: Spread,
    pub(super) slow_bytes: Spread,
    pub(super) slow_answered: Spread,
    pub(super) errors: BTreeMap<String, u64>,
    /// Quantile and seconds, over all rounds.
    pub(super) curve: Vec<(f64, f64)>,
}

/// Percentiles of latencies, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: Spread,
    pub(super) p90: Spread,
    pub(super) p99: Spread,
    pub(super) p999: Spread,
    pub(super) max: Spread,
}

impl Report {
    /// Why `uring-proactor` was measured without io_uring, if it was.
    pub(super) fn uring_missing(&self) -> Option<&str> {
        let mut cells = self.workloads.iter().flat_map(|workload| &workload.cells);
        cells.find(|cell| cell.model == Model::UringProactor)?;
        self.machine.uring_missing.as_deref()
    }

    /// How many processors other programs kept busy, on the average of all that was measured.
    pub(super) fn others_busy(&self) -> f64 {
        let cells = self.workloads.iter().flat_map(|workload| &workload.cells);
        let figures = cells.flat_map(|cell| [&cell.closed_loop, &cell.fixed_rate]);
        let busy: Vec<_> = figures
            .flatten()
            .map(|figures| figures.others_busy.median)
            .collect();
        per(busy.iter().sum(), busy.len() as f64)
    }
}

impl Cell {
    pub(super) fn new(model: Model) -> Self {
        Self {
            model,
            compute: Compute::of(model).words(),
            closed_loop: None,
            fixed_rate: None,
            calls: None,
            failures: Vec::new(),
        }
    }

    pub(super) fn throughput(&self) -> Option<f64> {
        let figures = self.closed_loop.as_ref()?;
        Some(figures.requests_per_s.median)
    }

    /// Errors of all its runs.
    pub(super) fn error_count(&self) -> u64 {
        let figures = [&self.closed_loop, &self.fixed_rate];
        let errors = figures.into_iter().flatten();
        errors.flat_map(|figures| figures.errors.values()).sum()
    }
}

impl WorkloadReport {
    pub(super) fn cell(&self, model: Model) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.model == model)
    }

    /// The cell with the most requests per second among those without errors; if there are none,
    /// among all.
    pub(super) fn fastest(&self) -> Option<&Cell> {
        let by = |cell: &&Cell| {
            let throughput = cell.throughput().unwrap_or(0.0);
            (cell.error_count() == 0, throughput)
        };
        let measured = self.cells.iter().filter(|cell| cell.throughput().is_some());
        measured.max_by(|a, b| {
            let (a, b) = (by(a), by(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }
}

impl Figures {
    /// Of what the rounds gave; `None` without any.
    pub(super) fn of(samples: &[Sample]) -> Result<Option<Self>, CreationError> {
        if samples.is_empty() {
            return Ok(None);
        }
        let spread =
            |value: fn(&Sample) -> f64| Spread::of(samples.iter().map(value)).unwrap_or_default();
        let compute = samples
            .iter()
            .any(|sample| !sample.load.compute_latencies.is_empty());
        let mut errors = BTreeMap::new();
        for (what, count) in samples.iter().flat_map(|sample| &sample.load.errors) {
            *errors.entry(what.clone()).or_insert(0) += count;
        }
        Ok(Some(Self {
            rounds: samples.len(),
            requests_per_s: spread(|sample| {
                per(sample.load.completed as f64, sample.load.window_s)
            }),
            latency: Latency::of(samples, |sample| &sample.load.latencies)?,
            compute_latency: match compute {
                true => Some(Latency::of(samples, |sample| {
                    &sample.load.compute_latencies
                })?),
                false => None,
            },
            user_s: spread(|sample| sample.used.user_s),
            system_s: spread(|sample| sample.used.system_s),
            cpu_us_per_request: spread(|sample| per_request(sample, sample.used.cpu_s() * 1e6)),
            voluntary_switches: spread(|sample| sample.used.voluntary_switches as f64),
            involuntary_switches: spread(|sample| sample.used.involuntary_switches as f64),
            voluntary_per_request: spread(|sample| {
                per_request(sample, sample.used.voluntary_switches as f64)
            }),
            involuntary_per_request: spread(|sample| {
                per_request(sample, sample.used.involuntary_switches as f64)
            }),
            rss_peak_bytes: spread(|sample| sample.process.rss_peak_bytes as f64),
            pss_bytes: spread(|sample| sample.process.pss_bytes as f64),
            threads: spread(|sample| sample.process.threads as f64),
            load_busy: spread(|sample| per(sample.load.load_cpu_s, sample.load.window_s)),
            others_busy: spread(|sample| sample.others_busy),
            late_p99_s: spread(|sample| sample.load.late_p99_s),
            slow_bytes: spread(|sample| sample.load.slow_bytes as f64),
            slow_answered: spread(|sample| sample.load.slow_answered as f64),
            errors,
            curve: curve(samples)?,
        }))
    }
}

fn per_request(sample: &Sample, value: f64) -> f64 {
    per(value, sample.load.answered as f64)
}

/// `value / count`, or zero of nothing.
fn per(value: f64, count: f64) -> f64 {
    if count > 0.0 { value / count } else { 0.0 }
}

impl Latency {
    fn of(
        samples: &[Sample],
        pairs: fn(&Sample) -> &Vec<(u64, u64)>,
    ) -> Result<Self, CreationError> {
        let mut histograms = Vec::with_capacity(samples.len());
        for sample in samples {
            histograms.push(stats::from_pairs([&pairs(sample)[..]])?);
        }
        let at = |quantile: f64| {
            let values = histograms.iter();
            let values =
                values.map(|histogram| stats::seconds(histogram.value_at_quantile(quantile)));
            Spread::of(values).unwrap_or_default()
        };
        Ok(Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        })
    }
}

/// Steps of the curve for each factor of ten that is closer to 1.
const CURVE_STEPS: u32 = 12;
/// The curve ends at 99.99 %.
const CURVE_DECADES: u32 = 4;

/// The latencies at quantiles that come closer and closer to 1, as far as there are enough answers.
fn curve(samples: &[Sample]) -> Result<Vec<(f64, f64)>, CreationError> {
    let all = samples.iter().map(|sample| &sample.load.latencies[..]);
    let histogram = stats::from_pairs(all)?;
    let mut points = Vec::new();
    for step in 0..=CURVE_STEPS * CURVE_DECADES {
        let rest = 10_f64.powf(-f64::from(step) / f64::from(CURVE_STEPS));
        // Beyond this there is not one answer.
        if rest * (histogram.len() as f64) < 1.0 {
            break;
        }
        let quantile = 1.0 - rest;
        points.push((
            quantile,
            stats::seconds(histogram.value_at_quantile(quantile)),
        ));
    }
    Ok(points)
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::compare::measure::ProcessFigures;
    use crate::compare::wire::{LoadResult, UsageFigures};

    /// A round with `completed` answers within a second, of 1 ms, and one of 9 ms.
    pub(crate) fn sample(completed: u64) -> Sample {
        Sample {
            load: LoadResult {
                completed,
                answered: completed + 1,
                window_s: 1.0,
                load_cpu_s: 0.5,
                latencies: vec![(1_000_000, completed), (9_000_000, 1)],
                ..LoadResult::default()
            },
            used: UsageFigures {
                user_s: 0.25,
                system_s: 0.75,
                voluntary_switches: 6,
                involuntary_switches: 4,
            },
            others_busy: 0.1,
            process: ProcessFigures {
                rss_peak_bytes: 1 << 20,
                pss_bytes: 1 << 19,
                threads: 3,
            },
        }
    }

    #[test]
    fn figures_are_medians_over_the_rounds() {
        let rounds = [sample(999), sample(99), sample(1999)];
        let figures = Figures::of(&rounds).expect("bounds").expect("rounds");
        assert_eq!(figures.rounds, 3);
        assert_eq!(figures.requests_per_s.median, 999.0);
        assert_eq!(figures.requests_per_s.max, 1999.0);
        assert_eq!(figures.cpu_us_per_request.median, 1000.0);
        assert_eq!(figures.voluntary_per_request.median, 0.006);
        assert_eq!(figures.involuntary_per_request.median, 0.004);
        assert!((figures.latency.p50.median - 0.001).abs() < 1e-5);
        assert!((figures.latency.max.median - 0.009).abs() < 1e-4);
        assert!(figures.compute_latency.is_none());
        assert!(Figures::of(&[]).expect("bounds").is_none());
    }

    #[test]
    fn a_curve_ends_where_there_is_not_one_answer_left() {
        let points = curve(&[sample(99)]).expect("bounds");
        let last = points.last().expect("points");
        assert_eq!(points.first().map(|(quantile, _)| *quantile), Some(0.0));
        assert!((last.0 - 0.99).abs() < 1e-9, "{last:?}");
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }

    #[test]
    fn a_winner_has_no_errors() {
        let cell = |model, completed, errors: &[(&str, u64)]| {
            let mut round = sample(completed);
            let errors = errors
                .iter()
                .map(|(what, count)| ((*what).to_owned(), *count));
            round.load.errors = errors.collect();
            Cell {
                closed_loop: Figures::of(&[round]).expect("bounds"),
                ..Cell::new(model)
            }
        };
        let report = WorkloadReport {
            workload: Workload::Hello,
            rate: None,
            cells: vec![
                cell(Model::SingleLoop, 10, &[]),
                cell(Model::Hybrid, 20, &[]),
                cell(Model::ThreadPool, 30, &[("no answer", 1)]),
                Cell::new(Model::MultiLoop),
            ],
        };
        assert_eq!(report.fastest().map(|cell| cell.model), Some(Model::Hybrid));
    }
}
