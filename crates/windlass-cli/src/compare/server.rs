//! The server of one run, a process of its own: `windlass compare-server`.
//!
//! Prints where it listens, answers `figures` with what it has used, and ends with its standard
//! input, at once: what was to be measured has been.

use std::error::Error;
use std::io::{self, BufRead};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process;
use std::sync::Arc;
use std::thread;

use windlass::models::{Limits, MultiLoop, SingleLoop};
use windlass::session::Service;
use windlass_sys::limits::raise_descriptor_limit;

use super::args::ServerArguments;
use super::machine;
use super::model::{Compute, ModelKind};
use super::service::{Echo, Site};
use super::wire::{FIGURES, ServerSays, UsageFigures, tell};
use super::workload::Workload;

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
        Err(error) => return tell(&ServerSays::Failed(error)),
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
fn start_model<V: Service>(arguments: &ServerArguments, service: Arc<V>) -> Result<Started, String> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let failed = |error: &(dyn Error + 'static)| crate::chain(error);
    match arguments.model {
        ModelKind::SingleLoop => {
            let server = SingleLoop::builder(service).limits(limits()).listen(addr);
            let mut server = server.build().map_err(|error| failed(&error))?;
            Ok(Started {
                addr: server.local_addrs()[0],
                serve: Box::new(move || Ok(server.run().map(drop)?)),
            })
        }
        ModelKind::MultiLoop => {
            let threads = machine::threads_of(arguments.model, arguments.threads);
            let loops = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
            let server = MultiLoop::builder(service).limits(limits()).loops(loops);
            let mut server = server.listen(addr).build().map_err(|error| failed(&error))?;
            Ok(Started {
                addr: server.local_addrs()[0],
                serve: Box::new(move || Ok(server.run().map(drop)?)),
            })
        }
        _ => Err("this model is not available".into()),
    }
}

fn limits() -> Limits {
    Limits::default()
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
