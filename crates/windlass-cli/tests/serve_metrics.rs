//! `windlass serve --metrics`: the page, read as Prometheus reads it.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use common::{Client, Serve, header, metrics_addr, send_signal, site};
use rustix::process::Signal;

/// A page by name and labels; all that is wrong with its form fails.
struct Page(BTreeMap<String, f64>);

impl Page {
    fn parse(text: &str) -> Self {
        let (mut helped, mut kinds) = (BTreeSet::new(), BTreeMap::new());
        let mut samples = BTreeMap::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "{name} comes twice");
                assert!(help.ends_with('.') || help.ends_with('%'), "{help}");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(helped.contains(name), "{name} has no help");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                kinds.insert(name.to_owned(), kind.to_owned());
                family = name.to_owned();
                continue;
            }
            let (key, value) = line.rsplit_once(' ').unwrap();
            let name = key.split('{').next().unwrap();
            let rest = name
                .strip_prefix(&family[..])
                .unwrap_or_else(|| panic!("{line}"));
            let is_histogram = kinds[&family] == "histogram";
            let fits = match rest {
                "" => !is_histogram,
                "_bucket" | "_sum" | "_count" => is_histogram,
                _ => false,
            };
            assert!(fits, "{line}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            if let Some((_, labels)) = key.split_once('{') {
                for label in labels.strip_suffix('}').unwrap().split(',') {
                    let (_, quoted) = label.split_once('=').unwrap();
                    assert!(quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'));
                }
            }
            let old = samples.insert(key.to_owned(), value.parse().unwrap());
            assert_eq!(old, None, "{key} comes twice");
        }
        Self(samples)
    }

    fn get(&self, key: &str) -> f64 {
        *self
            .0
            .get(key)
            .unwrap_or_else(|| panic!("{key} in {:?}", self.0.keys()))
    }

    /// Over all loops.
    fn sum(&self, start: &str) -> f64 {
        let range = self.0.range(start.to_owned()..);
        range
            .take_while(|(key, _)| key.starts_with(start))
            .map(|(_, value)| value)
            .sum()
    }

    /// Buckets grow, and the last is the count.
    fn check_histogram(&self, name: &str, at: usize) {
        let buckets = format!("{name}_bucket{{loop=\"{at}\",le=\"");
        let mut bounds: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter_map(|(key, count)| {
                let bound = key.strip_prefix(&buckets)?.strip_suffix("\"}")?;
                Some((bound.replace("+Inf", "inf").parse().unwrap(), *count))
            })
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            bounds.len() > 10 && bounds.is_sorted_by(|a, b| a.1 <= b.1),
            "{bounds:?}"
        );
        let last = bounds.last().unwrap();
        assert!(last.0.is_infinite());
        assert!((last.1 - self.get(&format!("{name}_count{{loop=\"{at}\"}}"))).abs() < 0.5);
        assert!(self.get(&format!("{name}_sum{{loop=\"{at}\"}}")) >= 0.0);
    }
}

fn scrape(addr: SocketAddr) -> Page {
    let answer = Client::connect(addr).get("/metrics");
    assert_eq!(answer.status, 200);
    let kind = header(&answer.head, "content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    Page::parse(&String::from_utf8(answer.body).unwrap())
}

const FLAGS: [&str; 4] = [
    "--access-log=off",
    "--threads=2",
    "--metrics=127.0.0.1:0",
    "--listen=127.0.0.1:0",
];

#[test]
fn the_page_has_what_was_done() {
    let serve = Serve::start(site(), &FLAGS);
    let addr = metrics_addr(&serve);
    let mut clients: Vec<Client> = (0..6).map(|_| serve.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/data.json").status, 200);
        assert_eq!(client.get("/missing").status, 404);
    }
    let page = scrape(addr);
    for at in 0..2 {
        assert!((page.get(&format!("windlass_loop_up{{loop=\"{at}\"}}")) - 1.0).abs() < 0.1);
        page.check_histogram("windlass_loop_lag_seconds", at);
        page.check_histogram("windlass_handler_duration_seconds", at);
    }
    let answers = |code: u16| -> f64 {
        let end = format!("code=\"{code}\"}}");
        let found = page.0.iter().filter(|(key, _)| key.ends_with(&end));
        found.map(|(_, value)| value).sum()
    };
    assert!((answers(200) - 6.0).abs() < 0.1 && (answers(404) - 6.0).abs() < 0.1);
    assert!((page.sum("windlass_connections{") - 6.0).abs() < 0.1);
    assert!((page.sum("windlass_connections_accepted_total{") - 6.0).abs() < 0.1);
    assert!(page.sum("windlass_received_bytes_total{") > 100.0);
    assert!(page.sum("windlass_sent_bytes_total{") > 100.0);
    assert!(page.sum("windlass_handler_duration_seconds_count{") > 6.0);
    for (name, least) in [
        ("process_open_fds", 10.0),
        ("process_max_fds", 64.0),
        ("process_resident_memory_bytes", 1e6),
        ("process_cpu_seconds_total", 0.0),
        ("process_start_time_seconds", 1.6e9),
    ] {
        assert!(page.get(name) >= least, "{name}");
    }
    assert_eq!(Client::connect(addr).get("/other").status, 404);
    serve.stop();
}

#[test]
fn counts_go_on_after_a_reload_and_metrics_after_a_restart() {
    let serve = Serve::start(site(), &FLAGS);
    let addr = metrics_addr(&serve);
    assert_eq!(serve.connect().get("/").status, 200);
    serve.signal(Signal::HUP);
    serve.line_with("reloaded");
    let count = || {
        let page = scrape(addr);
        page.sum("windlass_http_requests_total{")
    };
    assert!((count() - 1.0).abs() < 0.1);
    serve.signal(Signal::USR2);
    let over = serve.line_with("has taken over");
    let rest = over.split_once("process ").unwrap().1;
    let successor: u32 = rest.split(' ').next().unwrap().parse().unwrap();
    serve.line_with("stopped:");
    assert!(count() < 0.1, "another process counts anew");
    send_signal(successor, Signal::TERM);
    serve.end();
}

#[test]
fn threads_that_share_their_connections_tell_what_they_did() {
    for model in ["leader-followers", "reactor-workers", "thread-pool"] {
        let model = format!("--model={model}");
        let flags: Vec<&str> = FLAGS.into_iter().chain([&model[..]]).collect();
        let serve = Serve::start(site(), &flags);
        let addr = metrics_addr(&serve);
        let mut client = serve.connect();
        for _ in 0..3 {
            assert_eq!(client.get("/data.json").status, 200);
        }
        let page = scrape(addr);
        let number = |name: &str| page.get(&format!("windlass_thread_set_{name}_total"));
        // The connection, and each of its requests.
        assert!(number("handler_calls") >= 4.0, "{model}");
        assert!(number("waits") >= 4.0, "{model}");
        // They need not sleep in between; that the two are there is checked by reading them.
        let wakes = number("follower_wakes") + number("leader_wakes");
        assert!(wakes < 1e6, "{model}: {wakes}");
        assert!(page.sum("windlass_loop_lag_seconds_count{") < 0.5);
        serve.stop();
    }
    let serve = Serve::start(site(), &FLAGS);
    let page = scrape(metrics_addr(&serve));
    let has_set = |key: &String| key.starts_with("windlass_thread_set");
    assert!(!page.0.keys().any(has_set), "loops have no such set");
    serve.stop();
}
