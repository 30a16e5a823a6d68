//! `windlass compare`: every model under the same load, on this machine.
//!
//! ```text
//!  windlass compare ──stdin, stdout──▶ windlass compare-server   one model, one workload
//!        │                                    ▲ TCP
//!        └────────stdin, stdout──▶ windlass compare-load         the clients
//! ```
//!
//! Server and load generator are processes of their own, new for each run and on processors of their
//! own where there are two, so that what the model uses is told apart from what the load does.

mod args;
mod campaign;
mod child;
mod congestion;
mod interrupt;
mod load;
mod machine;
mod measure;
mod model;
mod page;
mod progress;
mod results;
mod scratch;
mod server;
mod service;
mod stats;
mod syscalls;
mod table;
mod units;
mod wire;
mod workload;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

pub(crate) use self::args::{CompareArguments, LoadArguments, ServerArguments};
use self::campaign::Campaign;
use self::interrupt::Interrupt;
pub(crate) use self::load::run as run_load;
use self::machine::Machine;
use self::measure::{Bench, idle_possible};
use self::model::Model;
use self::progress::{Progress, clock};
use self::results::{Report, Settings};
use self::scratch::Scratch;
pub(crate) use self::server::run as run_server;
use self::syscalls::Counter;
use self::workload::Workload;
use crate::{manual, say};

/// With `--quick` no further round goes on after this: all ends within three minutes.
const QUICK_LIMIT: Duration = Duration::from_secs(150);

/// Compares, and reports.
pub(crate) fn run(arguments: &CompareArguments) -> Result<ExitCode, Box<dyn Error>> {
    for path in arguments.json.iter().chain([&arguments.html]) {
        check_writable(path)?;
    }
    let interrupt = Interrupt::watch()?;
    let machine = Machine::look();
    machine::stay_on(&machine.pinning.load)?;
    let compute_steps = service::calibrate();
    let scratch = Scratch::new(&env::temp_dir())?;
    let settings = settings(arguments);
    let campaign = Campaign {
        bench: Bench {
            connections: settings.connections,
            idle: settings.idle,
            threads: settings.threads,
            pinning: &machine.pinning,
            dir: scratch.files(),
            scratch: scratch.dir(),
            compute_steps,
            interrupt: &interrupt,
        },
        models: models(arguments),
        workloads: workloads(arguments),
        rounds: settings.rounds,
        duration: Duration::from_secs_f64(settings.duration_s),
        rate: settings.rate,
        seed: settings.order_seed,
        counter: Counter::find(scratch.dir()),
        time_limit: arguments.quick.then_some(QUICK_LIMIT),
    };
    let mut progress = Progress::new(campaign.step_count());
    let samples = campaign.run(&mut progress);
    progress.end();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        command: command_line(),
        took_s: progress.elapsed().as_secs_f64(),
        is_partial: interrupt.is_set(),
        settings,
        calls_by: campaign.counter.name().to_owned(),
        workloads: campaign.report(&samples)?,
        machine: machine.clone(),
    };
    publish(arguments, &report)?;
    Ok(match report.is_partial {
        true => ExitCode::from(interrupt::EXIT_CODE),
        false => ExitCode::SUCCESS,
    })
}

/// Finds out before anything is measured that the report could not be written.
fn check_writable(path: &Path) -> Result<(), String> {
    let is_new = !path.exists();
    let opened = File::options()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| format!("write {}: {error}", path.display()));
    if is_new && opened.is_ok() {
        // An empty file would be left if the program were killed; it is made anew if this fails.
        let _ = fs::remove_file(path);
    }
    opened.map(drop)
}

/// Writes the files, and prints the tables.
fn publish(arguments: &CompareArguments, report: &Report) -> Result<(), Box<dyn Error>> {
    let write = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).map_err(|error| format!("write {}: {error}", path.display()))
    };
    manual::print(table::text(report).as_bytes())?;
    if let Some(path) = &arguments.json {
        write(path, &serde_json::to_vec_pretty(report)?)?;
    }
    write(&arguments.html, page::html(report).as_bytes())?;
    if let Some(reason) = report.uring_missing() {
        say(format_args!(
            "uring-proactor was measured with the emulated driver: {reason}"
        ));
    }
    let others = report.others_busy();
    if others >= page::DISTURBED {
        let cores = report.machine.cores;
        say(format_args!(
            "the machine was not quiet: other programs kept {others:.2} of {cores} cores busy"
        ));
    }
    let took = clock(Duration::from_secs_f64(report.took_s));
    if report.is_partial {
        say(format_args!(
            "interrupted after {took}: the report is partial"
        ));
    }
    say(format_args!(
        "{} has the plots ({took})",
        arguments.html.display()
    ));
    Ok(())
}

fn settings(arguments: &CompareArguments) -> Settings {
    let brief = (Duration::from_millis(200), 1000, 2);
    let full = (Duration::from_secs(1), 2000, 3);
    let (duration, idle, rounds) = if arguments.quick { brief } else { full };
    let connections = arguments.connections.unwrap_or(64);
    Settings {
        is_quick: arguments.quick,
        connections,
        idle: idle_possible(arguments.idle.unwrap_or(idle), connections),
        duration_s: arguments.duration.unwrap_or(duration).as_secs_f64(),
        threads: arguments.threads,
        rate: arguments.rate,
        rounds: arguments.rounds.unwrap_or(rounds),
        order_seed: arguments.order_seed,
    }
}

/// Those asked for, each once, in the order of the report.
fn models(arguments: &CompareArguments) -> Vec<Model> {
    let asked = &arguments.models;
    let mut models = Model::ALL.to_vec();
    models.retain(|model| asked.is_empty() || asked.contains(model));
    models
}

fn workloads(arguments: &CompareArguments) -> Vec<Workload> {
    let asked: Vec<_> = arguments
        .workloads
        .iter()
        .flat_map(|named| &named.0)
        .collect();
    let mut workloads = Workload::ALL.to_vec();
    workloads.retain(|workload| asked.is_empty() || asked.contains(&workload));
    workloads
}

/// How the program was called, without where it is.
fn command_line() -> String {
    let arguments = env::args_os().skip(1);
    let words = arguments.map(|word| word.to_string_lossy().into_owned());
    std::iter::once("windlass".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}
