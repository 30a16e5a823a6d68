//! Restart without a lost connection: what SIGUSR2 does.
//!
//! The program is started anew, as it was called, with duplicates of all listening sockets: both
//! processes accept until the new one says that it is ready, then the old one stops gracefully. No
//! socket is ever without a listener. If the new one ends first, or takes too long, the old one goes
//! on as if nothing had been.

use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use windlass::Disposition::{Keep, Remove};
use windlass::EventId;
use windlass_sys::activation::pass_listeners;

use super::control::{Control, Cx, Phase, tell_manager};
use super::listeners::{ACTIVATED, METRICS, OWN};
use super::site::Served;
use crate::{chain, say};

/// Tells a started program that its standard input is a socket on which it is to say that it is
/// ready.
const READY: &str = "WINDLASS_TELL_READY";

/// A successor that is not ready yet.
#[derive(Debug)]
pub(super) struct Restart {
    child: Child,
    /// Watches for its word.
    word: EventId,
    /// Ends the patience.
    timeout: EventId,
}

impl Restart {
    /// Ends the successor, of which nobody wants to know any more; answers how it ended.
    pub(super) fn abandon(mut self) -> String {
        // It may have ended by itself.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl<V: Served> Control<V> {
    /// Starts a successor.
    pub(super) fn restart(&mut self, cx: &mut Cx<'_, V>) {
        if self.phase != Phase::Serving {
            say(format_args!("no restart: this process is stopping"));
        } else if self.restart.is_some() {
            say(format_args!("a restart is under way already"));
        } else {
            match self.start_successor(cx) {
                Ok(restart) => {
                    say(format_args!(
                        "restarting: started process {}",
                        restart.child.id()
                    ));
                    self.restart = Some(restart);
                }
                Err(error) => say(format_args!(
                    "restart: {}: this process goes on",
                    chain(&*error)
                )),
            }
        }
    }

    fn start_successor(&self, cx: &mut Cx<'_, V>) -> Result<Restart, Box<dyn Error>> {
        let listeners = self.duplicate_listeners()?;
        let borrowed: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
        let mut arguments = std::env::args_os();
        // As it was called, so that a program that has taken its place on the disk is started.
        let program = arguments.next().ok_or("the program's name is not known")?;
        let mut command = Command::new(program);
        command.args(arguments).env(READY, "1");
        for name in [
            OWN,
            ACTIVATED,
            METRICS,
            "LISTEN_FDS",
            "LISTEN_PID",
            "LISTEN_FDNAMES",
        ] {
            command.env_remove(name);
        }
        pass_listeners(&mut command, self.pass_as, &borrowed)?;
        if let Some(metrics) = &self.metrics {
            pass_listeners(&mut command, METRICS, &[metrics.listener.as_fd()])?;
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut child = command
            .spawn()
            .map_err(|error| format!("start {:?}: {error}", command.get_program()))?;
        // Also closes our copies of what the child has.
        drop(command);
        let watched = cx.on_readable(ours, |control: &mut Self, cx, stream| {
            match (&*stream).read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Keep,
                Ok(1..) => control.hand_over(cx),
                Ok(0) | Err(_) => control.give_up(cx, "ended before it was ready"),
            }
            Remove
        });
        let deadline = self.config.stop.restart_deadline;
        let timed = cx.after(deadline.0, |control: &mut Self, cx| {
            control.give_up(cx, "was not ready in time");
        });
        match (watched, timed) {
            (Ok(word), Ok(timeout)) => Ok(Restart {
                child,
                word,
                timeout,
            }),
            (Err(error), _) | (_, Err(error)) => {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// The listeners of all loops.
    fn duplicate_listeners(&self) -> Result<Vec<OwnedFd>, Box<dyn Error>> {
        let mut listeners = Vec::new();
        let answers = self.loops.ask(|thread| thread.duplicate_listeners());
        for (at, answer) in answers.into_iter().enumerate() {
            let duplicates = answer.ok_or_else(|| format!("loop {at} does not answer"))?;
            listeners.extend(duplicates?);
        }
        Ok(listeners)
    }

    /// The successor is ready.
    fn hand_over(&mut self, cx: &mut Cx<'_, V>) {
        let Some(restart) = self.restart.take() else {
            return;
        };
        cx.remove(restart.timeout);
        let pid = restart.child.id();
        say(format_args!("process {pid} has taken over, stopping"));
        tell_manager(&format!("MAINPID={pid}\nREADY=1"));
        // Both are done before anything else can end a loop.
        self.loops.ask(|thread| thread.keep_socket_files());
        if let Some(metrics) = &self.metrics {
            metrics.stop();
        }
        self.phase = Phase::Stopping;
        self.around.health.set_stopping();
        // Gone already.
        let _ = self.loops.stop.stop();
    }

    /// The successor will not be.
    fn give_up(&mut self, cx: &mut Cx<'_, V>, why: &str) {
        let Some(restart) = self.restart.take() else {
            return;
        };
        cx.remove(restart.timeout);
        cx.remove(restart.word);
        let pid = restart.child.id();
        let end = restart.abandon();
        say(format_args!(
            "restart: process {pid} {why} ({end}): this process goes on"
        ));
    }
}

/// Tells the process that this one takes over from, if there is one, that this one is ready.
/// Answers whether there is.
pub(super) fn tell_predecessor() -> io::Result<Predecessor> {
    if std::env::var_os(READY).is_none() {
        return Ok(Predecessor::None);
    }
    let stdin = io::stdin();
    let mut word = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // What is not a socket, or has no other end, fails here.
    word.write_all(b"r")?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Predecessor::Told)
}

/// Whether another process gives way to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predecessor {
    None,
    Told,
}
