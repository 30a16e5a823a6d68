//! The page: metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};
use std::time::Duration;

use windlass::event_loop::LagHistogram;
use windlass::models::ServerReport;

use super::Snapshot;

/// Gathers the text, a family of metrics after the other.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

/// The upper bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 16] = [
    0.000_001, 0.000_005, 0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.05, 0.1, 0.25, 0.5, 1.0,
];

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn info(&mut self) {
        self.family("windlass_build_info", Kind::Gauge, "The program's version.");
        let version = env!("CARGO_PKG_VERSION");
        self.line(format_args!(
            "windlass_build_info{{version=\"{version}\"}} 1"
        ));
    }

    /// What the loops said; one that said nothing is down.
    pub(super) fn loops(&mut self, loops: &[Option<Snapshot>]) {
        self.each(
            loops,
            "windlass_loop_up",
            Kind::Gauge,
            "Whether the loop answers.",
            |said| Some(u8::from(said.is_some())),
        );
        self.connections(loops);
        self.answers(loops);
        let of = |pick: fn(&Snapshot) -> Option<&LagHistogram>| {
            move |said: &Option<Snapshot>| said.as_ref().and_then(pick).cloned()
        };
        self.histogram(
            loops,
            "windlass_loop_lag_seconds",
            "How late timers ran, and how long the last of a turn's handlers waited, to 12.5 %.",
            of(|said| Some(&said.event_loop.as_ref()?.lag)),
        );
        self.histogram(
            loops,
            "windlass_handler_duration_seconds",
            "How long each call of a handler took, to 12.5 %.",
            of(|said| said.event_loop.as_ref()?.handler_times.as_ref()),
        );
        self.each(
            loops,
            "windlass_slow_handlers_total",
            Kind::Counter,
            "Handlers that held up their loop for longer than is allowed.",
            |said| Some(said.as_ref()?.event_loop.as_ref()?.slow_handlers),
        );
        self.thread_set(loops);
        self.tls(loops);
        self.proxy(loops);
    }

    fn connections(&mut self, loops: &[Option<Snapshot>]) {
        self.each(
            loops,
            "windlass_connections",
            Kind::Gauge,
            "Connections that are open.",
            |said| said.as_ref().map(|said| said.open),
        );
        type Pick = fn(&ServerReport) -> u64;
        let counters: [(&str, &str, Pick); 8] = [
            (
                "connections_accepted",
                "Connections that were accepted.",
                |r| r.accepted,
            ),
            (
                "connections_failed",
                "Connections that ended by an error.",
                |r| r.failed,
            ),
            (
                "connections_stalled",
                "Connections whose client took nothing for too long.",
                |r| r.write_stalls,
            ),
            ("panics", "Connections that ended by a panic.", |r| r.panics),
            (
                "accept_pauses",
                "Pauses of accepting for want of descriptors.",
                |r| r.accept_pauses,
            ),
            (
                "truncated_files",
                "Files that became shorter while they were sent.",
                |r| r.truncated_files,
            ),
            (
                "received_bytes",
                "Bytes that were read from clients.",
                |r| r.received_bytes,
            ),
            ("sent_bytes", "Bytes that were written to clients.", |r| {
                r.sent_bytes
            }),
        ];
        for (name, help, pick) in counters {
            let name = format!("windlass_{name}_total");
            self.each(loops, &name, Kind::Counter, help, |said| {
                said.as_ref().map(|said| pick(&said.report))
            });
        }
    }

    fn answers(&mut self, loops: &[Option<Snapshot>]) {
        const NAME: &str = "windlass_http_requests_total";
        self.family(
            NAME,
            Kind::Counter,
            "Requests that were answered, by status.",
        );
        for (at, said) in loops.iter().enumerate() {
            for (code, count) in said.iter().flat_map(|said| &said.answers) {
                self.line(format_args!(
                    "{NAME}{{loop=\"{at}\",code=\"{code}\"}} {count}"
                ));
            }
        }
    }

    /// What a set of threads counted that share all connections, in the models that have one.
    fn thread_set(&mut self, loops: &[Option<Snapshot>]) {
        let Some(numbers) = loops.iter().flatten().find_map(|said| said.thread_set) else {
            return;
        };
        for (name, help, count) in [
            (
                "handler_calls",
                "Handlers that the threads called.",
                numbers.calls,
            ),
            (
                "waits",
                "Waits for events, those that did not block included.",
                numbers.waits,
            ),
            (
                "follower_wakes",
                "Threads that were woken because there was something to do.",
                numbers.follower_wakes,
            ),
            (
                "leader_wakes",
                "Waits for events that another thread ended.",
                numbers.leader_wakes,
            ),
        ] {
            let name = format!("windlass_thread_set_{name}_total");
            self.single(&name, Kind::Counter, help, count);
        }
    }

    /// TLS counts for all loops together.
    fn tls(&mut self, loops: &[Option<Snapshot>]) {
        let Some(report) = loops.iter().flatten().find_map(|said| said.tls) else {
            return;
        };
        for (name, help, count) in [
            (
                "handshakes",
                "TLS handshakes that were completed.",
                report.handshakes,
            ),
            (
                "resumptions",
                "Of them, those that resumed a session.",
                report.resumed,
            ),
            (
                "failed_handshakes",
                "TLS handshakes that failed.",
                report.failed_handshakes,
            ),
            (
                "handshake_timeouts",
                "TLS handshakes that took too long.",
                report.handshake_timeouts,
            ),
            (
                "plain_http",
                "Connections that spoke clear-text HTTP and were told so.",
                report.plain_http,
            ),
            (
                "protocol_errors",
                "Connections that ended by an error of TLS after the handshake.",
                report.protocol_errors,
            ),
        ] {
            self.single(
                &format!("windlass_tls_{name}_total"),
                Kind::Counter,
                help,
                count,
            );
        }
    }

    /// What became of PROXY headers, in all loops together.
    fn proxy(&mut self, loops: &[Option<Snapshot>]) {
        let Some(report) = loops.iter().flatten().find_map(|said| said.proxy) else {
            return;
        };
        for (name, help, count) in [
            ("headers", "Connections with a good header.", report.headers),
            (
                "malformed",
                "Connections that were closed for want of a good header.",
                report.malformed,
            ),
            (
                "refused",
                "Connections that were closed for where they came from.",
                report.refused,
            ),
            (
                "timeouts",
                "Connections whose header did not come in time.",
                report.timeouts,
            ),
        ] {
            let name = format!("windlass_proxy_{name}_total");
            self.single(&name, Kind::Counter, help, count);
        }
    }

    pub(super) fn log_losses(&mut self, lost: u64) {
        self.single(
            "windlass_access_log_lost_lines_total",
            Kind::Counter,
            "Lines of the access log that could not be written.",
            lost,
        );
    }

    /// A family of one metric.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    /// A family of a metric for each loop that has one.
    fn each<T: Display>(
        &mut self,
        loops: &[Option<Snapshot>],
        name: &str,
        kind: Kind,
        help: &str,
        pick: impl Fn(&Option<Snapshot>) -> Option<T>,
    ) {
        self.family(name, kind, help);
        for (at, said) in loops.iter().enumerate() {
            if let Some(value) = pick(said) {
                self.line(format_args!("{name}{{loop=\"{at}\"}} {value}"));
            }
        }
    }

    fn histogram(
        &mut self,
        loops: &[Option<Snapshot>],
        name: &str,
        help: &str,
        pick: impl Fn(&Option<Snapshot>) -> Option<LagHistogram>,
    ) {
        self.family(name, Kind::Histogram, help);
        for (at, said) in loops.iter().enumerate() {
            let Some(histogram) = pick(said) else {
                continue;
            };
            let mut buckets = histogram.buckets().peekable();
            let mut count = 0;
            for bound in BOUNDS {
                while let Some((_, more)) =
                    buckets.next_if(|(upper, _)| *upper <= Duration::from_secs_f64(bound))
                {
                    count += more;
                }
                self.line(format_args!(
                    "{name}_bucket{{loop=\"{at}\",le=\"{bound}\"}} {count}"
                ));
            }
            let (all, sum) = (histogram.count(), histogram.sum().as_secs_f64());
            self.line(format_args!(
                "{name}_bucket{{loop=\"{at}\",le=\"+Inf\"}} {all}"
            ));
            self.line(format_args!("{name}_sum{{loop=\"{at}\"}} {sum}"));
            self.line(format_args!("{name}_count{{loop=\"{at}\"}} {all}"));
        }
    }

    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{text}").expect("writing to a String does not fail");
    }
}
