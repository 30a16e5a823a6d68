//! The server of one run, a process of its own: `windlass compare-server`.
//!
//! Prints where it listens, answers `figures` with what it has used, and ends with its standard
//! input, at once: what was to be measured has been.

use std::error::Error;
use std::io::{self, BufRead};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::thread;

use windlass::session::Service;
use windlass_sys::limits::raise_descriptor_limit;
use windlass_sys::net::{ListenOptions, listen_group};

use super::args::ServerArguments;
use super::model::{Compute, Model};
use super::service::{Echo, Site};
use super::wire::{FIGURES, ServerSays, UsageFigures, tell};
use super::workload::Workload;
use super::{congestion, machine};
use crate::chain;

/// Each connection takes a descriptor.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

/// Serves until standard input ends.
pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Box<dyn Error>> {
    machine::stay_on(&arguments.cpus)?;
    // With fewer, fewer idle connections are asked for.
    let _ = raise_descriptor_limit(DESCRIPTORS_WANTED);
    let started = match arguments.workload {
        Workload::Echo => start_model(arguments, Arc::new(Echo)),
        _ => {
            let compute = Compute::of(arguments.model);
            let site = Site::service(&arguments.dir, compute, arguments.compute_steps)?;
            start_model(arguments, Arc::new(site))
        }
    };
    let model = match started {
        Ok(model) => model,
        Err(error) => return tell(&ServerSays::Failed(chain(&*error))),
    };
    thread::Builder::new()
        .name("control".into())
        .spawn(control)?;
    tell(&ServerSays::Listening(model.addr))?;
    (model.serve)()
}

/// A model that listens.
struct Started {
    addr: SocketAddr,
    /// Serves, in the thread that calls.
    serve: Box<dyn FnOnce() -> Result<(), Box<dyn Error>>>,
}

/// Builds the server of a model.
fn start_model<V: Service>(
    arguments: &ServerArguments,
    service: Arc<V>,
) -> Result<Started, Box<dyn Error>> {
    let Some(kind) = arguments.model.kind() else {
        return Err("this model is not available".into());
    };
    let threads = arguments.threads.and_then(NonZeroU32::new);
    let threads = threads.and_then(|threads| NonZeroUsize::try_from(threads).ok());
    let mut builder = kind.builder(service);
    for listener in listeners(arguments.model, threads)? {
        builder = builder.listener(listener);
    }
    if let Some(threads) = threads {
        builder = builder.threads(threads);
    }
    let mut server = builder.build()?;
    let addr = server.local_addrs().first().copied();
    Ok(Started {
        addr: addr.ok_or("the server listens nowhere")?,
        serve: Box::new(move || Ok(server.run().map(drop)?)),
    })
}

/// Opens a socket for each loop that accepts, as the model does when it is told an address.
fn listeners(model: Model, threads: Option<NonZeroUsize>) -> io::Result<Vec<OwnedFd>> {
    let count = match model {
        Model::MultiLoop => threads
            .or_else(|| thread::available_parallelism().ok())
            .map_or(1, usize::from),
        _ => 1,
    };
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listeners = listen_group(&addr, count, ListenOptions::default())?;
    for listener in &listeners {
        congestion::prefer(listener);
    }
    Ok(listeners)
}

/// Answers the parent, and ends the process with it.
fn control() {
    for line in io::stdin().lock().lines() {
        match line {
            Ok(line) if line == FIGURES => {
                if tell(&UsageFigures::take()).is_err() {
                    break;
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    process::exit(0);
}
