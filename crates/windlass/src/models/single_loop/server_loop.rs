//! One loop of a server: an event loop, the state that its handlers share, and its acceptors.

use std::rc::Rc;
use std::sync::Arc;

use windlass_core::Trigger;

use super::acceptor::Acceptor;
use super::state::{LoopParts, ServerState, Serving};
use crate::event_loop::{EventLoop, IoOptions, LoopConfig, RunError};
use crate::models::handle::LoopHandle;
use crate::models::listening::{BindError, ListenSocket};
use crate::session::Service;

/// See the module. It stays in the thread that opened it.
pub(in crate::models) struct ServerLoop<V: Service> {
    pub(in crate::models) event_loop: EventLoop<'static, ServerState<V>>,
    pub(in crate::models) state: ServerState<V>,
}

impl<V: Service> ServerLoop<V> {
    /// Opens a loop that will accept from `sockets`.
    pub(in crate::models) fn open(
        parts: LoopParts<V>,
        config: LoopConfig,
        sockets: Vec<ListenSocket>,
    ) -> Result<Self, BindError> {
        let mut event_loop = EventLoop::with_config(config).map_err(BindError::Loop)?;
        let trigger = if event_loop.features().edge_triggered {
            Trigger::Edge
        } else {
            Trigger::Level
        };
        let buffers = match parts.serving {
            Serving::ByCompletions {
                buffers,
                buffer_bytes,
            } => Some((buffers, buffer_bytes)),
            Serving::ByReadiness | Serving::Elsewhere(_) => None,
        };
        let mut state = ServerState::new(parts, trigger, Arc::clone(&event_loop.wake_flag()));
        for socket in sockets {
            let options = IoOptions {
                label: Some(socket.label.clone().into()),
                ..IoOptions::default()
            };
            let socket = Rc::new(socket);
            state.listeners.push(Rc::downgrade(&socket));
            let event = event_loop
                .register_handler(Box::new(Acceptor::new(socket)), options)
                .map_err(|error| BindError::Register(error.into()))?;
            state.acceptors.push(event);
        }
        state.watch_turns(&mut event_loop);
        if let Some((buffers, buffer_bytes)) = buffers {
            let pool = event_loop.provide_buffers(buffers, buffer_bytes);
            state.pool = Some(pool.map_err(BindError::Buffers)?);
            // A connection that waits for nothing of the loop's keeps it running all the same.
            event_loop.hold();
        }
        Ok(Self { event_loop, state })
    }

    pub(in crate::models) fn handle(&self) -> LoopHandle<V> {
        LoopHandle::new(self.event_loop.poster())
    }

    /// Serves until it is stopped.
    pub(in crate::models) fn run(&mut self) -> Result<(), RunError> {
        self.event_loop.run(&mut self.state).map(drop)
    }
}
