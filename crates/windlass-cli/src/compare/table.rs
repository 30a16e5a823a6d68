//! The tables for the terminal: two for each workload.

use super::model::{BASELINE, Model};
use super::results::{Calls, Cell, Figures, Report, WorkloadReport};
use super::units::{count, mib, number, ratio, time};
use super::workload::Workload;

/// All tables.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    for workload in &report.workloads {
        let headline = format!("{} ({})\n", workload.workload.title(), workload.workload);
        out.push_str(&headline);
        out.push_str(&closed_loop(workload));
        let rate = workload.rate.map_or_else(|| "?".to_owned(), count);
        out.push_str(&format!(
            "  at {rate} requests/s, latencies from when each was due\n"
        ));
        out.push_str(&fixed_rate(workload));
        for note in notes(workload) {
            out.push_str(&format!("  {note}\n"));
        }
        out.push('\n');
    }
    out
}

fn closed_loop(report: &WorkloadReport) -> String {
    let base = report.cell(BASELINE).and_then(Cell::throughput);
    let mut rows = vec![
        [
            "model",
            "requests/s",
            "±%",
            "×single",
            "µs/req",
            "user s",
            "sys s",
            "vol/req",
            "inv/req",
            "calls/req",
            "RSS MiB",
            "PSS",
            "threads",
            "errors",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for cell in &report.cells {
        let mut row = vec![name(cell, report.workload)];
        match &cell.closed_loop {
            Some(figures) => {
                let times = base.map(|base| figures.requests_per_s.median / base);
                row.push(count(figures.requests_per_s.median));
                row.push(number(spread_percent(figures)));
                row.push(times.map_or_else(|| "-".to_owned(), ratio));
                row.extend(cost(figures));
                row.push(calls(cell));
                row.push(mib(figures.rss_peak_bytes.median));
                row.push(mib(figures.pss_bytes.median));
                row.push(count(figures.threads.median));
                row.push(errors(figures));
            }
            None => row.extend(std::iter::repeat_n("-".to_owned(), 13)),
        }
        rows.push(row);
    }
    align(&rows)
}

fn cost(figures: &Figures) -> [String; 5] {
    [
        figures.cpu_us_per_request,
        figures.user_s,
        figures.system_s,
        figures.voluntary_per_request,
        figures.involuntary_per_request,
    ]
    .map(|spread| number(spread.median))
}

fn fixed_rate(report: &WorkloadReport) -> String {
    let mut rows = vec![
        [
            "model",
            "reached/s",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "µs/req",
            "errors",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for cell in &report.cells {
        let mut row = vec![name(cell, report.workload)];
        match &cell.fixed_rate {
            Some(figures) => {
                let latency = &figures.latency;
                row.push(count(figures.requests_per_s.median));
                let percentiles = [
                    latency.p50,
                    latency.p90,
                    latency.p99,
                    latency.p999,
                    latency.max,
                ];
                row.extend(percentiles.map(|at| time(at.median)));
                row.push(number(figures.cpu_us_per_request.median));
                row.push(errors(figures));
            }
            None => row.extend(std::iter::repeat_n("-".to_owned(), 8)),
        }
        rows.push(row);
    }
    align(&rows)
}

/// Half of the distance between the rounds, in percent of the median.
fn spread_percent(figures: &Figures) -> f64 {
    let spread = figures.requests_per_s;
    if spread.median > 0.0 {
        (spread.max - spread.min) / 2.0 / spread.median * 100.0
    } else {
        0.0
    }
}

fn errors(figures: &Figures) -> String {
    count(figures.errors.values().sum::<u64>() as f64)
}

fn calls(cell: &Cell) -> String {
    match &cell.calls {
        Some(Calls::PerRequest(calls)) => number(*calls),
        Some(Calls::Unknown(_)) | None => "-".to_owned(),
    }
}

/// The model, and where it computes if that matters.
fn name(cell: &Cell, workload: Workload) -> String {
    match workload {
        Workload::Compute => format!("{} ({})", cell.model, cell.compute),
        _ => cell.model.to_string(),
    }
}

/// What figures are missing or wrong, and why.
fn notes(report: &WorkloadReport) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |model: Model, what: &str| notes.push(format!("{model}: {what}"));
    for cell in &report.cells {
        for failure in &cell.failures {
            note(cell.model, failure);
        }
        if let Some(Calls::Unknown(why)) = &cell.calls {
            note(cell.model, &format!("system calls were not counted: {why}"));
        }
        for figures in [&cell.closed_loop, &cell.fixed_rate].into_iter().flatten() {
            for (what, times) in &figures.errors {
                note(cell.model, &format!("{times} × {what}"));
            }
        }
    }
    notes
}

/// The first column to the left, all others to the right.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match at {
            0 => format!("  {cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        out.push_str(&cells.collect::<Vec<_>>().join("  "));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_not_bytes() {
        let rows = [
            vec!["a".to_owned(), "µs".to_owned()],
            vec!["bcd".to_owned(), "1".to_owned()],
        ];
        assert_eq!(align(&rows), "  a    µs\n  bcd   1\n");
    }
}
