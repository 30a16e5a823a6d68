//! Handles: how a running server's loops are reached from any thread.

use std::fmt;
use std::sync::Arc;

use super::group::Group;
use super::single_loop::ServerState;
use crate::event_loop::{Context, PostError, Poster};
use crate::session::Service;

/// Reaches one loop of a server, from any thread or handler.
pub struct LoopHandle<V: Service> {
    poster: Poster<'static, ServerState<V>>,
}

impl<V: Service> LoopHandle<V> {
    pub(super) fn new(poster: Poster<'static, ServerState<V>>) -> Self {
        Self { poster }
    }

    /// Has the loop call `run` in its own thread, in a turn to come: to read its numbers, to
    /// [replace its service](ServerState::replace_service).
    ///
    /// # Errors
    ///
    /// If the loop is gone; the closure is dropped. One that was posted and then not called,
    /// because the loop ended first, is dropped too.
    pub fn post<F>(&self, run: F) -> Result<(), PostError>
    where
        F: FnOnce(&mut ServerState<V>, &mut Context<'_, 'static, ServerState<V>>) + Send + 'static,
    {
        self.poster.post(run)
    }

    /// Has the loop look after its hooks.
    pub(super) fn wake(&self) {
        self.poster.wake();
    }
}

impl<V: Service> Clone for LoopHandle<V> {
    fn clone(&self) -> Self {
        Self {
            poster: self.poster.clone(),
        }
    }
}

impl<V: Service> fmt::Debug for LoopHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle").finish_non_exhaustive()
    }
}

/// Stops a server, all loops of it, from any thread or handler.
pub struct StopHandle<V: Service> {
    group: Arc<Group<V>>,
}

impl<V: Service> StopHandle<V> {
    pub(super) fn new(group: Arc<Group<V>>) -> Self {
        Self { group }
    }

    /// Begins a graceful stop: no connection is accepted any more, idle ones are closed, those
    /// that answer finish, and after [`Limits::stop_deadline`](super::Limits::stop_deadline) the
    /// rest is cut. A second call cuts at once.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn stop(&self) -> Result<(), PostError> {
        // The first loop lives as long as any, and tells the others.
        self.group.handles()[0].post(|state, cx| state.stop(cx))
    }
}

impl<V: Service> Clone for StopHandle<V> {
    fn clone(&self) -> Self {
        Self {
            group: Arc::clone(&self.group),
        }
    }
}

impl<V: Service> fmt::Debug for StopHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHandle").finish_non_exhaustive()
    }
}
