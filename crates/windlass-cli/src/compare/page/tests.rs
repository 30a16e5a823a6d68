use crate::compare::machine::Machine;
use crate::compare::model::Model;
use crate::compare::results::tests::sample;
use crate::compare::results::{Calls, Cell, Figures, Report, Settings, WorkloadReport};
use crate::compare::workload::Workload;

use super::html;

fn report() -> Report {
    let measured = |model| Cell {
        closed_loop: Figures::of(&[sample(900), sample(1100)]).expect("bounds"),
        fixed_rate: Figures::of(&[sample(500)]).expect("bounds"),
        calls: Some(Calls::PerRequest(2.1)),
        ..Cell::new(model)
    };
    let failed = Cell {
        failures: vec!["<no> & \"never\"".to_owned()],
        calls: Some(Calls::Unknown("perf: not installed".to_owned())),
        ..Cell::new(Model::ThreadPool)
    };
    let workload = |workload| WorkloadReport {
        workload,
        rate: Some(500.0),
        cells: vec![
            measured(Model::SingleLoop),
            measured(Model::Hybrid),
            failed.clone(),
        ],
    };
    Report {
        version: "0",
        date: "2026-01-02T03:04:05Z".to_owned(),
        command: "windlass compare --html <x>".to_owned(),
        took_s: 65.0,
        is_partial: true,
        machine: Machine::look(),
        settings: Settings {
            is_quick: true,
            connections: 64,
            idle: 1000,
            duration_s: 0.25,
            threads: None,
            rate: None,
            rounds: 2,
            order_seed: 1,
        },
        calls_by: "perf".to_owned(),
        workloads: vec![workload(Workload::Hello), workload(Workload::Compute)],
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = html(&report());
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let references = page.split("href=\"").skip(1);
    assert!(references.clone().count() > 10);
    assert!(
        references
            .clone()
            .all(|reference| reference.starts_with('#'))
    );
    // What is referred to is there, once.
    for reference in references.filter_map(|text| text.split('"').next()) {
        let id = format!("id=\"{}\"", &reference[1..]);
        assert_eq!(page.matches(&id).count(), 1, "{id}");
    }
}

#[test]
fn texts_from_outside_are_text() {
    let page = html(&report());
    assert!(page.contains("&lt;no&gt; &amp; &quot;never&quot;"));
    assert!(page.contains("--html &lt;x&gt;"));
    assert!(!page.contains("<no>"));
    // The script knows it.
    let body = page.split_once("<script>").expect("a script").0;
    assert!(!body.contains("NaN") && !body.contains(">inf"));
}

#[test]
fn what_is_missing_is_said() {
    let page = html(&report());
    assert!(page.contains("This report is partial."));
    assert!(page.contains("perf: not installed"));
    assert!(page.contains("in the loop") && page.contains("off-loaded"));
}

#[test]
fn tags_are_closed_in_order() {
    let page = html(&report());
    let body = page.split_once("<body>").expect("a body").1;
    let body = body.split_once("<script>").expect("a script").0;
    let mut open = Vec::new();
    for tag in body.split('<').skip(1) {
        let tag = tag.split_once('>').expect("a tag ends").0;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') {
            open.push(tag.split([' ', '\n']).next().expect("a name"));
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_proactor_without_io_uring_is_said_to_be_one() {
    let mut report = report();
    for workload in &mut report.workloads {
        workload.cells[0].model = Model::UringProactor;
    }
    report.machine.uring_missing = None;
    assert!(!html(&report).contains("There was no io_uring"));
    report.machine.uring_missing = Some("a <filter> forbids it".to_owned());
    assert!(html(&report).contains("emulated driver: a &lt;filter&gt; forbids it"));
}
