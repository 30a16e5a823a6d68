//! A loop as a thread of a server of any model.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::state::ServerState;
use crate::event_loop::Context;
use crate::models::limits::Limits;
use crate::models::report::ServerReport;
use crate::models::server::{LoopNumbers, ServerThread};
use crate::session::Service;

/// The loop's state, and the loop, during a call.
pub(in crate::models) struct LoopThread<'a, 'c, V: Service> {
    pub(in crate::models) state: &'a mut ServerState<V>,
    pub(in crate::models) cx: &'a mut Context<'c, 'static, ServerState<V>>,
}

impl<V: Service> ServerThread<V> for LoopThread<'_, '_, V> {
    fn service(&self) -> &Arc<V> {
        self.state.service()
    }

    fn local(&mut self) -> &mut V::Local {
        self.state.local_mut()
    }

    fn report(&self) -> ServerReport {
        self.state.report()
    }

    fn open_connections(&self) -> usize {
        self.state.open_connections()
    }

    fn replace_service(&mut self, service: Arc<V>) {
        self.state.replace_service(self.cx, service);
    }

    fn limits(&self) -> &Limits {
        self.state.limits()
    }

    fn set_limits(&mut self, limits: Limits) {
        self.state.set_limits(limits);
    }

    fn duplicate_listeners(&self) -> io::Result<Vec<OwnedFd>> {
        self.state.duplicate_listeners()
    }

    fn keep_socket_files(&self) {
        self.state.keep_socket_files();
    }

    fn loop_numbers(&self) -> Option<LoopNumbers> {
        Some(LoopNumbers {
            lag: self.cx.lag().clone(),
            handler_times: self.cx.handler_times().cloned(),
            slow_handlers: self.cx.slow_handler_count(),
        })
    }

    fn dump(&self) -> String {
        self.cx.dump()
    }
}
