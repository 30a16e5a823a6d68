//! What the models are, what the figures mean, and how they were measured.

use std::time::Duration;

use super::escape::escape;
use crate::compare::model::{Compute, summary};
use crate::compare::progress::clock;
use crate::compare::results::Report;
use crate::compare::units::{count, number};

pub(super) fn sections(report: &Report) -> String {
    let mut out = models(report);
    out.push_str(FIGURES);
    out.push_str(&run(report));
    out
}

fn models(report: &Report) -> String {
    let cells = report
        .workloads
        .first()
        .map_or(&[][..], |one| &one.cells[..]);
    let items = cells.iter().map(|cell| {
        let compute = match Compute::of(cell.model) {
            Compute::InLoop => "Computes in the loop: everybody waits.",
            Compute::InThread => "Computes in the thread that has the request.",
            Compute::OffLoaded => "Computes in the pool; the loop goes on.",
        };
        format!(
            "<div><dt>{}</dt><dd>{} <em>{compute}</em></dd></div>\n",
            cell.model,
            escape(summary(cell.model)),
        )
    });
    format!(
        "<section id=\"models\">\n<h2>The models</h2>\n<dl class=\"models\">\n{}</dl>\n</section>\n",
        items.collect::<String>()
    )
}

const FIGURES: &str = "\
<section id=\"figures\">
<h2>What the figures mean</h2>
<dl class=\"terms\">
<div><dt>Closed loop</dt><dd>Every connection asks again as soon as it is answered. This shows how
much a model can do, and what a request costs when it is busy. Latency is not shown for it: when
the server is slow, the clients ask less, and the worst moments are counted least.</dd></div>
<div><dt>Fixed rate</dt><dd>Requests are due at even distances, whether or not the server keeps up,
and at the same rate for every model. A request that finds no free connection waits in the load
generator. Its latency counts from when it was due, not from when it could be sent: so a server that
stops for a moment is charged for all requests of that moment. (Not to do so is called coordinated
omission.) A model that can do less than the rate falls behind more and more until the window ends:
its latencies say that, and little else.</dd></div>
<div><dt>p50, p90, p99, p99.9</dt><dd>So many percent of the requests took no longer. The values are
kept with an error below 0.1 %.</dd></div>
<div><dt>CPU, user and system</dt><dd>Processor time of the server, all threads, between the first
request of the window and its last answer. The kernel knows the sum exactly; how it divides it into
user and system is an estimate from its clock’s ticks.</dd></div>
<div><dt>Context switches</dt><dd>Voluntary: a thread had nothing to do and waited. Involuntary: the
processor was given to another one. Threads that have ended count too.</dd></div>
<div><dt>Calls per request</dt><dd>System calls of the server, divided by answers, counted in a short
run of their own that nothing else is taken from. strace slows the server much more than perf does,
so that each wait finds more; which one counted stands below.</dd></div>
<div><dt>RSS and PSS</dt><dd>Memory of the server’s process: the most that was resident at any time;
and what is resident at the end, with all connections open, where pages that processes share, as the
program itself, are divided among them. What the kernel keeps for sockets is not in it.</dd></div>
<div><dt>Threads</dt><dd>At the end of the window, without the one that speaks with the parent.</dd></div>
<div><dt>Load</dt><dd>How busy the one thread of the load generator was in the closed loop. Near
100 % it was the limit, and models that look alike may not be: compare what they cost
instead.</dd></div>
<div><dt>Late</dt><dd>By how much the load generator itself was late with a request for which a
connection was free, 99th percentile. Latencies that are not much longer say little.</dd></div>
<div><dt>Median and spread</dt><dd>Each figure is the median of the rounds; whiskers, and the hint at
a figure, go from the least to the most. With two rounds the median is their mean. The curves hold
the requests of all rounds.</dd></div>
</dl>
</section>
";

fn run(report: &Report) -> String {
    let (machine, settings) = (&report.machine, &report.settings);
    let pinning = if machine.pinning.load.is_empty() {
        "none: there is one core only, which server and load generator share".to_owned()
    } else {
        let list = |cpus: &[usize]| {
            let numbers: Vec<_> = cpus.iter().map(usize::to_string).collect();
            numbers.join(", ")
        };
        format!(
            "server on core {}, load generator on core {}",
            list(&machine.pinning.server),
            list(&machine.pinning.load)
        )
    };
    let took = clock(Duration::from_secs_f64(report.took_s));
    let threads = settings.threads.map_or_else(
        || "each model’s default".to_owned(),
        |threads| threads.to_string(),
    );
    let rate = settings.rate.map_or_else(
        || {
            "for each workload, half of what the models reached in the median, in the first round"
                .to_owned()
        },
        |rate| format!("{} requests/s", count(rate)),
    );
    let rows = [
        ("Processor", machine.cpu.clone()),
        ("Cores in use", machine.cores.to_string()),
        (
            "Memory",
            format!("{} MiB", count(machine.memory_bytes as f64 / 1048576.0)),
        ),
        ("Kernel", machine.kernel.clone()),
        (
            "Congestion control",
            format!("{}, chosen for each socket", machine.congestion_control),
        ),
        ("Pinning", pinning),
        ("Command", report.command.clone()),
        ("Date", report.date.clone()),
        ("Took", format!("{took} minutes")),
        ("Version", format!("windlass {}", report.version)),
        ("Rounds", settings.rounds.to_string()),
        ("Measured, each run", format!("{} s", settings.duration_s)),
        ("Connections", format!("{} active", settings.connections)),
        ("Threads", threads),
        ("Fixed rate", rate),
        (
            "Other programs",
            format!("kept {} cores busy meanwhile", number(report.others_busy())),
        ),
        (
            "Order",
            format!("shuffled in each round, seed {}", settings.order_seed),
        ),
        ("System calls", format!("counted by {}", report.calls_by)),
    ];
    let rows = rows
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value)));
    format!(
        "<section id=\"run\">\n<h2>Machine and run</h2>\n<dl class=\"run\">\n{}</dl>\n{LIMITS}\
         </section>\n",
        rows.concat()
    )
}

const LIMITS: &str = "\
<h3>Limits of the method</h3>
<p>Clients and server are on one machine, over loopback: no network card, no loss, no distance. Half of
what a request costs is the kernel’s TCP, which all models share. With one core for the server, models
of several threads show what their threads cost, not what more cores would give. Short runs on a busy
or virtual machine differ from one another by several percent, latencies at the far end by much more.
Each run has a fresh server; each round takes the models in another order.</p>
";
