//! Child processes: this program in another role, spoken to by lines.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::interrupt::Interrupt;

/// Why a run gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunError {
    Failed(String),
    Interrupted,
    /// The model can't be built here; trying again is of no use.
    Unavailable(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::Unavailable(why) => f.write_str(why),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// This program, running in the role of `name`. Killed and waited for when it is dropped.
#[derive(Debug)]
pub(super) struct Role {
    name: &'static str,
    process: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    interrupt: Interrupt,
}

impl Role {
    /// Starts the hidden command `name`.
    pub(super) fn start(
        name: &'static str,
        arguments: &[String],
        interrupt: &Interrupt,
    ) -> Result<Self, RunError> {
        let failed = |error| RunError::Failed(format!("start {name}: {error}"));
        let program = env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(name).args(arguments);
        // Ctrl-C is for the parent only, which may have something to finish.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        interrupt.add(process.id());
        let stdin = process.stdin.take();
        let stdout = process.stdout.take();
        let (heard, lines) = channel();
        let role = Self {
            name,
            process,
            stdin,
            lines,
            interrupt: interrupt.clone(),
        };
        let Some(stdout) = stdout else {
            return Err(role.failed("has no output"));
        };
        let reader = thread::Builder::new().name("reader".into());
        let spawned = reader.spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if heard.send(line).is_err() {
                    break;
                }
            }
        });
        match spawned {
            Ok(_) => Ok(role),
            Err(error) => Err(role.failed(&error.to_string())),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Says a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), RunError> {
        let Some(stdin) = &mut self.stdin else {
            return Err(self.failed("has no input"));
        };
        match writeln!(stdin, "{line}") {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    /// Waits for a line, for no longer than `limit`.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, RunError> {
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(self.failed(&format!("says nothing for {} s", limit.as_secs())));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = match self.process.try_wait() {
                    Ok(Some(status)) => format!("has ended ({status})"),
                    _ => "has ended".to_owned(),
                };
                return Err(self.failed(&how));
            }
        };
        serde_json::from_str(&line).map_err(|error| self.failed(&format!("{error}: {line}")))
    }

    fn failed(&self, what: &str) -> RunError {
        if self.interrupt.is_set() {
            RunError::Interrupted
        } else {
            RunError::Failed(format!("{} {what}", self.name))
        }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // It has nothing to save; that it ends by itself would take longer.
        let _ = self.process.kill();
        self.interrupt.remove(self.process.id());
        let _ = self.process.wait();
    }
}
