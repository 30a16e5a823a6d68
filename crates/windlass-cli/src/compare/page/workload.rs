//! A workload's section: plots, and the table of all its figures.

use super::escape::escape;
use super::grid::{Column, Entry, Grid};
use super::svg::{Bar, Caption, Curves, Range, bars, ranges};
use crate::compare::model::BASELINE;
use crate::compare::results::{Calls, Cell, Figures, Report, WorkloadReport};
use crate::compare::stats::Spread;
use crate::compare::units::{count, mib, number, ratio, time};
use crate::compare::workload::Workload;

pub(super) fn section(report: &WorkloadReport, whole: &Report) -> String {
    let workload = report.workload;
    let name = workload.name();
    let mut out = format!(
        "<section id=\"{name}\">\n<h2>{} <small>{name}</small></h2>\n<p>{}</p>\n",
        escape(workload.title()),
        escape(workload.description()),
    );
    out.push_str(&format!(
        "<p class=\"facts\">{}</p>\n",
        facts(report, whole)
    ));
    out.push_str("<div class=\"plots\">\n");
    out.push_str(&throughput(report));
    out.push_str(&processor(report));
    out.push_str(&latencies(report));
    out.push_str("</div>\n");
    out.push_str(&curves(report));
    out.push_str(&closed_loop(report).html("figures"));
    out.push_str(&fixed_rate(report).html("figures"));
    out.push_str(&errors(report));
    out.push_str("</section>\n");
    out
}

fn facts(report: &WorkloadReport, whole: &Report) -> String {
    let settings = &whole.settings;
    let mut facts = vec![format!("{} active connections", settings.connections)];
    match report.workload {
        Workload::Idle => facts.push(format!("{} idle ones", count(f64::from(settings.idle)))),
        Workload::Slow => {
            let each = (settings.connections / 8).max(1);
            facts.push(format!("{each} slow readers"));
            facts.push(format!("{each} slow writers"));
        }
        _ => {}
    }
    if let Some(rate) = report.rate {
        facts.push(format!("fixed rate {} requests/s", count(rate)));
    }
    let rounds = report
        .cells
        .iter()
        .filter_map(|cell| cell.closed_loop.as_ref());
    if let Some(rounds) = rounds.map(|figures| figures.rounds).min() {
        facts.push(match rounds {
            1 => "1 round".to_owned(),
            rounds => format!("{rounds} rounds"),
        });
    }
    facts.join(" · ")
}

/// A plot with its heading.
fn figure(title: &str, note: &str, plot: &str) -> String {
    format!(
        "<figure><figcaption><b>{}</b> {}</figcaption>\n{plot}</figure>\n",
        escape(title),
        escape(note)
    )
}

fn bar(cell: &Cell, spread: Option<Spread>, part: Option<f64>, show: fn(f64) -> String) -> Bar {
    Bar {
        name: cell.model.name(),
        is_baseline: cell.model == BASELINE,
        spread,
        part,
        label: label(cell, spread.map(|spread| show(spread.median))),
    }
}

/// The figure, or that there is none; the reason is in the summary.
fn label(cell: &Cell, figure: Option<String>) -> String {
    figure.unwrap_or_else(|| match cell.failures.is_empty() {
        true => "not measured".to_owned(),
        false => "failed".to_owned(),
    })
}

fn throughput(report: &WorkloadReport) -> String {
    let rows = report.cells.iter().map(|cell| {
        let figures = cell.closed_loop.as_ref();
        bar(
            cell,
            figures.map(|figures| figures.requests_per_s),
            None,
            count,
        )
    });
    let rows = rows.collect::<Vec<_>>();
    let id = format!("{}-throughput", report.workload);
    let caption = Caption {
        id: &id,
        title: "Requests per second in a closed loop",
        description: &described(&rows),
    };
    figure(
        "Requests per second",
        "closed loop, more is better",
        &bars(caption, &rows, short),
    )
}

fn processor(report: &WorkloadReport) -> String {
    let rows = report.cells.iter().map(|cell| {
        let figures = cell.closed_loop.as_ref();
        let spread = figures.map(|figures| figures.cpu_us_per_request);
        let part = figures.map(|figures| {
            let (user, system) = (figures.user_s.median, figures.system_s.median);
            let all = user + system;
            let part = if all > 0.0 { user / all } else { 0.0 };
            part * figures.cpu_us_per_request.median
        });
        bar(cell, spread, part, number)
    });
    let rows = rows.collect::<Vec<_>>();
    let id = format!("{}-processor", report.workload);
    let caption = Caption {
        id: &id,
        title: "Processor time of the server per request, in microseconds",
        description: &described(&rows),
    };
    figure(
        "CPU µs per request",
        "strong part: outside of the kernel; less is better",
        &bars(caption, &rows, short),
    )
}

fn latencies(report: &WorkloadReport) -> String {
    let rows = report.cells.iter().map(|cell| {
        let latency = cell.fixed_rate.as_ref().map(|figures| figures.latency);
        Range {
            name: cell.model.name(),
            is_baseline: cell.model == BASELINE,
            at: latency.map(|at| [at.p50, at.p99, at.p999].map(|spread| spread.median)),
            label: label(cell, latency.map(|at| time(at.p99.median))),
        }
    });
    let rows = rows.collect::<Vec<_>>();
    let described = rows
        .iter()
        .map(|row| format!("{}: {}", row.name, row.label));
    let id = format!("{}-latency", report.workload);
    let caption = Caption {
        id: &id,
        title: "Latency at the fixed rate: 50th, 99th and 99.9th percentile",
        description: &format!("p99 of {}", described.collect::<Vec<_>>().join(", ")),
    };
    figure(
        "Latency",
        "fixed rate; ○ p50, ● p99 (in figures), line to p99.9",
        &ranges(caption, &rows, tick_time),
    )
}

fn described(rows: &[Bar]) -> String {
    let rows = rows
        .iter()
        .map(|row| format!("{}: {}", row.name, row.label));
    rows.collect::<Vec<_>>().join(", ")
}

/// Small plots, one for each model: its latencies before those of all others.
fn curves(report: &WorkloadReport) -> String {
    let points = |cell: &Cell| {
        cell.fixed_rate
            .as_ref()
            .map(|figures| figures.curve.clone())
    };
    let all: Vec<_> = report.cells.iter().map(points).collect();
    if all.iter().flatten().all(Vec::is_empty) {
        return String::new();
    }
    let curves = Curves::new(all.iter().flatten().map(|points| &points[..]));
    let name = report.workload.name();
    let (mut paths, mut plots) = (String::new(), String::new());
    for (cell, points) in report.cells.iter().zip(&all) {
        let model = cell.model.name();
        let own = format!("{name}-{model}");
        if let Some(points) = points {
            paths.push_str(&format!(
                "<path id=\"{own}\" d=\"{}\"/>",
                curves.path(points)
            ));
        }
        let id = format!("{own}-curve");
        let caption = Caption {
            id: &id,
            title: &format!("Latency by percentile: {model}"),
            description: "Both axes are logarithmic; the other models are in grey.",
        };
        let own = points.as_ref().map(|_| &own[..]);
        let plot = curves.plot(caption, own, &format!("{name}-all"), tick_time);
        let failed = match own {
            Some(_) => "",
            None => " <span class=\"none\">not measured</span>",
        };
        plots.push_str(&format!(
            "<figure><figcaption><b>{model}</b>{failed}</figcaption>\n{plot}</figure>\n"
        ));
    }
    format!(
        "<h3>Latency by percentile</h3>\n<p class=\"note\">At the fixed rate, over all rounds, in percent \
         of the requests; each model before the others in grey. To the right ever fewer requests, \
         which waited ever longer.</p>\n<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
         <g id=\"{name}-all\">{paths}</g></defs></svg>\n<div class=\"small\">\n{plots}</div>\n"
    )
}

/// Columns of the closed loop, but the first: heading, hint.
const CLOSED_LOOP: [(&str, &str); 13] = [
    ("requests/s", "answers within the window, per second"),
    ("× single", "compared with the single loop"),
    ("CPU µs/req", "processor time of the server per request"),
    (
        "user s",
        "processor time outside of the kernel within the window",
    ),
    (
        "system s",
        "processor time within the kernel within the window",
    ),
    (
        "vol. sw.",
        "voluntary context switches within the window: a thread had to wait",
    ),
    (
        "invol. sw.",
        "involuntary ones: the processor was taken away",
    ),
    (
        "calls/req",
        "system calls per request, counted in a run of their own",
    ),
    ("RSS MiB", "resident memory at its peak"),
    (
        "PSS MiB",
        "memory, shared pages divided among those who share them",
    ),
    ("threads", "at the end of the run"),
    (
        "load %",
        "how busy the load generator was; near 100 it was the limit",
    ),
    ("errors", "requests without a good answer"),
];

fn closed_loop(report: &WorkloadReport) -> Grid {
    let base = report.cell(BASELINE).and_then(Cell::throughput);
    let is_compute = report.workload == Workload::Compute;
    let mut columns = columns(&CLOSED_LOOP);
    if is_compute {
        let column = Column {
            head: "computes",
            hint: "where the requests that compute do so",
        };
        columns.insert(1, column);
    }
    let rows = report.cells.iter().map(|cell| {
        let mut row = vec![Entry::text(cell.model.name())];
        row.extend(is_compute.then(|| Entry::text(cell.compute)));
        match &cell.closed_loop {
            Some(figures) => row.extend(closed_loop_row(cell, figures, base)),
            None => row.extend(CLOSED_LOOP.map(|_| missing(cell))),
        }
        row
    });
    Grid {
        caption: "Closed loop".to_owned(),
        rows: rows.collect(),
        columns,
    }
}

fn closed_loop_row(cell: &Cell, figures: &Figures, base: Option<f64>) -> [Entry; 13] {
    let times = match base {
        Some(base) if base > 0.0 => Entry::number(figures.requests_per_s.median / base, ratio),
        _ => Entry::missing("the single loop was not measured"),
    };
    let switches = |all, per_request| spread(all, count).hint(each(per_request));
    [
        spread(figures.requests_per_s, count),
        times,
        spread(figures.cpu_us_per_request, number),
        spread(figures.user_s, number),
        spread(figures.system_s, number),
        switches(figures.voluntary_switches, figures.voluntary_per_request),
        switches(
            figures.involuntary_switches,
            figures.involuntary_per_request,
        ),
        calls(cell),
        spread(figures.rss_peak_bytes, mib),
        spread(figures.pss_bytes, mib),
        spread(figures.threads, count),
        percent(figures.load_busy.median),
        error_count(figures),
    ]
}

/// Columns of the fixed rate, but the first.
const FIXED_RATE: [(&str, &str); 11] = [
    ("reached/s", "answers within the window, per second"),
    ("p50", "half of the requests took no longer"),
    ("p90", "90 % took no longer"),
    ("p99", "99 % took no longer"),
    ("p99.9", "99.9 % took no longer"),
    ("max", "the longest"),
    ("CPU µs/req", "processor time of the server per request"),
    ("vol./req", "voluntary context switches per request"),
    ("invol./req", "involuntary context switches per request"),
    ("late", "how late the load generator itself was, p99"),
    ("errors", "requests without a good answer"),
];

fn fixed_rate(report: &WorkloadReport) -> Grid {
    let is_compute = report.workload == Workload::Compute;
    let mut columns = columns(&FIXED_RATE);
    if is_compute {
        columns.push(Column {
            head: "computing p50",
            hint: "median latency of the requests that compute",
        });
    }
    let rows = report.cells.iter().map(|cell| {
        let mut row = vec![Entry::text(cell.model.name())];
        match &cell.fixed_rate {
            Some(figures) => row.extend(fixed_rate_row(figures)),
            None => row.extend(FIXED_RATE.map(|_| missing(cell))),
        }
        if is_compute {
            let figures = cell.fixed_rate.as_ref();
            let latency = figures.and_then(|figures| figures.compute_latency);
            row.push(latency.map_or_else(|| missing(cell), |latency| spread(latency.p50, time)));
        }
        row
    });
    let rate = report.rate.map_or_else(
        || "the fixed rate".to_owned(),
        |rate| format!("{} requests/s", count(rate)),
    );
    Grid {
        caption: format!("At {rate}, latency from when each request was due"),
        rows: rows.collect(),
        columns,
    }
}

fn fixed_rate_row(figures: &Figures) -> [Entry; 11] {
    let at = &figures.latency;
    [
        spread(figures.requests_per_s, count),
        spread(at.p50, time),
        spread(at.p90, time),
        spread(at.p99, time),
        spread(at.p999, time),
        spread(at.max, time),
        spread(figures.cpu_us_per_request, number),
        spread(figures.voluntary_per_request, number),
        spread(figures.involuntary_per_request, number),
        spread(figures.late_p99_s, time),
        error_count(figures),
    ]
}

/// The model's column, and these.
fn columns(others: &[(&'static str, &'static str)]) -> Vec<Column> {
    let model = std::iter::once(&("Model", ""));
    let columns = model.chain(others);
    columns.map(|&(head, hint)| Column { head, hint }).collect()
}

/// The median; the range of the rounds for who points at it.
fn spread(spread: Spread, show: fn(f64) -> String) -> Entry {
    let entry = Entry::number(spread.median, show);
    if spread.min < spread.max {
        entry.hint(format!("{} to {}", show(spread.min), show(spread.max)))
    } else {
        entry
    }
}

fn each(spread: Spread) -> String {
    format!("{} per request", number(spread.median))
}

fn percent(part: f64) -> Entry {
    let entry = Entry::number(part * 100.0, |value| format!("{value:.0}"));
    // The generator was the limit: the model could do more.
    if part > 0.95 {
        entry.class("limit")
    } else {
        entry
    }
}

fn error_count(figures: &Figures) -> Entry {
    let errors = figures.errors.values().sum::<u64>();
    let entry = Entry::number(errors as f64, count);
    if errors > 0 {
        entry.class("limit")
    } else {
        entry
    }
}

fn calls(cell: &Cell) -> Entry {
    match &cell.calls {
        Some(Calls::PerRequest(calls)) => Entry::number(*calls, number),
        Some(Calls::Unknown(why)) => Entry::missing(why.clone()),
        None => missing(cell),
    }
}

fn missing(cell: &Cell) -> Entry {
    let why = cell.failures.first();
    Entry::missing(why.map_or("not measured", String::as_str))
}

/// Errors by kind, and why calls were not counted.
fn errors(report: &WorkloadReport) -> String {
    let mut items = String::new();
    for cell in &report.cells {
        let loops = [
            ("closed loop", &cell.closed_loop),
            ("fixed rate", &cell.fixed_rate),
        ];
        for (name, figures) in loops {
            let errors = figures.as_ref().map(|figures| &figures.errors);
            for (what, times) in errors.into_iter().flatten() {
                let what = escape(what);
                items.push_str(&format!(
                    "<li><b>{}</b>, {name}: {times} × {what}</li>\n",
                    cell.model
                ));
            }
        }
        if let Some(Calls::Unknown(why)) = &cell.calls {
            let why = escape(why);
            items.push_str(&format!(
                "<li><b>{}</b>: system calls were not counted: {why}</li>\n",
                cell.model
            ));
        }
    }
    match items.is_empty() {
        true => String::new(),
        false => format!("<ul class=\"wrong\">\n{items}</ul>\n"),
    }
}

/// A number of an axis.
fn short(value: f64) -> String {
    if value >= 1000.0 {
        format!("{}k", trimmed(value / 1000.0))
    } else {
        trimmed(value)
    }
}

/// A time of an axis: a power of ten.
fn tick_time(seconds: f64) -> String {
    // A little more, so that rounding does not make 999 of 1000.
    let ns = seconds * 1e9 * 1.000_001;
    match ns {
        ns if ns < 1e3 => format!("{} ns", ns.floor()),
        ns if ns < 1e6 => format!("{} µs", (ns / 1e3).floor()),
        ns if ns < 1e9 => format!("{} ms", (ns / 1e6).floor()),
        ns => format!("{} s", (ns / 1e9).floor()),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0")
        .map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_labelled_shortly() {
        assert_eq!(
            [0.0, 500.0, 1500.0, 20_000.0].map(short),
            ["0", "500", "1.5k", "20k"]
        );
        let times = [1e-7, 1e-6, 1e-5, 1e-3, 0.1, 1.0, 10.0].map(tick_time);
        assert_eq!(
            times,
            ["100 ns", "1 µs", "10 µs", "1 ms", "100 ms", "1 s", "10 s"]
        );
    }
}
