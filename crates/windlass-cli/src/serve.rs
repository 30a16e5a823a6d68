//! `windlass serve`: a directory over HTTP, from a single-threaded event loop.

mod log_sink;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args, ValueEnum};
use windlass::Disposition::Keep;
use windlass::event_loop::{LoopConfig, PanicPolicy, Signal};
use windlass::models::{BindError, Limits, SingleLoop};
use windlass_http::{AccessLog, HttpConfig, HttpService, LogFormat, StaticFiles};
use windlass_sys::limits::raise_descriptor_limit;

use self::log_sink::LogSink;
use crate::say;

/// What `windlass serve` is told.
#[derive(Args, Debug)]
#[command(after_help = "\
Stops gracefully on SIGINT (Ctrl-C) and SIGTERM: no new connections, answers that are under way
are finished. A second signal stops at once. The environment variable WINDLASS_BACKEND forces the
method that waits for events: epoll, poll or select.")]
pub(crate) struct ServeArguments {
    /// The directory to serve.
    #[arg(default_value = ".")]
    dir: PathBuf,

    /// Where to listen: a numeric address, an IPv6 one in square brackets; port 0 takes a free one.
    /// May be given several times.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: Vec<SocketAddr>,

    /// How each request is logged on standard output.
    #[arg(long, value_enum, default_value_t = Log::Common)]
    access_log: Log,

    /// How long a graceful stop waits for connections before it cuts them, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    stop_deadline: u64,

    /// The most connections at once; fewer if the limit of descriptors leaves too little for files.
    #[arg(long, value_name = "COUNT", default_value = "65536")]
    connections_max: NonZeroUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Log {
    /// The combined log format: with referrer and user agent.
    Combined,
    /// The common log format.
    Common,
    /// No log.
    Off,
}

/// Descriptors asked for: each connection takes one, each file that is sent another.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

/// Serves until a signal says to stop.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Box<dyn Error>> {
    let files = StaticFiles::new(&arguments.dir)
        .map_err(|error| explain(&error, format!("serve {}", arguments.dir.display())))?;
    let mut config = HttpConfig::default();
    let format = match arguments.access_log {
        Log::Combined => Some(LogFormat::Combined),
        Log::Common => Some(LogFormat::Common),
        Log::Off => None,
    };
    let sink = match format {
        Some(_) => Some(Arc::new(Mutex::new(LogSink::open(io::stdout())?))),
        None => None,
    };
    if let (Some(format), Some(sink)) = (format, &sink) {
        config.access_log = Some(AccessLog::new(Arc::clone(sink) as _, format));
    }
    // A limit that can't be raised or read is found out by the pauses at EMFILE.
    let descriptors = raise_descriptor_limit(DESCRIPTORS_WANTED).unwrap_or(DESCRIPTORS_WANTED);
    let connections_max = usize::try_from(connections_of(descriptors)).unwrap_or(usize::MAX);
    let service = Arc::new(HttpService::new(files, config));
    let limits = Limits {
        connections_max: connections_max.min(arguments.connections_max.get()),
        stop_deadline: Duration::from_secs(arguments.stop_deadline),
        ..Limits::default()
    };
    let loop_config = LoopConfig {
        // A request that makes the server panic costs its sender the connection, and nobody else.
        panic_policy: PanicPolicy::Contain(|panic| {
            say(format_args!("closed after a panic: {}", panic.origin));
        }),
        ..LoopConfig::default()
    };
    let mut builder = SingleLoop::builder(Arc::clone(&service))
        .limits(limits)
        .loop_config(loop_config);
    for &addr in &arguments.listen {
        builder = builder.listen(addr);
    }
    let mut server = builder.build().map_err(explain_bind)?;
    for signal in [Signal::INT, Signal::TERM] {
        server.reactor().on_signal(signal, |state, cx, info| {
            let again = if state.is_stopping() {
                ", again: stopping at once"
            } else {
                ", stopping"
            };
            say(format_args!("{info}{again}"));
            state.stop(cx);
            Keep
        })?;
    }
    for addr in server.local_addrs() {
        say(format_args!(
            "serving {} at http://{addr}/",
            arguments.dir.display()
        ));
    }
    let report = server.run()?;
    for slow in server.reactor().slow_handlers() {
        say(format_args!("{slow}"));
    }
    say(format_args!("stopped: {report}"));
    if let Some(sink) = sink {
        let lost = sink.lock().map_or(0, |mut sink| sink.finish());
        if lost > 0 {
            say(format_args!(
                "{lost} writes of the access log were lost: nobody read them"
            ));
        }
    }
    Ok(())
}

/// How many connections are accepted with so many descriptors: an eighth, 64 at the least but no
/// more than half, is kept for the files that are sent.
fn connections_of(descriptors: u64) -> u64 {
    descriptors - (descriptors / 8).max(64).min(descriptors / 2)
}

/// An error that says what was tried, and what to do about it where that is known.
fn explain(error: &io::Error, tried: String) -> Box<dyn Error> {
    let hint = match error.kind() {
        ErrorKind::NotFound => ": there is no such directory",
        ErrorKind::NotADirectory => ": it is not a directory",
        ErrorKind::PermissionDenied => ": it may not be read by this user",
        _ => return format!("{tried}: {error}").into(),
    };
    format!("{tried}{hint}").into()
}

fn explain_bind(error: BindError) -> Box<dyn Error> {
    let BindError::Listen { addr, source } = &error else {
        return error.into();
    };
    let hint = match source.kind() {
        ErrorKind::AddrInUse => "another program listens there; choose another port with --listen",
        ErrorKind::AddrNotAvailable => "no network interface of this machine has that address",
        ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => return error.into(),
    };
    format!("listen on {addr}: {hint}").into()
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
