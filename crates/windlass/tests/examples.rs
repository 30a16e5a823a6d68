//! Every example, run as its readers run it: with standard input as a pipe, a file, `/dev/null`
//! and a terminal's stand-in, bounded in time. Cargo builds the examples before these tests.

#[path = "common/loops.rs"]
mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{guarded, on_each_backend};
use windlass::demultiplexer::{Backend, ENVIRONMENT_VARIABLE};

on_each_backend! {
    echo_brings_each_line_back
    echo_serves_until_interrupted
    priorities_are_kept
    signals_are_reported_and_end_it
    the_pool_brings_all_results
    ticker_ends_at_the_end_of_its_input
    ticker_ends_by_quit
    ticker_ticks_and_ends_by_ctrl_c
}

/// The example's binary: beside the directory of this test's.
fn command(example: &str, backend: Backend) -> Command {
    let test = std::env::current_exe().expect("current_exe");
    let target = test.ancestors().nth(2).expect("target/debug");
    let path: PathBuf = target.join("examples").join(example);
    let mut command = Command::new(path);
    command.env(ENVIRONMENT_VARIABLE, backend.name());
    command
}

/// Runs it to its end, which must be a good one, and answers what it printed.
fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().expect("run");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// An example that goes on until told otherwise.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout }
    }

    /// Reads until a line contains `what`.
    fn wait_for(&mut self, what: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.stdout.read_line(&mut line).expect("read");
            assert!(count > 0, "it ended without {what:?}");
            if line.contains(what) {
                return line;
            }
        }
    }

    fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(text.as_bytes()).expect("write");
    }

    fn send(&self, signal: i32) {
        let pid = self.child.id().cast_signed();
        // SAFETY: kill takes two numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Waits for its good end and answers what else it printed.
    fn join(mut self) -> String {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("read");
        let status = self.child.wait().expect("wait");
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

fn ticker_ticks_and_ends_by_ctrl_c(backend: Backend) {
    let mut ticker = Running::start(&mut command("ticker", backend));
    ticker.wait_for("type a line");
    ticker.write("hello\r\nwor");
    ticker.wait_for(r#"you typed: "hello""#);
    ticker.wait_for("[tick 1]");
    ticker.write("ld\n");
    ticker.wait_for(r#"you typed: "world""#);
    ticker.send(libc::SIGINT);
    ticker.wait_for("caught SIGINT");
    assert!(ticker.join().starts_with("ticked "));
}

fn ticker_ends_by_quit(backend: Backend) {
    let mut ticker = Running::start(&mut command("ticker", backend));
    ticker.wait_for("type a line");
    ticker.write("quit\nnever seen\n");
    let rest = ticker.join();
    assert!(
        rest.contains("ticked 0 times") && !rest.contains("never"),
        "{rest}"
    );
}

fn ticker_ends_at_the_end_of_its_input(backend: Backend) {
    let null = File::open("/dev/null").expect("open");
    let text = output(command("ticker", backend).stdin(null));
    assert_eq!(text, "type a line, or quit\nticked 0 times\n");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let file = File::open(manifest).expect("open");
    let text = output(command("ticker", backend).stdin(file));
    let lines = std::fs::read_to_string(manifest)
        .expect("read")
        .lines()
        .count();
    assert_eq!(text.matches("you typed").count(), lines);
    assert!(text.contains(r#"you typed: "[package]""#));
}

fn echo_brings_each_line_back(backend: Backend) {
    let null = File::open("/dev/null").expect("open");
    let text = output(command("echo", backend).stdin(null));
    assert!(!text.contains("echoed"), "{text}");
    // More than all buffers on the way hold, and one line that is larger than a read.
    let path = std::env::temp_dir().join(format!("windlass-echo-{}-{backend}", std::process::id()));
    let mut file = File::create(&path).expect("create");
    writeln!(file, "{}", "x".repeat(50_000)).expect("write");
    for number in 0..20_000 {
        writeln!(file, "line {number} with some more text to it").expect("write");
    }
    let text = output(command("echo", backend).stdin(File::open(&path).expect("open")));
    std::fs::remove_file(&path).expect("remove");
    assert_eq!(text.matches("echoed: line").count(), 20_000);
    assert!(text.contains(&"x".repeat(50_000)));
    let mut echo = Running::start(&mut command("echo", backend));
    echo.write("one\n");
    echo.wait_for("echoed: one");
    echo.write("two");
    drop(echo.child.stdin.take());
    assert_eq!(echo.join(), "echoed: two\n");
}

fn echo_serves_until_interrupted(backend: Backend) {
    let mut echo = Running::start(command("echo", backend).arg("--serve"));
    let line = echo.wait_for("listening on ");
    let address = line.trim_start_matches("listening on ").trim();
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(address).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("set");
        stream.write_all(b"hello").expect("write");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("read");
        assert_eq!(back, b"hello");
    }
    // It has no handler for it: the default ends it. (SIGINT would do so too, but not where the
    // tests run in the background, which starts them with it ignored.)
    echo.send(libc::SIGTERM);
    let status = echo.child.wait().expect("wait");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGTERM)
    );
}

fn signals_are_reported_and_end_it(backend: Backend) {
    let mut signals = Running::start(&mut command("signals", backend));
    let line = signals.wait_for("waits for signals");
    assert!(line.contains(&signals.child.id().to_string()));
    signals.send(libc::SIGUSR1);
    let sender = format!("SIGUSR1 from process {}", std::process::id());
    signals.wait_for(&sender);
    // Both of its children ended, one of them badly; in which order is not said.
    signals.send(libc::SIGTERM);
    let rest = signals.join();
    assert!(
        rest.contains("SIGTERM") && rest.ends_with("done\n"),
        "{rest}"
    );
}

fn priorities_are_kept(backend: Backend) {
    let text = output(command("priorities", backend).stdin(Stdio::null()));
    let order: Vec<&str> = text.lines().skip(1).take(4).map(str::trim).collect();
    assert_eq!(
        order,
        ["urgent", "urgent, the second", "normal", "background"]
    );
    assert!(text.contains("background never ran"), "{text}");
    assert!(text.contains("background runs, after "), "{text}");
}

fn the_pool_brings_all_results(backend: Backend) {
    let text = output(command("worker_pool", backend).stdin(Stdio::null()));
    assert_eq!(text.matches(" primes below ").count(), 8);
    assert!(text.contains("5133 primes below 50000"), "{text}");
    assert!(text.contains("8 results"), "{text}");
}

#[test]
fn every_example_is_run_here() {
    guarded("every_example_is_run_here", || {
        let known = [
            "echo.rs",
            "priorities.rs",
            "signals.rs",
            "ticker.rs",
            "worker_pool.rs",
        ];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
        for entry in std::fs::read_dir(directory).expect("read") {
            let name = entry.expect("entry").file_name();
            let name = name.to_str().expect("UTF-8");
            let text = std::fs::read_to_string(format!("{directory}/{name}")).expect("read");
            assert!(text.starts_with("//! "), "{name} says what it shows");
            assert!(
                text.lines().count() < 80,
                "{name} is too long for an example"
            );
            // Others may be added by others, with tests of their own.
            if !known.contains(&name) {
                println!("{name} is not run here");
            }
        }
    });
}

#[test]
fn proactor_echo_serves_until_interrupted() {
    if !common::has_io_uring() {
        return;
    }
    guarded("proactor_echo", || {
        let mut command = command("proactor_echo", Backend::Uring);
        let mut echo = Running::start(command.env("WINDLASS_PROACTOR", "io_uring"));
        let line = echo.wait_for("listening on ");
        let address = line.trim_start_matches("listening on ").trim();
        echo.wait_for("done by io_uring");
        for _ in 0..3 {
            let mut stream = std::net::TcpStream::connect(address).expect("connect");
            for round in 0..100_u8 {
                stream.write_all(&[round; 5000]).expect("write");
                let mut back = [0; 5000];
                stream.read_exact(&mut back).expect("read");
                assert_eq!(back, [round; 5000]);
            }
        }
        echo.send(2);
        echo.join();
    });
}
