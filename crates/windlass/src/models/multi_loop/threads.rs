//! The threads of all loops of a server but the first.
//!
//! A thread opens its loop, as a loop stays where it was opened, tells its handle, and waits for
//! the start. Without one (the server is dropped, or could not be built) it ends.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::event_loop::{LoopConfig, RunError, SlowHandler};
use crate::models::group::{End, Group};
use crate::models::handle::LoopHandle;
use crate::models::listening::{BindError, ListenSocket};
use crate::models::report::{CutConnection, ServerReport};
use crate::models::single_loop::{LoopParts, ServerLoop};
use crate::session::Service;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LoopThreads {
    threads: Vec<JoinHandle<Result<LoopEnd, RunError>>>,
    starts: Vec<Sender<()>>,
    is_started: bool,
}

/// What is left of a loop that has ended, or of several.
#[derive(Debug, Default)]
pub(super) struct LoopEnd {
    pub(super) report: ServerReport,
    pub(super) cuts: Vec<CutConnection>,
    pub(super) slow_handlers: Vec<SlowHandler>,
}

impl LoopThreads {
    /// Starts the thread of one more loop, and waits until that is open.
    pub(super) fn add<V: Service>(
        &mut self,
        parts: LoopParts<V>,
        config: LoopConfig,
        sockets: Vec<ListenSocket>,
    ) -> Result<LoopHandle<V>, BindError> {
        let (start, started) = mpsc::channel();
        let (tell, opened) = mpsc::sync_channel(1);
        let name = format!("loop-{}", parts.index);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let group = Arc::clone(&parts.group);
            let server = ServerLoop::open(parts, config, sockets).map(|mut server| {
                server.event_loop.hold();
                server
            });
            match server {
                Ok(server) => {
                    // The builder waits for it.
                    let _ = tell.send(Ok(server.handle()));
                    run(server, &started, group)
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    Ok(LoopEnd::default())
                }
            }
        });
        self.threads.push(thread.map_err(BindError::Thread)?);
        self.starts.push(start);
        let told = opened.recv();
        told.unwrap_or_else(|_| {
            // The service panicked as it made its shared part.
            let panic = self.threads.pop().map(JoinHandle::join);
            match panic {
                Some(Err(panic)) => resume_unwind(panic),
                _ => unreachable!("a thread that panics tells nothing, and no other"),
            }
        })
    }

    /// Has the loops run; answers whether this was the first call.
    pub(super) fn start(&mut self) -> bool {
        for start in self.starts.drain(..) {
            // It waits for it, unless it was killed by a panic: then its end tells.
            let _ = start.send(());
        }
        !std::mem::replace(&mut self.is_started, true)
    }

    /// Waits until all have ended. Passes on the first panic.
    pub(super) fn join(&mut self) -> Result<LoopEnd, RunError> {
        let ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        let mut all = LoopEnd::default();
        for end in ends {
            let end = end.unwrap_or_else(|panic| resume_unwind(panic))?;
            all.report += end.report;
            all.cuts.extend(end.cuts);
            all.slow_handlers.extend(end.slow_handlers);
        }
        Ok(all)
    }
}

impl Drop for LoopThreads {
    fn drop(&mut self) {
        // Those that were not started end.
        self.starts.clear();
        for thread in self.threads.drain(..) {
            // Its panic was the server's business while that lived.
            let _ = thread.join();
        }
    }
}

/// Tells the others of a loop's end, however that comes.
struct EndGuard<V: Service> {
    group: Arc<Group<V>>,
    end: End,
}

impl<V: Service> Drop for EndGuard<V> {
    fn drop(&mut self) {
        self.group.note_end(self.end);
    }
}

fn run<V: Service>(
    server: ServerLoop<V>,
    started: &Receiver<()>,
    group: Arc<Group<V>>,
) -> Result<LoopEnd, RunError> {
    if started.recv().is_err() {
        return Ok(LoopEnd::default());
    }
    let end = End::Unasked;
    let mut guard = EndGuard { group, end };
    // Dropped before the guard: the others are told when the loop is gone.
    let mut server = server;
    server.run()?;
    if server.state.is_stopping() {
        guard.end = End::Stopped;
    }
    Ok(LoopEnd {
        report: server.state.report(),
        cuts: server.state.cut_connections().to_vec(),
        slow_handlers: server.event_loop.slow_handlers().cloned().collect(),
    })
}
