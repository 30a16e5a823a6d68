//! What a load generator notes: latencies, counts, errors.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::connection::Class;
use crate::compare::stats;
use crate::compare::wire::{LoadResult, UsageFigures};

pub(super) struct Record {
    plain: Histogram<u64>,
    compute: Histogram<u64>,
    late: Histogram<u64>,
    completed: u64,
    answered: u64,
    load_cpu_s: f64,
    slow_bytes: u64,
    slow_answered: u64,
    errors: BTreeMap<String, u64>,
    error_count: u64,
}

impl Record {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            plain: stats::histogram()?,
            compute: stats::histogram()?,
            late: stats::histogram()?,
            completed: 0,
            answered: 0,
            load_cpu_s: 0.0,
            slow_bytes: 0,
            slow_answered: 0,
            errors: BTreeMap::new(),
            error_count: 0,
        })
    }

    /// Forgets what was before the window. Errors stay: they must not be hidden.
    pub(super) fn restart(&mut self) {
        self.slow_bytes = 0;
        self.slow_answered = 0;
    }

    #[inline]
    pub(super) fn answer(&mut self, class: Class, latency_ns: u64, is_within: bool) {
        self.answered += 1;
        self.completed += u64::from(is_within);
        self.latency(class, latency_ns);
    }

    /// A request that has waited for so long, and got no answer.
    pub(super) fn unanswered(&mut self, class: Class, waited_ns: u64) {
        self.error("no answer");
        self.latency(class, waited_ns);
    }

    fn latency(&mut self, class: Class, ns: u64) {
        match class {
            Class::Compute => self.compute.saturating_record(ns),
            Class::Plain => self.plain.saturating_record(ns),
        }
    }

    /// A request was sent so late, by the generator's own fault.
    pub(super) fn late(&mut self, ns: u64) {
        self.late.saturating_record(ns);
    }

    pub(super) fn slow_bytes(&mut self, count: usize) {
        self.slow_bytes += count as u64;
    }

    pub(super) fn slow_answer(&mut self) {
        self.slow_answered += 1;
    }

    pub(super) fn error(&mut self, what: &str) {
        self.error_count += 1;
        match self.errors.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                self.errors.insert(what.to_owned(), 1);
            }
        }
    }

    pub(super) fn error_count(&self) -> u64 {
        self.error_count
    }

    pub(super) fn end_window(&mut self, used: UsageFigures) {
        self.load_cpu_s = used.cpu_s();
    }

    pub(super) fn result(&self, window: Duration) -> LoadResult {
        LoadResult {
            completed: self.completed,
            answered: self.answered,
            window_s: window.as_secs_f64(),
            load_cpu_s: self.load_cpu_s,
            late_p99_s: stats::seconds(self.late.value_at_quantile(0.99)),
            latencies: stats::to_pairs(&self.plain),
            compute_latencies: stats::to_pairs(&self.compute),
            errors: self.errors.clone(),
            slow_bytes: self.slow_bytes,
            slow_answered: self.slow_answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_answer_counts_as_an_error_and_with_its_time() {
        let mut record = Record::new().expect("histograms");
        record.answer(Class::Plain, 1_000, true);
        record.answer(Class::Plain, 2_000, false);
        record.answer(Class::Compute, 3_000, true);
        record.unanswered(Class::Plain, 5_000_000);
        let result = record.result(Duration::from_secs(1));
        assert_eq!((result.completed, result.answered), (2, 3));
        assert_eq!(result.errors["no answer"], 1);
        let counts: u64 = result.latencies.iter().map(|(_, count)| count).sum();
        assert_eq!((counts, result.compute_latencies.len()), (3, 1));
        assert!(
            result
                .latencies
                .last()
                .is_some_and(|(ns, _)| *ns >= 5_000_000)
        );
    }
}
