//! The system calls of `windlass serve`, counted by strace in steady state.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use common::{Client, Serve, TempDir, get, report, send_signal, site};
use rustix::process::Signal;

/// A server whose system calls are written to a file.
struct Traced {
    serve: Serve,
    log: PathBuf,
    _dir: TempDir,
}

type Counts = BTreeMap<String, usize>;

impl Traced {
    fn start(dir: impl AsRef<std::path::Path>) -> Self {
        let temp = TempDir::new("strace");
        let log = temp.0.join("calls");
        let arguments = ["-f", "-qq", "-s", "32", "-o", log.to_str().unwrap()];
        let serve = Serve::traced(dir, &arguments);
        Self {
            serve,
            log,
            _dir: temp,
        }
    }

    /// Ends the server; answers how often it made which call between two requests for `/mark`,
    /// which are not counted.
    fn counts(self) -> Counts {
        // A signal to strace would be kept from the server.
        send_signal(self.serve.child_pid(), Signal::TERM);
        self.serve.end();
        count_between_marks(&fs::read_to_string(&self.log).unwrap())
    }
}

/// Counts the calls of the thread that serves; other threads may just be starting.
fn count_between_marks(log: &str) -> Counts {
    // 1234  recvfrom(7, "POST /mark ...", 65536, 0, NULL, NULL) = 42
    // or, if another thread made a call meanwhile,
    // 1234  recvfrom(7,  <unfinished ...>
    // 1234  <... recvfrom resumed>"POST /mark ...", 65536, 0, NULL, NULL) = 42
    let is_mark = |line: &str| line.contains("\"POST /mark ");
    let marking = log
        .lines()
        .find(|line| is_mark(line))
        .unwrap_or_else(|| panic!("{log}"));
    let thread = marking.split(' ').next().unwrap();
    let mut counts = Counts::new();
    let mut marks = 0;
    let mut answered = true;
    for line in log.lines() {
        let Some(call) = line.strip_prefix(thread).map(str::trim_start) else {
            continue;
        };
        let is_resumed = call.starts_with("<...");
        let name = call.split('(').next().unwrap();
        if is_mark(call) {
            if is_resumed && marks == 1 {
                // Its beginning was counted.
                *counts.get_mut("recvfrom").unwrap() -= 1;
            }
            marks += 1;
            answered = false;
        } else if !answered {
            // Its own answer.
            answered = name == "sendto";
        } else if marks == 1 && !is_resumed && !call.contains("F_GETFD") {
            // F_GETFD: std checks what is closed, when it is built for debugging.
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(marks, 2, "{log}");
    counts
}

/// A request that no file is opened for.
const REQUEST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";

fn mark(client: &mut Client) {
    let answer = client.send(REQUEST.replace("/ H", "/mark H")).answer();
    assert_eq!(answer.status, 405);
}

fn count(counts: &Counts, name: &str) -> usize {
    counts.get(name).copied().unwrap_or(0)
}

/// Serves `count` requests on each of `connections`, `pipelined` at once.
fn traced_requests(request: &str, connections: usize, count: usize, pipelined: usize) -> Counts {
    let traced = Traced::start(site());
    let mut marker = traced.serve.connect();
    warm_up(&mut marker);
    let mut clients: Vec<Client> = (0..connections).map(|_| traced.serve.connect()).collect();
    for client in &mut clients {
        client.send(request).answer();
    }
    mark(&mut marker);
    let batch = request.repeat(pipelined);
    for _ in 0..count / pipelined {
        for client in &mut clients {
            client.send(&batch);
        }
        for client in &mut clients {
            for _ in 0..pipelined {
                client.answer();
            }
        }
    }
    mark(&mut marker);
    drop(clients);
    traced.counts()
}

/// Warms up the connection that marks.
fn warm_up(marker: &mut Client) {
    assert_eq!(marker.send(REQUEST).answer().status, 405);
}

/// Only these calls, and no more waits than turns that may have been.
fn check(counts: &Counts, per_batch: &[(&str, usize)], batches: usize) {
    for &(name, each) in per_batch {
        assert_eq!(count(counts, name), each * batches, "{name} in {counts:?}");
    }
    let is_wait = |name: &str| name.starts_with("epoll_") && name != "epoll_ctl";
    let waits: usize = counts
        .iter()
        .filter(|(name, _)| is_wait(name))
        .map(|(_, count)| count)
        .sum();
    // And one that brings the second mark.
    assert!(waits <= batches + 1, "{counts:?}");
    for name in counts.keys() {
        let known = is_wait(name) || per_batch.iter().any(|(known, _)| known == name);
        assert!(known, "{name} in {counts:?}");
    }
}

#[test]
fn a_request_costs_one_receive_one_send_and_at_most_one_wait() {
    for (connections, each) in [(1, 500), (64, 20)] {
        let counts = traced_requests(REQUEST, connections, each, 1);
        report(format_args!(
            "{} requests on {connections}: {counts:?}",
            connections * each
        ));
        check(
            &counts,
            &[("recvfrom", 1), ("sendto", 1)],
            connections * each,
        );
    }
}

#[test]
fn pipelined_requests_share_one_receive_and_one_send() {
    let counts = traced_requests(REQUEST, 1, 1600, 16);
    report(format_args!("1600 requests, 16 at once: {counts:?}"));
    check(&counts, &[("recvfrom", 1), ("sendto", 1)], 100);
}

/// Its state is looked at in each turn, so that it is always the present one.
#[test]
fn a_small_file_that_was_read_before_costs_at_most_one_call_more() {
    for (connections, each) in [(1, 300), (64, 10)] {
        let requests = connections * each;
        let mut counts = traced_requests(&get("/data.json"), connections, each, 1);
        report(format_args!(
            "{requests} small files on {connections}: {counts:?}"
        ));
        let looks = counts.remove("statx").unwrap_or(0);
        assert!((1..=requests).contains(&looks), "{looks} looks");
        check(&counts, &[("recvfrom", 1), ("sendto", 1)], requests);
    }
}

#[test]
fn a_large_file_is_sent_by_the_kernel() {
    const LEN: usize = 64 << 20;
    let dir = TempDir::with_hole("sendfile", LEN as u64);
    let traced = Traced::start(&dir.0);
    let mut client = traced.serve.connect();
    mark(&mut client);
    assert_eq!(client.get("/hole").body.len(), LEN);
    mark(&mut client);
    drop(client);
    let counts = traced.counts();
    report(format_args!("64 MiB: {counts:?}"));
    assert!(count(&counts, "sendfile") >= LEN / (2 << 20), "{counts:?}");
    for name in ["read", "pread64", "readv", "mmap", "write", "splice"] {
        assert_eq!(count(&counts, name), 0, "{name} in {counts:?}");
    }
}
