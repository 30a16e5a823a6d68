//! The `windlass` program. See `windlass --help`.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stderr,
    reason = "a program that reports on standard error"
)]

mod serve;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Event-driven I/O for Linux.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory over HTTP from a single-threaded event loop.
    Serve(serve::ServeArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
