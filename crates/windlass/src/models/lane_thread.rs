//! A thread that only calls sessions, as a thread of a server of any model.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::lane::Lane;
use super::limits::Limits;
use super::report::ServerReport;
use super::server::{LoopNumbers, ServerThread};
use crate::session::{Now, Service};

/// The thread's lane, during a call. Connections and listeners are another thread's.
pub(super) struct LaneThread<'a, V: Service> {
    pub(super) lane: &'a mut Lane<V>,
    pub(super) now: Now,
}

impl<V: Service> ServerThread<V> for LaneThread<'_, V> {
    fn service(&self) -> &Arc<V> {
        &self.lane.service
    }

    fn local(&mut self) -> &mut V::Local {
        &mut self.lane.local
    }

    fn report(&self) -> ServerReport {
        self.lane.counts
    }

    fn open_connections(&self) -> usize {
        0
    }

    fn replace_service(&mut self, service: Arc<V>) {
        self.lane.replace_service(service, self.now);
    }

    fn limits(&self) -> &Limits {
        &self.lane.limits
    }

    fn set_limits(&mut self, limits: Limits) {
        self.lane.set_limits(limits);
    }

    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn keep_socket_files(&self) {}

    fn loop_numbers(&self) -> Option<LoopNumbers> {
        None
    }

    fn dump(&self) -> String {
        String::new()
    }
}
