//! `windlass compare`, run briefly: what it writes, how it ends, and that it leaves nobody behind.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Program, TempDir, run, send_signal};
use rustix::process::Signal;
use serde_json::Value;

/// `windlass compare` in a directory of its own, which temporary files go to as well.
fn compare(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("compare").args(arguments).current_dir(dir);
    command.env("TMPDIR", dir);
    command
}

/// Two models, two workloads, as short as can be.
const BRIEF: [&str; 7] = [
    "--models=single-loop,multi-loop",
    "--workloads=hello,echo",
    "--connections=4",
    "--duration=100ms",
    "--rounds=2",
    "--json=figures.json",
    "--html=page.html",
];

/// A process of `windlass compare` that is a child of `parent`.
fn children(parent: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(") ")?.1;
    fields.split(' ').nth(1)?.parse().ok()
}

/// Whether a process runs; one that has ended, waited for or not, does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, fields)| fields.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

/// A number above zero at `path` of `value`.
#[track_caller]
fn positive(value: &Value, path: &str) {
    let found = value.pointer(path).and_then(Value::as_f64);
    assert!(
        found.is_some_and(|found| found > 0.0),
        "{path}: {found:?} in {value}"
    );
}

#[test]
fn a_brief_run_fills_every_cell_of_table_json_and_page() {
    let dir = TempDir::new("compare");
    // A rate that any machine keeps up with, however busy it is: no request is left without an answer.
    let mut command = compare(&dir.0, &BRIEF);
    let output = command.arg("--rate=200").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("round 1: hello"), "{stderr}");
    table_is_complete(&String::from_utf8(output.stdout).unwrap());
    let json = fs::read_to_string(dir.0.join("figures.json")).unwrap();
    figures_are_complete(&serde_json::from_str(&json).unwrap());
    let page = dir.0.join("page.html");
    page_needs_nothing(&fs::read_to_string(&page).unwrap());
    page_is_drawn(&page);
    // Nothing else is left.
    let left = scratch_dirs(&dir.0);
    assert!(left.is_empty(), "{left:?}");
}

/// What is left of the files that pass.
fn scratch_dirs(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("windlass-compare"))
        .collect()
}

fn table_is_complete(table: &str) {
    for model in ["single-loop", "multi-loop"] {
        let rows: Vec<_> = table
            .lines()
            .filter(|line| line.trim().split(' ').next() == Some(model))
            .collect();
        // Two workloads, each in a closed loop and at a fixed rate.
        assert_eq!(rows.len(), 4, "{table}");
        for row in rows {
            let cells: Vec<_> = row
                .split("  ")
                .filter(|cell| !cell.trim().is_empty())
                .collect();
            assert!(cells.len() == 14 || cells.len() == 9, "{row}");
            // System calls are counted where a tool may.
            let missing = cells.iter().filter(|cell| cell.trim() == "-").count();
            assert!(missing <= 1, "{row}");
        }
    }
}

fn figures_are_complete(report: &Value) {
    assert_eq!(report["is_partial"], false);
    positive(report, "/machine/cores");
    let workloads = report["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 2);
    for workload in workloads {
        positive(workload, "/rate");
        let cells = workload["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2);
        for cell in cells {
            assert_eq!(cell["failures"].as_array().map(Vec::len), Some(0), "{cell}");
            for pace in ["closed_loop", "fixed_rate"] {
                let figures = &cell[pace];
                assert_eq!(figures["rounds"], 2);
                assert_eq!(
                    figures["errors"].as_object().map(|all| all.len()),
                    Some(0),
                    "{figures}"
                );
                for path in [
                    "/requests_per_s/median",
                    "/latency/p50/median",
                    "/latency/p90/min",
                    "/latency/p99/max",
                    "/latency/p999/median",
                    "/latency/max/median",
                    "/cpu_us_per_request/median",
                    "/rss_peak_bytes/median",
                    "/pss_bytes/median",
                    "/threads/median",
                    "/load_busy/median",
                ] {
                    positive(figures, path);
                }
                assert!(
                    figures["curve"]
                        .as_array()
                        .is_some_and(|curve| curve.len() > 5)
                );
                let all = ["p50", "p90", "p99", "p999", "max"];
                let latencies = all.map(|at| figures["latency"][at]["median"].as_f64().unwrap());
                assert!(latencies.is_sorted(), "{latencies:?}");
            }
            let calls = &cell["calls"];
            match calls["per_request"].as_f64() {
                // A server that does not answer with a read and a write does so in batches.
                Some(calls) => assert!(calls > 0.0 && calls < 20.0, "{calls}"),
                None => assert!(calls["unknown"].is_string(), "{calls}"),
            }
        }
    }
}

fn page_needs_nothing(page: &str) {
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

/// A real browser draws every plot: each has a size and shapes within.
fn page_is_drawn(page: &Path) {
    let profile = TempDir::new("chromium-compare");
    let probe = page.with_file_name("probe.html");
    let script = "<script>
        const shapes = 'rect, path, line, circle, use';
        const drawn = [...document.querySelectorAll('svg[role=img]')].map((svg) => {
            const box = svg.getBoundingClientRect();
            const sized = [...svg.querySelectorAll(shapes)].some((one) => {
                const within = one.getBBox();
                return within.width > 1 || within.height > 1;
            });
            return box.width > 100 && box.height > 20 && sized;
        });
        document.documentElement.dataset.plots = drawn.length;
        document.documentElement.dataset.drawn = drawn.filter(Boolean).length;
        document.documentElement.dataset.buttons = document.querySelectorAll('th button').length;
        </script></body>";
    let text = fs::read_to_string(page).unwrap().replace("</body>", script);
    fs::write(&probe, text).unwrap();
    let output = run(
        "chromium",
        &[
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--user-data-dir={}", profile.0.display()),
            "--dump-dom",
            &format!("file://{}", probe.display()),
        ],
    );
    let dom = String::from_utf8_lossy(&output.stdout);
    let root = dom
        .split('>')
        .find(|tag| tag.contains("<html"))
        .unwrap_or_default();
    // Two workloads, each with three plots and a small one for each of two models.
    assert!(
        root.contains("data-plots=\"10\"") && root.contains("data-drawn=\"10\""),
        "{root}"
    );
    assert!(
        root.contains("data-buttons=") && !root.contains("data-buttons=\"0\""),
        "{root}"
    );
}

#[test]
fn ctrl_c_gives_a_report_of_what_was_measured() {
    let dir = TempDir::new("compare-interrupted");
    let mut arguments = BRIEF.to_vec();
    // It would go on for longer than any test may.
    arguments[4] = "--rounds=99";
    let mut command = compare(&dir.0, &arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Program::start(&mut command);
    let lines = BufReader::new(program.stderr())
        .lines()
        .map_while(Result::ok);
    let mut is_told = false;
    for line in lines {
        // Once: the second time it ends at once.
        let is_later = line.contains("round ") && !line.contains("round 1: ");
        if is_later && !is_told {
            is_told = true;
            send_signal(program.pid(), Signal::INT);
        }
    }
    assert_eq!(program.wait().code(), Some(130));
    let json = fs::read_to_string(dir.0.join("figures.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["is_partial"], true);
    positive(
        &report,
        "/workloads/0/cells/0/closed_loop/requests_per_s/median",
    );
    let rounds = &report["workloads"][0]["cells"][0]["closed_loop"]["rounds"];
    assert!(
        rounds.as_u64().is_some_and(|rounds| rounds < 99),
        "{rounds}"
    );
    let page = fs::read_to_string(dir.0.join("page.html")).unwrap();
    assert!(page.contains("This report is partial."));
}

#[test]
fn unknown_names_are_refused_with_those_that_there_are() {
    let dir = TempDir::new("compare-names");
    for (argument, named) in [
        (
            "--models=single-loop,nobody",
            "half-sync-half-async, leader-followers",
        ),
        (
            "--workloads=nothing",
            "hello, file-4k, file-1m, idle, slow, compute, echo",
        ),
    ] {
        let output = compare(&dir.0, &[argument]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(named), "{stderr}");
    }
}

#[test]
fn a_report_that_can_not_be_written_is_refused_before_it_is_measured() {
    let dir = TempDir::new("compare-unwritable");
    for flag in ["--json", "--html"] {
        let argument = format!("{flag}={}/missing/file", dir.0.display());
        // Would take an hour.
        let arguments = ["--duration=1h", &argument];
        let output = compare(&dir.0, &arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("missing/file: No such file"), "{stderr}");
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
    }
}

#[test]
fn children_end_when_the_parent_is_killed_and_the_next_removes_its_files() {
    let dir = TempDir::new("compare-killed");
    let mut arguments = BRIEF.to_vec();
    arguments[3] = "--duration=60s";
    let mut command = compare(&dir.0, &arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Program::start(&mut command);
    let mut found = BTreeSet::new();
    wait_until("there are a server and a load", || {
        found = children(program.pid());
        found.len() == 2
    });
    send_signal(program.pid(), Signal::KILL);
    program.wait();
    wait_until("the children have ended", || {
        !found.iter().any(|pid| runs(*pid))
    });
    assert_eq!(scratch_dirs(&dir.0).len(), 1);
    let names = ["--models=single-loop", "--workloads=hello"];
    let mut command = compare(&dir.0, &names);
    command.args(&BRIEF[2..]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(scratch_dirs(&dir.0).is_empty());
}

/// A server that answers as `hello` should, and stops once for [`STALL`], on all connections.
struct Staller {
    addr: SocketAddr,
    /// Requests until it stops; below zero, it has.
    left: Arc<AtomicI64>,
}

const STALL: Duration = Duration::from_millis(200);

impl Staller {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let (counter, gate) = (Arc::clone(&left), Arc::new(Mutex::new(())));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (counter, gate) = (Arc::clone(&counter), Arc::clone(&gate));
                thread::spawn(move || serve_hello(stream, &counter, &gate));
            }
        });
        Self { addr, left }
    }
}

fn serve_hello(stream: TcpStream, left: &AtomicI64, gate: &Mutex<()>) {
    let mut answers = stream.try_clone().unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n{}",
        "x".repeat(64)
    );
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if line.is_empty() {
            let held = gate.lock().unwrap();
            if left.fetch_sub(1, Ordering::SeqCst) == 0 {
                // What is measured, not what is waited for.
                thread::sleep(STALL);
            }
            drop(held);
            if answers.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    }
}

/// How many requests took longer than a quarter of [`STALL`], in half a second.
fn late_answers(pace: &str) -> u64 {
    let server = Staller::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["compare-load", "--workload=hello", "--connections=2"]);
    command.args([
        "--warm-up=1ms",
        "--duration=500ms",
        &format!("--addr={}", server.addr),
    ]);
    command
        .arg(pace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = Program::start(&mut command);
    let (mut orders, answers) = program.pipes();
    let mut lines = BufReader::new(answers).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "\"Ready\"");
    server.left.store(20, Ordering::SeqCst);
    orders.write_all(b"go\n").unwrap();
    let result: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    drop(orders);
    assert_eq!(program.wait().code(), Some(0));
    let result = &result["Result"];
    assert_eq!(
        result["errors"].as_object().map(|all| all.len()),
        Some(0),
        "{result}"
    );
    let limit = STALL.as_nanos() as u64 / 4;
    let pairs = result["latencies"].as_array().unwrap().iter();
    let pairs = pairs.map(|pair| (pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap()));
    pairs
        .filter(|(ns, _)| *ns > limit)
        .map(|(_, count)| count)
        .sum()
}

/// Coordinated omission: at 1,000 requests a second, 150 are due in the first three quarters of the
/// stall, and wait for the rest of it, though only two connections were there to wait on.
#[test]
fn a_stall_is_charged_for_all_requests_that_were_due_in_it() {
    let late = late_answers("--rate=1000");
    assert!(late >= 100, "{late}");
}
