//! `windlass serve`: a directory over HTTP, by any concurrency model.
//!
//! ```text
//!  main thread        the model's first thread: loop 0, the one that waits, or the acceptor
//!  "loop-1" …         its other loops or workers
//!  "control"          signals: stop, reload, dump, restart
//!  "metrics"          the page for Prometheus, if it is asked for
//!  "access-log"       writes the log, if there is one
//! ```

mod args;
mod config;
mod control;
mod listeners;
mod log_sink;
mod loops;
mod metrics;
mod reload;
mod restart;
mod site;
mod units;

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

use windlass::event_loop::{HandlerTimes, LoopConfig, PanicPolicy};
use windlass::models::{AnyServer, Limits, ModelKind, Server, ServerReport};
use windlass::session::ProxyProtocol;
use windlass_http::HttpService;
use windlass_http::middleware::HealthState;
use windlass_sys::limits::raise_descriptor_limit;
use windlass_tls::TlsService;

pub(crate) use self::args::ServeArguments;
use self::config::{AccessLogFormat, Config, ProxyMode};
use self::control::{Control, ControlThread, Phase, tell_manager};
use self::listeners::{Inherited, SocketFiles, explain_bind};
use self::log_sink::{LogSink, Target};
use self::loops::Loops;
use self::metrics::Metrics;
use self::restart::Predecessor;
use self::site::{Served, Site, Surroundings};
use self::units::Threads as ThreadCount;
use crate::{manual, say};

/// Descriptors asked for: each connection takes one, each file that is sent another.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

type Plain = HttpService<Site>;
type Tls = TlsService<Plain>;

/// Serves until a signal says to stop.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Box<dyn Error>> {
    // First of all, before anything else is opened.
    let inherited = Inherited::take()?;
    let config = Config::gather(arguments)?;
    if arguments.print_config {
        return manual::print(config::to_toml(&config).as_bytes());
    }
    let has_proxy = config.proxy_protocol != ProxyMode::Off;
    let run = match (config.tls.is_on(), has_proxy) {
        (false, false) => run_as::<Plain>,
        (false, true) => run_as::<ProxyProtocol<Plain>>,
        (true, false) => run_as::<Tls>,
        (true, true) => run_as::<ProxyProtocol<Tls>>,
    };
    run(arguments, config, inherited)
}

fn run_as<V: Served>(
    arguments: &ServeArguments,
    config: Config,
    inherited: Inherited,
) -> Result<(), Box<dyn Error>> {
    if arguments.check {
        return check::<V>(&config);
    }
    serve::<V>(arguments, config, inherited)
}

/// Reads all that the configuration names, and says that it is fine.
fn check<V: Served>(config: &Config) -> Result<(), Box<dyn Error>> {
    let around = Surroundings {
        health: HealthState::default(),
        log: None,
    };
    V::make(config, &around)?;
    manual::print(b"the configuration is fine\n")
}

fn serve<V: Served>(
    arguments: &ServeArguments,
    config: Config,
    mut inherited: Inherited,
) -> Result<(), Box<dyn Error>> {
    let around = surroundings(&config)?;
    let service = Arc::new(V::make(&config, &around)?);
    warn_of(&config);
    let pass_as = inherited.pass_as();
    let metrics_listener = match config.metrics {
        Some(addr) => Some(inherited.metrics_listener(addr)?),
        None => None,
    };
    let (mut server, files) = bind(&config, Arc::clone(&service), inherited)?;
    let loops = Loops {
        handles: server.threads(),
        stop: server.stop_handle(),
    };
    let metrics = match metrics_listener {
        Some(listener) => Some(Metrics::start(listener, loops.clone(), around.log.clone())?),
        None => None,
    };
    let announcement = announcement(&config, &*server, metrics.as_ref());
    let control = ControlThread::start(Control {
        arguments: Arc::new(arguments.clone()),
        config,
        around,
        service,
        loops,
        metrics,
        pass_as,
        phase: Phase::Serving,
        restart: None,
    })?;
    // Only now: whoever reads it may send signals.
    for line in announcement {
        say(format_args!("{line}"));
    }
    if restart::tell_predecessor()? == Predecessor::None {
        tell_manager("READY=1");
    }
    let served = server.run();
    let control = control.end()?;
    let report = served?;
    end(&*server, report, control, &files);
    Ok(())
}

fn surroundings(config: &Config) -> Result<Surroundings, Box<dyn Error>> {
    let log = if config.access_log.format == AccessLogFormat::Off {
        None
    } else {
        let target = Target::of(config.access_log.file.as_deref());
        let sink = LogSink::open(&target).map_err(|error| match &target {
            Target::File(path) => format!("open the access log {}: {error}", path.display()),
            Target::Stdout => format!("write the access log to standard output: {error}"),
        })?;
        Some(Arc::new(Mutex::new(sink)))
    };
    Ok(Surroundings {
        health: HealthState::default(),
        log,
    })
}

/// Says what is allowed but probably not meant.
fn warn_of(config: &Config) {
    let is_local = config
        .tcp_listeners()
        .iter()
        .all(|addr| addr.ip().is_loopback());
    if config.basic_auth.file.is_some() && !config.tls.is_on() && !is_local {
        say(format_args!(
            "passwords are sent in clear text: give --tls-cert, or have a proxy in front do TLS"
        ));
    }
}

/// Opens sockets and loops.
fn bind<V: Served>(
    config: &Config,
    service: Arc<V>,
    inherited: Inherited,
) -> Result<(AnyServer<V>, SocketFiles), Box<dyn Error>> {
    let loop_config = LoopConfig {
        // A request that makes the server panic costs its sender the connection, and nobody else.
        panic_policy: PanicPolicy::Contain(|panic| {
            say(format_args!("closed after a panic: {}", panic.origin));
        }),
        slow_handler_limit: config.slow_handler.0,
        handler_times: match config.metrics {
            Some(_) => HandlerTimes::Measured,
            None => HandlerTimes::Unmeasured,
        },
        ..LoopConfig::default()
    };
    let mut builder = config
        .model
        .0
        .builder(service)
        .limits(limits(config))
        .loop_config(loop_config);
    if let Some(threads) = thread_count(config) {
        builder = builder.threads(threads);
    }
    let (builder, files) = inherited.listen(config, builder);
    let server = builder
        .build()
        .map_err(|error| explain_bind(error, "--listen"))?;
    Ok((server, files))
}

/// How many threads the model is to have; nothing for its own default. As every loop costs memory
/// and few sites need several, loops begin with one.
fn thread_count(config: &Config) -> Option<NonZeroUsize> {
    match config.threads {
        Some(ThreadCount::Count(count)) => NonZeroUsize::new(count),
        Some(ThreadCount::Auto) => available_parallelism().ok(),
        None if config.model.0 == ModelKind::MultiLoop => Some(NonZeroUsize::MIN),
        None => None,
    }
}

/// The limits of the server, at the start and at a reload.
fn limits(config: &Config) -> Limits {
    // A limit that can't be raised or read is found out by the pauses at EMFILE.
    let descriptors = raise_descriptor_limit(DESCRIPTORS_WANTED).unwrap_or(DESCRIPTORS_WANTED);
    let connections_max = usize::try_from(connections_of(descriptors)).unwrap_or(usize::MAX);
    Limits {
        connections_max: connections_max.min(config.limits.connections.get()),
        write_stall_timeout: config.timeouts.write.0,
        linger_timeout: config.timeouts.linger.0,
        stop_deadline: config.stop.deadline.0,
        input_bytes_max: config.input_bytes_max(),
        ..Limits::default()
    }
}

/// What is served where.
fn announcement<V: Served>(
    config: &Config,
    server: &dyn Server<V>,
    metrics: Option<&Metrics>,
) -> Vec<String> {
    let mut lines = Vec::new();
    let dir = config.dir.display();
    let scheme = if config.tls.is_on() { "https" } else { "http" };
    let mut addrs = server.local_addrs().to_vec();
    addrs.sort_unstable();
    addrs.dedup();
    for addr in addrs {
        lines.push(format!("serving {dir} at {scheme}://{addr}/"));
    }
    for path in &config.unix {
        lines.push(format!("serving {dir} at unix:{}", path.display()));
    }
    if let Some(addr) = metrics.and_then(Metrics::addr) {
        lines.push(format!("metrics are at http://{addr}/metrics"));
    }
    lines.extend(driver_line(server));
    lines
}

/// Who reads and writes, in models that leave it to a proactor: io_uring may be missing.
fn driver_line<V: Served>(server: &dyn Server<V>) -> Option<String> {
    let driver = server.proactor_driver()?;
    Some(match server.proactor_fallback() {
        Some(reason) if server.kind() == ModelKind::UringProactor => {
            format!("operations are done by the {driver} driver: {reason}")
        }
        _ => format!("operations are done by the {driver} driver"),
    })
}

/// Ends what is beside the loops, and reports.
fn end<V: Served>(
    server: &dyn Server<V>,
    report: ServerReport,
    control: Control<V>,
    files: &SocketFiles,
) {
    files.remove();
    if let Some(metrics) = control.metrics {
        metrics.end();
    }
    for slow in server.slow_handlers() {
        say(format_args!("{slow}"));
    }
    for cut in server.cut_connections() {
        say(format_args!("cut {cut}"));
    }
    say(format_args!("stopped: {report}"));
    if let Some(log) = control.around.log {
        let lost = log.lock().map_or(0, |mut log| log.finish());
        if lost > 0 {
            say(format_args!("{lost} lines of the access log were lost"));
        }
    }
}

/// How many connections are accepted with so many descriptors: an eighth, 64 at the least but no
/// more than half, is kept for the files that are sent.
fn connections_of(descriptors: u64) -> u64 {
    descriptors - (descriptors / 8).max(64).min(descriptors / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_files() {
        assert_eq!(connections_of(1 << 20), 917_504);
        assert_eq!(connections_of(1024), 896);
        assert_eq!(connections_of(256), 192);
        assert_eq!(connections_of(30), 15);
        assert_eq!(connections_of(0), 0);
    }
}
