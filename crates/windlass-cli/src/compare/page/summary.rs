//! The summary: who won, and everyone beside the single loop.

use std::collections::BTreeMap;

use super::escape::escape;
use super::grid::{Column, Entry, Grid};
use crate::compare::model::{BASELINE, Model};
use crate::compare::results::{Cell, Figures, Report, WorkloadReport};
use crate::compare::units::{count, number, ratio, time};

/// Ratios from which on a cell is shaded, from a little to much better; below the inverse, worse.
const THROUGHPUT_STEPS: [f64; 3] = [1.05, 1.2, 1.6];
/// Latencies at the far end differ by chance much more.
const LATENCY_STEPS: [f64; 3] = [1.3, 2.0, 5.0];

/// So many processors may be busy with something else.
pub(in crate::compare) const DISTURBED: f64 = 0.15;

pub(super) fn section(report: &Report) -> String {
    let mut out = "<section id=\"summary\">\n<h2>Summary</h2>\n".to_owned();
    out.push_str(
        "<p>For each workload, who did best: in requests per second when every connection asks \
         again at once, in the 99th percentile of latency when all models get the same rate, and in \
         processor time per request. Ratios are to the single loop. Models with errors do not \
         win.</p>\n",
    );
    out.push_str(&winners(report).html("winners"));
    out.push_str(&throughput(report).html("matrix"));
    out.push_str(&latency(report).html("matrix"));
    out.push_str(
        "<p class=\"legend\"><span class=\"up3\">better</span> <span class=\"dn3\">worse</span> \
         than the single loop. Differences of a few percent are within what repeats differ.</p>\n",
    );
    out.push_str(&disturbed(report));
    out.push_str(&emulated(report));
    out.push_str(&missing(report));
    out.push_str("</section>\n");
    out
}

fn winners(report: &Report) -> Grid {
    let column = |head, hint| Column { head, hint };
    Grid {
        caption: "The best model for each workload".to_owned(),
        columns: vec![
            column("Workload", ""),
            column("Most requests/s", "closed loop"),
            column("per second", ""),
            column("× single", "compared with the single loop"),
            column("Lowest p99", "at the fixed rate"),
            column("p99", "99th percentile of latency"),
            column("Least CPU", "closed loop"),
            column("per request", "processor time"),
        ],
        rows: report.workloads.iter().map(winner_row).collect(),
    }
}

fn winner_row(workload: &WorkloadReport) -> Vec<Entry> {
    let base = workload.cell(BASELINE).and_then(Cell::throughput);
    let mut row = vec![Entry::text(workload.workload.title())];
    match workload
        .fastest()
        .and_then(|cell| Some((cell.model, cell.throughput()?)))
    {
        Some((model, throughput)) => {
            row.push(Entry::text(model.name()).class("model"));
            row.push(Entry::number(throughput, count));
            row.push(match base {
                Some(base) if base > 0.0 => Entry::number(throughput / base, ratio),
                _ => Entry::missing("the single loop was not measured"),
            });
        }
        None => row.extend(std::iter::repeat_n(
            Entry::missing("nothing was measured"),
            3,
        )),
    }
    let p99 = least(workload, |cell| {
        Some(cell.fixed_rate.as_ref()?.latency.p99.median)
    });
    row.extend(best(p99, time));
    let cpu = least(workload, |cell| {
        Some(cell.closed_loop.as_ref()?.cpu_us_per_request.median)
    });
    row.extend(best(cpu, microseconds));
    row
}

fn microseconds(value: f64) -> String {
    format!("{} µs", number(value))
}

fn best(found: Option<(Model, f64)>, show: fn(f64) -> String) -> [Entry; 2] {
    match found {
        Some((model, value)) => [
            Entry::text(model.name()).class("model"),
            Entry::number(value, show),
        ],
        None => [(); 2].map(|()| Entry::missing("nothing was measured")),
    }
}

/// The model with the least of something, among those without errors.
fn least(workload: &WorkloadReport, of: fn(&Cell) -> Option<f64>) -> Option<(Model, f64)> {
    let cells = workload.cells.iter().filter(|cell| cell.error_count() == 0);
    cells
        .filter_map(|cell| Some((cell.model, of(cell)?)))
        .filter(|(_, value)| *value > 0.0)
        .min_by(|a, b| a.1.total_cmp(&b.1))
}

fn throughput(report: &Report) -> Grid {
    matrix(
        report,
        "Requests per second, compared with the single loop",
        |cell, base| {
            let value = cell.throughput()?;
            let entry = match base.and_then(Cell::throughput) {
                Some(base) if base > 0.0 => {
                    let part = value / base;
                    Entry::number(part, ratio).class(shade(part, THROUGHPUT_STEPS))
                }
                _ => Entry::number(value, count),
            };
            Some(entry.hint(format!("{} requests/s", count(value))))
        },
    )
}

fn latency(report: &Report) -> Grid {
    let p99 = |figures: &Option<Figures>| Some(figures.as_ref()?.latency.p99.median);
    matrix(
        report,
        "99th percentile of latency at the same rate",
        move |cell, base| {
            let value = p99(&cell.fixed_rate)?;
            let entry = Entry::number(value, time);
            Some(match base.and_then(|base| p99(&base.fixed_rate)) {
                Some(base) if value > 0.0 => entry.class(shade(base / value, LATENCY_STEPS)),
                _ => entry,
            })
        },
    )
}

/// Models by workloads.
fn matrix(
    report: &Report,
    caption: &str,
    entry: impl Fn(&Cell, Option<&Cell>) -> Option<Entry>,
) -> Grid {
    let mut columns = vec![Column {
        head: "Model",
        hint: "",
    }];
    columns.extend(report.workloads.iter().map(|workload| Column {
        head: workload.workload.name(),
        hint: workload.workload.title(),
    }));
    let models = report
        .workloads
        .first()
        .map_or(&[][..], |one| &one.cells[..]);
    let rows = models.iter().map(|first| {
        let mut row = vec![Entry::text(first.model.name())];
        row.extend(report.workloads.iter().map(|workload| {
            let cell = workload.cell(first.model);
            let found = cell.and_then(|cell| entry(cell, workload.cell(BASELINE)));
            found.unwrap_or_else(|| Entry::missing(why_missing(cell)))
        }));
        row
    });
    Grid {
        caption: caption.to_owned(),
        rows: rows.collect(),
        columns,
    }
}

fn why_missing(cell: Option<&Cell>) -> String {
    match cell.and_then(|cell| cell.failures.first()) {
        Some(failure) => failure.clone(),
        None => "not measured".to_owned(),
    }
}

/// The class of a cell that is so many times as good as the single loop's.
fn shade(times: f64, steps: [f64; 3]) -> &'static str {
    let size = times.max(1.0 / times);
    let step = steps.iter().filter(|step| size >= **step).count();
    match (times >= 1.0, step) {
        (_, 0) => "",
        (true, 1) => "up1",
        (true, 2) => "up2",
        (true, _) => "up3",
        (false, 1) => "dn1",
        (false, 2) => "dn2",
        (false, _) => "dn3",
    }
}

/// What other programs took of the machine, if that is more than a little.
fn disturbed(report: &Report) -> String {
    let busy = report.others_busy();
    if busy < DISTURBED {
        return String::new();
    }
    format!(
        "<p class=\"partial\" role=\"note\"><strong>The machine was not quiet.</strong> Other programs, \
         or the hypervisor, kept {} of {} cores busy. Throughput and latency are disturbed, in favour \
         of models of many threads, which get a larger share; processor time per request is right \
         in the main.</p>\n",
        number(busy),
        report.machine.cores
    )
}

/// That one model was not what its name says.
fn emulated(report: &Report) -> String {
    report.uring_missing().map_or_else(String::new, |reason| {
        format!(
            "<p class=\"partial\" role=\"note\"><strong>There was no io_uring.</strong> \
             uring-proactor was measured with the emulated driver: {}.</p>\n",
            escape(reason)
        )
    })
}

/// What failed, in words: nothing is hidden.
fn missing(report: &Report) -> String {
    let mut items = BTreeMap::<(Model, String), Vec<&str>>::new();
    for workload in &report.workloads {
        for cell in &workload.cells {
            let mut note = |what| {
                let places = items.entry((cell.model, what)).or_default();
                places.push(workload.workload.name());
            };
            cell.failures.iter().cloned().for_each(&mut note);
            if cell.error_count() > 0 {
                note("requests without a good answer, which are listed below".to_owned());
            }
        }
    }
    if items.is_empty() {
        return "<p>All requests of all runs were answered as they should be.</p>\n".to_owned();
    }
    let items = items.iter().map(|((model, what), places)| {
        let places = places.join(", ");
        format!("<li><b>{model}</b>: {} ({places})</li>\n", escape(what))
    });
    format!(
        "<h3>What went wrong</h3>\n<ul class=\"wrong\">\n{}</ul>\n",
        items.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_tell_better_from_worse() {
        let shades = [1.0, 1.1, 1.3, 9.0, 0.99, 0.9, 0.8, 0.1];
        let shades = shades.map(|times| shade(times, THROUGHPUT_STEPS));
        assert_eq!(shades, ["", "up1", "up2", "up3", "", "dn1", "dn2", "dn3"]);
    }
}
