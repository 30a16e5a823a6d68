//! The server: `windlass-kv [--listen ADDR] [--model NAME] [--threads N]`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use clap::Parser;
use windlass::Disposition::Keep;
use windlass::event_loop::{EventLoop, Poster, Signal};
use windlass::models::{ModelKind, ServerReport, SingleLoop, StopHandle};
use windlass_kv::{Config, ExpiryTimer, KvService, Store};

/// A small key-value store that speaks Redis' protocol.
#[derive(Debug, Parser)]
#[command(name = "windlass-kv", version)]
struct Arguments {
    /// Where to listen.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6379")]
    listen: SocketAddr,
    /// The concurrency model.
    #[arg(long, value_name = "NAME", default_value_t = ModelKind::SingleLoop)]
    model: ModelKind,
    /// How many threads the model has, if it can have several.
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// The largest value, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().bulk_bytes_max)]
    bulk_max: usize,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// With several threads: enough that two of them rarely want the same.
const SHARDS: usize = 16;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_alone = arguments.model == ModelKind::SingleLoop;
    let store = Arc::new(Store::new(Config {
        bulk_bytes_max: arguments.bulk_max,
        command_bytes_max: Config::default().command_bytes_max.max(arguments.bulk_max),
        shards: if is_alone { 1 } else { SHARDS },
        ..Config::default()
    }));
    let served = if is_alone {
        serve_alone(&arguments, store)
    } else {
        serve(&arguments, store)
    };
    match served {
        Ok(report) => {
            say(format_args!("{report}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(format_args!("windlass-kv: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// On one loop, which also has the signals and expires keys.
fn serve_alone(arguments: &Arguments, store: Arc<Store>) -> Result<ServerReport> {
    let service = Arc::new(KvService::new(Arc::clone(&store)));
    let mut server = SingleLoop::builder(service)
        .listen(arguments.listen)
        .build()?;
    ExpiryTimer::attach(server.reactor(), store)?;
    for signal in [Signal::INT, Signal::TERM] {
        server.reactor().on_signal(signal, |state, cx, _| {
            state.stop(cx);
            Keep
        })?;
    }
    announce(server.local_addrs());
    Ok(server.run()?)
}

/// On any model, with a loop beside it that has the signals and expires keys.
fn serve(arguments: &Arguments, store: Arc<Store>) -> Result<ServerReport> {
    let service = Arc::new(KvService::new(Arc::clone(&store)));
    let mut builder = arguments.model.builder(service).listen(arguments.listen);
    if let Some(threads) = arguments.threads {
        builder = builder.threads(threads);
    }
    let mut server = builder.build()?;
    let stop = server.stop_handle();
    let (opened, is_open) = mpsc::channel();
    let control = thread::spawn(move || match open_control(stop, store) {
        Ok(mut event_loop) => {
            // Whoever waits for it is there, or does not care any more.
            let _ = opened.send(Ok(event_loop.poster()));
            if let Err(error) = event_loop.run(&mut ()) {
                say(format_args!("windlass-kv: {error}"));
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error.to_string()));
        }
    });
    let poster: Poster<'static, ()> = is_open.recv()??;
    announce(server.local_addrs());
    if server.kind() == ModelKind::UringProactor
        && let Some(reason) = server.proactor_fallback()
    {
        say(format_args!(
            "operations are done by the emulated driver: {reason}"
        ));
    }
    let report = server.run();
    poster.stop();
    if control.join().is_err() {
        return Err("the control loop panicked".into());
    }
    Ok(report?)
}

fn open_control(stop: StopHandle, store: Arc<Store>) -> Result<EventLoop<'static, ()>> {
    let mut event_loop = EventLoop::new()?;
    event_loop.hold();
    ExpiryTimer::attach(&mut event_loop, store)?;
    for signal in [Signal::INT, Signal::TERM] {
        let stop = stop.clone();
        event_loop.on_signal(signal, move |(), _, _| {
            // It has ended already.
            let _ = stop.stop();
            Keep
        })?;
    }
    Ok(event_loop)
}

fn announce(addrs: &[SocketAddr]) {
    for addr in addrs {
        say(format_args!("listening on {addr}"));
    }
}

/// Reports on standard error. That nobody reads there must not end the program.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}
