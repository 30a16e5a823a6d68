//! Ctrl-C: ends the run that is under way, so that what was measured before can be reported.

use std::collections::BTreeSet;
use std::error::Error;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal as Kill, kill_process};
use windlass::Disposition::Keep;
use windlass::event_loop::{EventLoop, Signal};

use crate::{chain, say};

/// What a shell shows for a program that Ctrl-C has ended.
pub(super) const EXIT_CODE: u8 = 130;

/// Whether to stop, and who must end then. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_set: AtomicBool,
    children: Mutex<BTreeSet<u32>>,
}

impl Interrupt {
    /// Watches for SIGINT and SIGTERM, in a thread of its own, until the program ends. The second
    /// one ends it at once.
    pub(super) fn watch() -> Result<Self, Box<dyn Error>> {
        let interrupt = Self::default();
        let watched = interrupt.clone();
        let (ready, is_ready) = channel();
        thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut event_loop = match watched.open() {
                    Ok(event_loop) => {
                        let _ = ready.send(Ok(()));
                        event_loop
                    }
                    Err(error) => {
                        let _ = ready.send(Err(chain(&*error)));
                        return;
                    }
                };
                if let Err(error) = event_loop.run(&mut ()) {
                    say(format_args!(
                        "{}: Ctrl-C is not watched any more",
                        chain(&error)
                    ));
                }
            })?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(interrupt),
            Ok(Err(error)) => Err(format!("watch for signals: {error}").into()),
            Err(_) => Err("the thread that watches for signals ended as it began".into()),
        }
    }

    fn open(&self) -> Result<EventLoop<'static, ()>, Box<dyn Error>> {
        let mut event_loop = EventLoop::new()?;
        event_loop.hold();
        for signal in [Signal::INT, Signal::TERM] {
            let interrupt = self.clone();
            event_loop.on_signal(signal, move |(), _, _| {
                interrupt.set();
                Keep
            })?;
        }
        Ok(event_loop)
    }

    /// Kills the children. What waits for them finds out.
    fn set(&self) {
        if self.0.is_set.swap(true, Ordering::SeqCst) {
            process::exit(i32::from(EXIT_CODE));
        }
        for &child in self.children().iter() {
            kill(child, Kill::KILL);
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
    }

    /// A child has started. If it is too late for it, it is killed.
    pub(super) fn add(&self, child: u32) {
        self.children().insert(child);
        if self.is_set() {
            kill(child, Kill::KILL);
        }
    }

    /// A child is about to be waited for: its number may soon be another's.
    pub(super) fn remove(&self, child: u32) {
        self.children().remove(&child);
    }

    fn children(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // A set of numbers is never half changed.
        let children = self.0.children.lock();
        children.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a signal to a child that was not waited for yet.
pub(super) fn kill(child: u32, signal: Kill) {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}
