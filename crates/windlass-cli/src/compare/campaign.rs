//! The campaign: which runs are made, in which order, and what becomes of their figures.
//!
//! Each round takes the workloads in turn, and within a workload every model once in a closed loop,
//! in an order that the seed and the round decide, then every model once at a fixed rate, in another
//! one. So a machine that becomes slower meanwhile does so for all of them. The first round finds the
//! rate, and counts system calls.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::CreationError;

use super::child::RunError;
use super::measure::{Bench, Run, Sample};
use super::model::Model;
use super::progress::Progress;
use super::results::{Calls, Cell, Figures, WorkloadReport};
use super::stats::{self, Spread};
use super::syscalls::Counter;
use super::workload::Workload;

/// The part of what the models reach, in the median, that all are asked for.
const RATE_PART: f64 = 0.5;

pub(super) struct Campaign<'a> {
    pub(super) bench: Bench<'a>,
    pub(super) models: Vec<Model>,
    pub(super) workloads: Vec<Workload>,
    pub(super) rounds: u32,
    pub(super) duration: Duration,
    pub(super) rate: Option<f64>,
    pub(super) seed: u64,
    pub(super) counter: Counter,
    /// After this long no further round is begun or gone on with; the first one always ends.
    pub(super) time_limit: Option<Duration>,
}

/// What the runs gave, until they are figures.
#[derive(Debug, Default)]
pub(super) struct Samples {
    cells: BTreeMap<(Workload, Model), CellSamples>,
    rates: BTreeMap<Workload, f64>,
}

#[derive(Debug, Default)]
struct CellSamples {
    closed_loop: Vec<Sample>,
    fixed_rate: Vec<Sample>,
    calls: Option<Calls>,
    failures: Vec<String>,
    is_unavailable: bool,
    /// Whether the closed loop of this round failed: then the others would.
    is_failing: bool,
}

/// How models are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    ClosedLoop,
    FixedRate,
}

impl Campaign<'_> {
    /// How many runs there are at most.
    pub(super) fn step_count(&self) -> usize {
        let per_cell = 2 * self.rounds as usize + 1;
        self.models.len() * self.workloads.len() * per_cell
    }

    /// Makes all runs, or those until it is interrupted or the time is up.
    pub(super) fn run(&self, progress: &mut Progress) -> Samples {
        let mut samples = Samples::default();
        for round in 0..self.rounds {
            for at in 0..self.workloads.len() {
                let is_over = self
                    .time_limit
                    .is_some_and(|limit| progress.elapsed() > limit);
                if round > 0 && is_over {
                    return samples;
                }
                if self.turn(round, at, &mut samples, progress) == Err(RunError::Interrupted) {
                    return samples;
                }
            }
        }
        samples
    }

    /// One workload in one round. Errors are the interruption only.
    fn turn(
        &self,
        round: u32,
        at: usize,
        samples: &mut Samples,
        progress: &mut Progress,
    ) -> Result<(), RunError> {
        let workload = self.workloads[at];
        for pace in [Pace::ClosedLoop, Pace::FixedRate] {
            if pace == Pace::FixedRate && !samples.rates.contains_key(&workload) {
                let found = self.rate.or_else(|| samples.usual_rate(workload));
                let Some(rate) = found else {
                    progress.skip(self.models.len());
                    continue;
                };
                samples.rates.insert(workload, rate);
            }
            for model in self.order(round, at, pace) {
                let words = match pace {
                    Pace::ClosedLoop => "closed loop",
                    Pace::FixedRate => "fixed rate",
                };
                let what = format!("round {}: {workload}, {model}, {words}", round + 1);
                progress.step(&what);
                self.one(model, workload, pace, samples)?;
            }
        }
        if round == 0 {
            for model in self.order(round, at, Pace::ClosedLoop) {
                progress.step(&format!("{workload}, {model}, system calls"));
                self.calls(model, workload, samples)?;
            }
        }
        Ok(())
    }

    /// The order of the models: another one each time, the same for the same seed.
    fn order(&self, round: u32, workload: usize, pace: Pace) -> Vec<Model> {
        let mut models = self.models.clone();
        let turn = (u64::from(round) << 32) | (workload as u64) << 1 | pace as u64;
        stats::shuffle(
            &mut models,
            self.seed.wrapping_add(turn.wrapping_mul(0x9e37)),
        );
        models
    }

    fn one(
        &self,
        model: Model,
        workload: Workload,
        pace: Pace,
        samples: &mut Samples,
    ) -> Result<(), RunError> {
        let rate = match pace {
            Pace::ClosedLoop => None,
            Pace::FixedRate => samples.rates.get(&workload).copied(),
        };
        let cell = samples.cells.entry((workload, model)).or_default();
        if pace == Pace::ClosedLoop {
            cell.is_failing = false;
        }
        if cell.is_unavailable || cell.is_failing {
            return Ok(());
        }
        let run = Run {
            model,
            workload,
            rate,
            duration: self.duration,
        };
        match (self.bench.measure(&run), pace) {
            (Ok(sample), Pace::ClosedLoop) => cell.closed_loop.push(sample),
            (Ok(sample), Pace::FixedRate) => cell.fixed_rate.push(sample),
            (Err(RunError::Interrupted), _) => return Err(RunError::Interrupted),
            (Err(error), _) => {
                cell.is_failing = true;
                cell.is_unavailable = matches!(error, RunError::Unavailable(_));
                let why = error.to_string();
                if !cell.failures.contains(&why) {
                    cell.failures.push(why);
                }
            }
        }
        Ok(())
    }

    fn calls(
        &self,
        model: Model,
        workload: Workload,
        samples: &mut Samples,
    ) -> Result<(), RunError> {
        let cell = samples.cells.entry((workload, model)).or_default();
        if cell.is_unavailable || cell.is_failing {
            return Ok(());
        }
        if let Counter::Unavailable(why) = &self.counter {
            cell.calls = Some(Calls::Unknown(why.clone()));
            return Ok(());
        }
        let run = Run {
            model,
            workload,
            rate: None,
            duration: self.counter.window(self.duration),
        };
        cell.calls = Some(match self.bench.count_calls(&run, &self.counter) {
            Ok(per_request) => Calls::PerRequest(per_request),
            Err(RunError::Interrupted) => return Err(RunError::Interrupted),
            Err(error) => Calls::Unknown(error.to_string()),
        });
        Ok(())
    }

    /// The figures of all cells that were asked for, also of those that have none.
    pub(super) fn report(&self, samples: &Samples) -> Result<Vec<WorkloadReport>, CreationError> {
        let mut reports = Vec::with_capacity(self.workloads.len());
        for &workload in &self.workloads {
            let mut cells = Vec::with_capacity(self.models.len());
            for &model in &self.models {
                let mut cell = Cell::new(model);
                if let Some(samples) = samples.cells.get(&(workload, model)) {
                    cell.closed_loop = Figures::of(&samples.closed_loop)?;
                    cell.fixed_rate = Figures::of(&samples.fixed_rate)?;
                    cell.calls.clone_from(&samples.calls);
                    cell.failures.clone_from(&samples.failures);
                }
                cells.push(cell);
            }
            reports.push(WorkloadReport {
                workload,
                rate: samples.rates.get(&workload).copied(),
                cells,
            });
        }
        Ok(reports)
    }
}

impl Samples {
    /// What all models are asked for: a part of what those reach that reach anything, in the median.
    fn usual_rate(&self, workload: Workload) -> Option<f64> {
        let cells = self.cells.iter().filter(|((of, _), _)| *of == workload);
        let reached = cells.flat_map(|(_, cell)| &cell.closed_loop);
        let reached = reached.map(|sample| sample.load.completed as f64 / sample.load.window_s);
        let usual = Spread::of(reached.filter(|rate| *rate > 0.0))?;
        Some(round_down(usual.median * RATE_PART))
    }
}

/// `rate` with two digits, and not less than 1.
fn round_down(rate: f64) -> f64 {
    let step = 10_f64.powf(rate.max(1.0).log10().floor() - 1.0);
    ((rate / step).floor() * step).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::results::tests::sample;

    #[test]
    fn the_rate_is_half_of_what_models_reach_in_the_median_in_two_digits() {
        let mut samples = Samples::default();
        assert_eq!(samples.usual_rate(Workload::Hello), None);
        for (model, completed) in [
            (Model::SingleLoop, 100_000),
            (Model::ThreadPool, 24_690),
            (Model::MultiLoop, 2_000),
            (Model::Hybrid, 0),
        ] {
            let cell = samples.cells.entry((Workload::Hello, model)).or_default();
            cell.closed_loop.push(sample(completed));
        }
        assert_eq!(samples.usual_rate(Workload::Hello), Some(12_000.0));
        assert_eq!(samples.usual_rate(Workload::Echo), None);
    }

    #[test]
    fn rates_are_rounded_down() {
        assert_eq!(round_down(98_765.0), 98_000.0);
        assert_eq!(round_down(10.9), 10.0);
        assert_eq!(round_down(0.3), 1.0);
    }
}
