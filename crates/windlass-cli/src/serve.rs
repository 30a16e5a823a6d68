//! `windlass serve`: a directory over HTTP, from a single-threaded event loop.

mod args;
mod config;
mod log_sink;
mod units;

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use windlass::Disposition::Keep;
use windlass::event_loop::{LoopConfig, PanicPolicy, Signal};
use windlass::models::{BindError, Limits, SingleLoop};
use windlass_http::{AccessLog, HttpConfig, HttpService, LogFormat, StaticFiles};
use windlass_sys::limits::raise_descriptor_limit;

pub(crate) use self::args::ServeArguments;
use self::config::{AccessLogFormat, Config};
use self::log_sink::LogSink;
use crate::say;

/// Descriptors asked for: each connection takes one, each file that is sent another.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

/// Serves until a signal says to stop.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Box<dyn Error>> {
    let settings = Config::gather(arguments)?;
    if arguments.print_config {
        return crate::manual::print(config::to_toml(&settings).as_bytes());
    }
    let files = StaticFiles::new(&settings.dir)
        .map_err(|error| explain(&error, format!("serve {}", settings.dir.display())))?;
    let mut config = HttpConfig::default();
    let format = match settings.access_log.format {
        AccessLogFormat::Combined => Some(LogFormat::Combined),
        AccessLogFormat::Common => Some(LogFormat::Common),
        AccessLogFormat::Json | AccessLogFormat::Off => None,
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
        connections_max: connections_max.min(settings.limits.connections.get()),
        stop_deadline: settings.stop.deadline.0,
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
    for &addr in settings.tcp_listeners() {
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
            settings.dir.display()
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
