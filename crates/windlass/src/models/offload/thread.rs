//! The threads of a server that off-loads, as the program sees them: with its own service.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Offload, Queue};
use crate::event_loop::PostError;
use crate::models::limits::Limits;
use crate::models::report::ServerReport;
use crate::models::server::{LoopNumbers, ServerThread, ThreadHandle};
use crate::session::Service;

/// All threads: those of the loops, then the workers at `queue`.
pub(in crate::models) fn threads<V: Service>(
    loops: Vec<ThreadHandle<Offload<V>>>,
    queue: &Arc<Queue<V>>,
) -> Vec<ThreadHandle<V>> {
    let loops = loops.into_iter().map(|handle| {
        ThreadHandle::new(move |visit| {
            handle.post(move |thread| visit(&mut OffloadingThread(thread)))
        })
    });
    let workers = (0..queue.workers()).map(|worker| {
        let queue = Arc::clone(queue);
        ThreadHandle::new(move |visit| queue.post(worker, visit).map_err(|_| PostError))
    });
    loops.chain(workers).collect()
}

/// A thread of a loop that off-loads.
struct OffloadingThread<'a, V: Service>(&'a mut dyn ServerThread<Offload<V>>);

impl<V: Service> ServerThread<V> for OffloadingThread<'_, V> {
    fn service(&self) -> &Arc<V> {
        self.0.service().inner()
    }

    fn local(&mut self) -> &mut V::Local {
        self.0.local().inner()
    }

    fn report(&self) -> ServerReport {
        self.0.report()
    }

    fn open_connections(&self) -> usize {
        self.0.open_connections()
    }

    fn replace_service(&mut self, service: Arc<V>) {
        let service = self.0.service().replaced_by(service);
        self.0.replace_service(Arc::new(service));
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn set_limits(&mut self, limits: Limits) {
        self.0.set_limits(limits);
    }

    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.duplicate_listeners()
    }

    fn keep_socket_files(&self) {
        self.0.keep_socket_files();
    }

    fn loop_numbers(&self) -> Option<LoopNumbers> {
        self.0.loop_numbers()
    }

    fn dump(&self) -> String {
        self.0.dump()
    }
}
