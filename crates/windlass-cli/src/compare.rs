//! `windlass compare`: every model under the same load, on this machine.

mod args;
mod load;
mod machine;
mod model;
mod server;
mod service;
mod stats;
mod wire;
mod workload;

use std::error::Error;
use std::process::ExitCode;

pub(crate) use self::args::{CompareArguments, LoadArguments, ServerArguments};
pub(crate) use self::load::run as run_load;
pub(crate) use self::server::run as run_server;

/// Compares.
pub(crate) fn run(_arguments: &CompareArguments) -> Result<ExitCode, Box<dyn Error>> {
    Ok(ExitCode::SUCCESS)
}
