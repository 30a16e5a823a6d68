//! The `windlass` program. See `windlass --help`.

#![forbid(unsafe_code)]

mod compare;
mod manual;
mod serve;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
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
    /// Serve a directory over HTTP.
    ///
    /// One or more event loops serve the files below a directory; nothing outside of it can be
    /// reached.
    Serve(Box<serve::ServeArguments>),
    /// Measure the concurrency models side by side, on this machine.
    ///
    /// Runs one service under every model, with a load generator in a process of its own, and
    /// shows what each one costs: a table here, a page to look at, JSON for programs. Ctrl-C ends
    /// it early, with a report of what was measured until then.
    Compare(Box<compare::CompareArguments>),
    /// The server of a comparison, which starts it itself.
    #[command(hide = true)]
    CompareServer(Box<compare::ServerArguments>),
    /// The load generator of a comparison, which starts it itself.
    #[command(hide = true)]
    CompareLoad(Box<compare::LoadArguments>),
    /// Print a script that completes the command line, for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page: windlass man | man -l -
    Man,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Compare(arguments) => match compare::run(&arguments) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::CompareServer(arguments) => compare::run_server(&arguments),
        Command::CompareLoad(arguments) => compare::run_load(&arguments),
        Command::Completions { shell } => manual::print_completions(shell),
        Command::Man => manual::print_manual(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{}", chain(&*error)));
            ExitCode::FAILURE
        }
    }
}

/// Reports on standard error. That nobody reads there, or can, must not end the program in another
/// way than it would, as it might with `eprintln!`.
fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "windlass: {what}");
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
