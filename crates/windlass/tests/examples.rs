//! Every example, run as its readers run it: with standard input as a pipe, a file, `/dev/null`
//! and a terminal's stand-in, bounded in time. Cargo builds the examples before these tests.

#[path = "common/loops.rs"]
mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{guarded, on_each_backend};
use windlass::demultiplexer::{Backend, ENVIRONMENT_VARIABLE};

on_each_backend! {
    a_slow_reader_of_the_chat_is_told_what_it_missed
    chat_brings_lines_to_the_others
    echo_brings_each_line_back
    echo_serves_until_interrupted
    followers_share_what_happens_until_one_is_told_to_stop
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

/// Sends a line and awaits that it comes back.
fn say(peer: &mut BufReader<TcpStream>, text: &str) {
    let (line, mut back) = (format!("{text}\n"), String::new());
    peer.get_mut().write_all(line.as_bytes()).expect("write");
    peer.read_line(&mut back).expect("read");
    assert_eq!(back, line);
}

fn followers_share_what_happens_until_one_is_told_to_stop(backend: Backend) {
    let mut example = Running::start(&mut command("leader_followers", backend));
    let line = example.wait_for("listening on ");
    let address = line.trim_start_matches("listening on ").trim();
    let mut peers = [(); 3].map(|()| {
        let stream = TcpStream::connect(address).expect("connect");
        (stream.set_read_timeout(Some(Duration::from_secs(60)))).expect("set");
        BufReader::new(stream)
    });
    // A thread that sleeps holds up nobody else.
    let [sleeper, others @ ..] = &mut peers;
    say(sleeper, "sleep");
    for text in ["hello", "you there"] {
        for peer in others.iter_mut() {
            say(peer, text);
            let line = example.wait_for(&format!("echoes {text:?}"));
            assert!(line.starts_with("thread "), "{line}");
        }
    }
    say(sleeper, "good morning");
    example.wait_for(" ticks");
    peers[0].get_mut().write_all(b"stop\n").expect("write");
    let rest = example.join();
    let handled = rest.lines().filter_map(|line| {
        let (_, count) = line.split_once(" handled ")?;
        count.strip_suffix(" events")?.parse::<u32>().ok()
    });
    let handled: Vec<u32> = handled.collect();
    assert_eq!(handled.len(), 4, "{rest}");
    // Three connections, seven lines, a tick.
    assert!(handled.iter().sum::<u32>() >= 11, "{rest}");
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

/// A member of a chat.
struct Member {
    reader: BufReader<TcpStream>,
}

impl Member {
    /// Connects, and joins under a name; answers who is there.
    fn join(address: &str, name: &str) -> (Self, String) {
        let stream = TcpStream::connect(address).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("set");
        let reader = BufReader::new(stream);
        let mut member = Self { reader };
        assert_eq!(member.line(), "* welcome; what is your name?");
        member.say(name);
        let here = member.line();
        (member, here)
    }

    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .expect("write");
    }

    /// The next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("read");
        line.trim_end().to_owned()
    }

    /// Says something, and reads the answer, or what comes first.
    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }
}

fn start_chat(backend: Backend) -> (Running, String) {
    let mut chat = Running::start(command("chat", backend).arg("127.0.0.1:0"));
    let line = chat.wait_for("listening on ");
    let address = line.trim_start_matches("listening on ").trim().to_owned();
    (chat, address)
}

fn chat_brings_lines_to_the_others(backend: Backend) {
    let (chat, address) = start_chat(backend);
    let (mut ann, here) = Member::join(&address, "ann");
    assert_eq!(here, "* here: ann");
    let (mut bob, here) = Member::join(&address, "bob");
    assert_eq!(here, "* here: ann, bob");
    assert_eq!(ann.line(), "* bob joined");
    let (mut cyd, here) = Member::join(&address, "bob");
    assert_eq!(here, "* that name is taken");
    assert!(cyd.ask("no name").contains("1 to 16 letters"));
    assert_eq!(cyd.ask("cyd"), "* here: ann, bob, cyd");
    assert_eq!(
        (ann.line(), bob.line()),
        ("* cyd joined".into(), "* cyd joined".into())
    );
    // To all others, in order, without what would move a terminal's cursor.
    ann.say("hello\r");
    ann.say("again \x1b[2Jthere");
    for other in [&mut bob, &mut cyd] {
        assert_eq!(other.line(), "<ann> hello");
        assert_eq!(other.line(), "<ann> again [2Jthere");
    }
    // As many as come in one read, all at once, none of them lost to those who read.
    ann.say(
        &(0..2000)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join("\n"),
    );
    for number in 0..2000 {
        let line = format!("<ann> {number}");
        assert_eq!((bob.line(), cyd.line()), (line.clone(), line));
    }
    bob.say("/msg cyd only you");
    assert_eq!(cyd.line(), "[bob] only you");
    assert_eq!(bob.ask("/msg dan hello"), "* nobody here is called dan");
    assert_eq!(bob.ask("/nick ann"), "* that name is taken");
    assert_eq!(bob.ask("/nick rob"), "* you are now rob");
    assert_eq!(
        (ann.line(), cyd.line()),
        ("* bob is now rob".into(), "* bob is now rob".into())
    );
    assert!(bob.ask("/help").contains("/who, /nick"));
    assert_eq!(ann.ask("/who"), "* here: ann, cyd, rob");
    // By its command, and by an end that nobody announced.
    assert_eq!(
        (bob.ask("/quit"), bob.line()),
        ("* goodbye".into(), String::new())
    );
    assert_eq!(
        (ann.line(), cyd.line()),
        ("* rob left".into(), "* rob left".into())
    );
    drop(cyd);
    assert_eq!(ann.line(), "* cyd left");
    assert_eq!(ann.ask("/who"), "* here: ann");
    ann.say(&"x".repeat(2000));
    let (mut dan, _) = Member::join(&address, "dan");
    chat.send(libc::SIGTERM);
    while dan.line() != "* the chat ends" {}
    // The server waits for its peers to close.
    drop((ann, dan));
    assert!(chat.join().contains("4 connections"));
}

fn a_slow_reader_of_the_chat_is_told_what_it_missed(backend: Backend) {
    const LINES: usize = 12_000;
    let (chat, address) = start_chat(backend);
    let (mut slow, _) = Member::join(&address, "slow");
    let (mut fast, _) = Member::join(&address, "fast");
    let text = "x".repeat(990);
    for number in (0..LINES).step_by(40) {
        let lines = (number..number + 40).map(|number| format!("{number} {text}"));
        fast.say(&lines.collect::<Vec<_>>().join("\n"));
    }
    // All was said, though nobody reads.
    assert_eq!(fast.ask("/who"), "* here: fast, slow");
    fast.say("/msg slow end");
    assert_eq!(slow.line(), "* fast joined");
    let (mut next, mut missed_count) = (0, 0);
    loop {
        let line = slow.line();
        if let Some(missed) = line.strip_prefix("* you missed ") {
            let missed = missed.trim_end_matches(" messages");
            let missed: usize = missed.parse().expect("a number");
            next += missed;
            missed_count += missed;
            if next > LINES {
                // The last one, too.
                break;
            }
        } else if line == "[fast] end" {
            break;
        } else {
            // Every gap was told, in its place.
            assert!(
                line.starts_with(&format!("<fast> {next} ")),
                "{next}: {line}"
            );
            next += 1;
        }
    }
    assert!(missed_count > 1000, "{missed_count}");
    assert!(next == LINES || next == LINES + 1, "{next}");
    fast.say("still there");
    assert_eq!(slow.line(), "<fast> still there");
    drop((slow, fast));
    chat.send(libc::SIGTERM);
    chat.join();
}

#[test]
fn every_example_is_run_here() {
    guarded("every_example_is_run_here", || {
        let known = [
            "chat",
            "echo.rs",
            "leader_followers.rs",
            "priorities.rs",
            "proactor_echo.rs",
            "signals.rs",
            "ticker.rs",
            "worker_pool.rs",
        ];
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
        for entry in std::fs::read_dir(directory).expect("read") {
            let name = entry.expect("entry").file_name();
            let name = name.to_str().expect("UTF-8");
            // A directory is a whole program, whose first file is as short as an example.
            let is_program = !name.ends_with(".rs");
            let file = if is_program {
                format!("{name}/main.rs")
            } else {
                name.to_owned()
            };
            let text = std::fs::read_to_string(format!("{directory}/{file}")).expect("read");
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
