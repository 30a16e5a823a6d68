//! Handles: how a running server's loops are reached from any thread.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::server::ThreadHandle;
use super::single_loop::{LoopThread, ServerState};
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

    /// The same loop, as a thread of a server of any model.
    pub(super) fn thread(&self) -> ThreadHandle<V> {
        let handle = self.clone();
        ThreadHandle::new(move |visit| {
            handle.post(move |state, cx| visit(&mut LoopThread { state, cx }))
        })
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

/// Stops a server, all threads of it, from any thread or handler.
#[derive(Clone)]
pub struct StopHandle(Arc<dyn Fn() -> Result<(), PostError> + Send + Sync>);

impl StopHandle {
    pub(super) fn new(stop: impl Fn() -> Result<(), PostError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Begins a graceful stop: no connection is accepted any more, idle ones are closed, those
    /// that answer finish, and after [`Limits::stop_deadline`](super::Limits::stop_deadline) the
    /// rest is cut. A second call cuts at once.
    ///
    /// # Errors
    ///
    /// If the server is gone.
    pub fn stop(&self) -> Result<(), PostError> {
        (self.0)()
    }
}

/// A panic elsewhere leaves nothing half done in it.
impl UnwindSafe for StopHandle {}
impl RefUnwindSafe for StopHandle {}

impl fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHandle").finish_non_exhaustive()
    }
}
