//! Sending to a socket from outside of its connection.

use std::fmt;
use std::sync::Arc;

use super::close::CloseCode;
use super::message::Message;
use crate::channel::SendError;
use crate::mailbox::{Mailbox, TrySendError};

/// Sends to one socket, from any thread. Cheap to clone. Dropping it changes nothing: the socket
/// stays open.
#[derive(Clone)]
pub struct SocketSender(pub(super) Arc<Mailbox<Outgoing>>);

/// What is on its way to a socket.
pub(super) enum Outgoing {
    Close(CloseCode, String),
    Message(Message),
}

/// What a message counts for besides its bytes.
const OVERHEAD_BYTES: usize = 16;

impl SocketSender {
    /// Queues a message, if there is room now.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] if not: the callback of [`on_change`](Self::on_change) will be called
    /// when there is. [`TrySendError::Closed`] if the socket is closing or closed.
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), TrySendError<Message>> {
        let message = message.into();
        let bytes = message.len() + OVERHEAD_BYTES;
        self.0
            .try_send(Outgoing::Message(message), bytes)
            .map_err(|error| match error {
                TrySendError::Closed(item) => TrySendError::Closed(item.into_message()),
                TrySendError::Full(item) => TrySendError::Full(item.into_message()),
            })
    }

    /// Queues a message, and waits for room until there is. For threads that may block, such as
    /// those of a worker pool; never to be called in a loop's thread, which may be the one that
    /// makes the room.
    ///
    /// # Errors
    ///
    /// If the socket is closing or closed, also while it waits.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), SendError<Message>> {
        let message = message.into();
        let bytes = message.len() + OVERHEAD_BYTES;
        self.0
            .send(Outgoing::Message(message), bytes)
            .map_err(|item| SendError(item.into_message()))
    }

    /// Closes the socket behind what is queued. A reason beyond 123 bytes is cut. Nothing happens
    /// if it is closing already.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.0.seal(Outgoing::Close(code, reason.to_owned()));
    }

    /// Sets what is called when there is room again after a [`TrySendError::Full`], and when the
    /// socket is closed: one callback for all clones. It is called in the connection's thread, also
    /// out of [`SocketContext::close`](super::SocketContext::close), so it must be short and take no
    /// lock that a handler holds: post to a loop, use a notifier.
    pub fn on_change(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.0.on_change(Arc::new(callback));
    }

    /// How many bytes there is room for; a message counts for 16 more than it has.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.0.free_bytes()
    }

    /// Whether nothing more can be sent.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Outgoing {
    fn into_message(self) -> Message {
        match self {
            Self::Message(message) => message,
            Self::Close(_, reason) => reason.into(),
        }
    }
}

impl fmt::Debug for SocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SocketSender").field(&self.0).finish()
    }
}
