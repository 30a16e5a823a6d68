//! A thread of a crew, as what is posted to it sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Hand;
use crate::models::limits::Limits;
use crate::models::report::ServerReport;
use crate::models::server::{LoopNumbers, ServerThread};
use crate::session::Service;
use crate::thread_set::ThreadSetCounters;

/// See the module.
pub(super) struct CrewThread<'a, V: Service>(pub(super) &'a mut Hand<V>);

impl<V: Service> ServerThread<V> for CrewThread<'_, V> {
    fn service(&self) -> &Arc<V> {
        &self.0.lane.service
    }

    fn local(&mut self) -> &mut V::Local {
        &mut self.0.lane.local
    }

    fn report(&self) -> ServerReport {
        let mut report = self.0.lane.counts;
        if self.0.index == 0 {
            report.cut += self.0.crew.book.cuts().0;
        }
        report
    }

    fn open_connections(&self) -> usize {
        if self.0.index == 0 {
            self.0.crew.book.open_count()
        } else {
            0
        }
    }

    fn replace_service(&mut self, service: Arc<V>) {
        let now = self.0.crew.handles.clock();
        let now = self.0.lane.now(now);
        self.0.lane.replace_service(service, now);
        self.0.settles = self.0.lane.service.settles();
    }

    fn limits(&self) -> &Limits {
        &self.0.lane.limits
    }

    fn set_limits(&mut self, limits: Limits) {
        self.0.lane.set_limits(limits);
        self.0.crew.set_limits(limits);
    }

    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        if self.0.index == 0 {
            self.0.crew.duplicate_listeners()
        } else {
            Ok(Vec::new())
        }
    }

    fn keep_socket_files(&self) {
        self.0.crew.keep_socket_files();
    }

    fn loop_numbers(&self) -> Option<LoopNumbers> {
        None
    }

    fn set_numbers(&self) -> Option<ThreadSetCounters> {
        (self.0.index == 0).then(|| self.0.crew.handles.counters())
    }

    fn dump(&self) -> String {
        let crew = &self.0.crew;
        if self.0.index > 0 {
            return "a thread of a set; the first one tells what that watches\n".into();
        }
        format!(
            "{} events watched with {}, {} connections open, {} threads that call sessions\n",
            crew.handles.len(),
            crew.handles.backend(),
            crew.book.open_count(),
            crew.seats.len(),
        )
    }
}
