//! Metrics for Prometheus: a server of its own, on a thread of its own, that asks the loops.

mod page;
mod process;

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use windlass::models::{Limits, LoopNumbers, ServerReport, SingleLoop};
use windlass::session::ProxyReport;
use windlass::thread_set::ThreadSetCounters;
use windlass_http::{
    Answered, HttpConfig, HttpService, Request, Responder, Response, ResponseError, Status,
};
use windlass_sys::net;
use windlass_tls::TlsReport;

use self::page::Page;
use super::log_sink::SharedLog;
use super::loops::Loops;
use super::site::Served;
use crate::{chain, say};

/// The metrics server.
pub(super) struct Metrics {
    /// For a successor.
    pub(super) listener: OwnedFd,
    stop: Box<dyn Fn() + Send>,
    thread: JoinHandle<()>,
}

/// What one loop says.
#[derive(Debug)]
struct Snapshot {
    report: ServerReport,
    open: usize,
    answers: Vec<(u16, u64)>,
    event_loop: Option<LoopNumbers>,
    thread_set: Option<ThreadSetCounters>,
    tls: Option<TlsReport>,
    proxy: Option<ProxyReport>,
}

impl Metrics {
    /// Starts to answer on `listener`.
    pub(super) fn start<V: Served>(
        listener: OwnedFd,
        loops: Loops<V>,
        log: Option<SharedLog>,
    ) -> Result<Self, Box<dyn Error>> {
        let handler = move |request: &Request<'_>, response: Responder<'_>| {
            Ok::<_, ResponseError>(answer(request, response, &loops, log.as_ref()))
        };
        let service = HttpService::new(handler, HttpConfig::default());
        let limits = Limits {
            connections_max: 64,
            stop_deadline: Duration::from_secs(1),
            ..Limits::default()
        };
        let accepting = listener.try_clone()?;
        let (built, is_built) = channel();
        let thread = Builder::new().name("metrics".into()).spawn(move || {
            let server = SingleLoop::builder(Arc::new(service))
                .limits(limits)
                .listener(accepting)
                .build();
            let mut server = match server {
                Ok(server) => server,
                // The other side waits for it.
                Err(error) => return drop(built.send(Err(error))),
            };
            drop(built.send(Ok(server.stop_handle())));
            if let Err(error) = server.run() {
                say(format_args!("the metrics end: {}", chain(&error)));
            }
        })?;
        let handle = is_built.recv()??;
        let stop = Box::new(move || {
            // Stopped already.
            let _ = handle.stop();
        });
        Ok(Self {
            listener,
            stop,
            thread,
        })
    }

    /// Where it answers.
    pub(super) fn addr(&self) -> Option<SocketAddr> {
        net::local_addr(self.listener.as_fd()).ok().flatten()
    }

    /// Stops to accept.
    pub(super) fn stop(&self) {
        (self.stop)();
    }

    /// Ends the server.
    pub(super) fn end(self) {
        self.stop();
        if self.thread.join().is_err() {
            say(format_args!("the metrics thread panicked"));
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

fn answer<V: Served>(
    request: &Request<'_>,
    response: Responder<'_>,
    loops: &Loops<V>,
    log: Option<&SharedLog>,
) -> Answered {
    if request.path() != "/metrics" {
        let answer = Response::text(Status::NOT_FOUND, "metrics are at /metrics");
        return response.respond(answer);
    }
    // Unwind safety: a panic leaves nothing half done in handles and a count.
    let parts = AssertUnwindSafe((loops.clone(), log.cloned()));
    response.job(move || {
        let AssertUnwindSafe((loops, log)) = parts;
        let text = render(&loops, log.as_ref());
        let answer = Response::new(Status::OK);
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        match answer.header("Content-Type", kind) {
            Ok(answer) => answer.body(text),
            Err(_) => Response::text(Status::INTERNAL_SERVER_ERROR, "no such header"),
        }
    })
}

/// Asks the loops, which takes up to a second.
fn render<V: Served>(loops: &Loops<V>, log: Option<&SharedLog>) -> String {
    let snapshots = loops.ask(|thread| Snapshot {
        report: thread.report(),
        open: thread.open_connections(),
        answers: V::http(thread.local()).answers().collect(),
        event_loop: thread.loop_numbers(),
        thread_set: thread.set_numbers(),
        tls: thread.service().tls_report(),
        proxy: thread.service().proxy_report(),
    });
    let mut page = Page::default();
    page.info();
    page.loops(&snapshots);
    if let Some(log) = log.and_then(|log| log.lock().ok()) {
        page.log_losses(log.lost());
    }
    process::write(&mut page);
    page.into_text()
}
