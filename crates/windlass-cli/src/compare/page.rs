//! The page: one file that shows all, without a network and without a script.
//!
//! What it says of models and workloads stands with them; what figures mean is in `explain`.

mod escape;
mod explain;
mod grid;
mod summary;
mod svg;
mod workload;

use std::time::Duration;

use self::escape::escape;
pub(super) use self::summary::DISTURBED;
use super::progress::clock;
use super::results::Report;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/sort.js");

/// The whole page.
pub(super) fn html(report: &Report) -> String {
    let mut out = String::with_capacity(1 << 20);
    out.push_str(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Concurrency models, measured – windlass compare</title>\n<style>\n",
    );
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n");
    out.push_str(&header(report));
    out.push_str("<main>\n");
    out.push_str(&summary::section(report));
    for workload in &report.workloads {
        out.push_str(&workload::section(workload, report));
    }
    out.push_str(&explain::sections(report));
    out.push_str("</main>\n<script>\n");
    out.push_str(SCRIPT);
    out.push_str("</script>\n</body>\n</html>\n");
    out
}

fn header(report: &Report) -> String {
    let machine = &report.machine;
    let models = report.workloads.first().map_or(0, |one| one.cells.len());
    let took = clock(Duration::from_secs_f64(report.took_s));
    let partial = match report.is_partial {
        true => format!(
            "<p class=\"partial\" role=\"note\"><strong>This report is partial.</strong> The run was \
             interrupted after {took}; figures are missing, or of fewer rounds.</p>\n"
        ),
        false => String::new(),
    };
    let links = report.workloads.iter().map(|one| {
        let (name, title) = (one.workload.name(), one.workload.title());
        format!("<a href=\"#{name}\">{}</a>", escape(title))
    });
    format!(
        "<header>\n<p class=\"brand\">windlass compare</p>\n\
         <h1>Concurrency models, measured side by side</h1>\n\
         <p class=\"lead\">One service under {models} models, {} workloads, on {} ({} cores, {}), \
         {}.</p>\n{partial}<nav aria-label=\"Sections\"><a href=\"#summary\">Summary</a> {} \
         <a href=\"#models\">The models</a> <a href=\"#figures\">What the figures mean</a> \
         <a href=\"#run\">Machine and run</a></nav>\n</header>\n",
        report.workloads.len(),
        escape(&machine.cpu),
        machine.cores,
        escape(&machine.kernel),
        escape(report.date.get(..10).unwrap_or(&report.date)),
        links.collect::<Vec<_>>().join(" "),
    )
}

#[cfg(test)]
mod tests;
