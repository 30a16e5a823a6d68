//! What a handler reaches during a call.

use std::fmt;
use std::sync::Arc;

use windlass::session::{Now, Output};

use super::close::CloseCode;
use super::message::Message;
use super::sender::SocketSender;
use super::session::Socket;
use crate::mailbox::Mailbox;

/// A socket during a call of its [`SocketHandler`](super::SocketHandler).
pub struct SocketContext<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) output: &'a mut Output,
    pub(super) now: Now,
}

impl SocketContext<'_> {
    /// Sends a message. Dropped if the socket [is closing](Self::is_open), as its handler will be
    /// told.
    ///
    /// What is sent is queued without a limit of its own: see [`is_full`](Self::is_full).
    pub fn send(&mut self, message: impl Into<Message>) {
        if self.is_open() {
            self.socket.link.send(message.into(), self.output);
        }
    }

    /// Whether the output is full: a handler that has more to send should wait for
    /// [`on_ready`](super::SocketHandler::on_ready). One that answers each message with about one
    /// need not care, as no message comes meanwhile.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.output.is_full()
    }

    /// Begins to close the socket; a reason beyond 123 bytes is cut. Messages of the client that
    /// are on their way are dropped. Nothing happens if it is closing already.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.socket.begin_close(code, reason, self.output, self.now);
    }

    /// Whether the socket is open, that is neither side has begun to close it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.socket.is_open()
    }

    /// What sends to this socket from anywhere else.
    #[must_use]
    pub fn sender(&mut self) -> SocketSender {
        let Socket {
            mailbox,
            mailbox_is_new,
            settings,
            ..
        } = &mut *self.socket;
        let mailbox = mailbox.get_or_insert_with(|| {
            *mailbox_is_new = true;
            Arc::new(Mailbox::new(settings.queue_bytes))
        });
        SocketSender(Arc::clone(mailbox))
    }

    /// The subprotocol that was chosen.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.socket.protocol.as_deref()
    }

    /// The time of the call.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }
}

impl fmt::Debug for SocketContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketContext")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}
