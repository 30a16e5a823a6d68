//! WebSocket (RFC 6455): messages both ways over a connection that began as HTTP.
//!
//! [`accept`] checks the client's opening handshake and answers it; from then on the connection
//! belongs to a [`SocketHandler`], which is called in the connection's thread with each message.
//! Other threads and other connections send through a [`SocketSender`].
//!
//! Ours are the opening handshake, the life of a socket (keeping it alive, closing it, time-outs)
//! and its back-pressure; frames are coded by the crate `tungstenite`, fed from memory. Pings are
//! answered by themselves. No extension is negotiated, so there is no compression.
//!
//! # Failures
//!
//! A client that breaks the protocol is told why by the code of the close frame, and the connection
//! ends: 1002 for frames that break the rules (not masked, reserved bits, fragments out of order),
//! 1007 for text that is not UTF-8, 1009 for what exceeds
//! [`WebSocketConfig::message_bytes`]. A server that stops sends 1001.
//!
//! # Back-pressure
//!
//! While the output is full no message is read, so that a client that does not read can't make a
//! handler answer without end. A handler that sends on its own stops when
//! [`SocketContext::is_full`] and goes on in [`SocketHandler::on_ready`]; the queue of a
//! [`SocketSender`] is bounded.
//!
//! ```
//! use windlass_http::websocket::{self, Message, SocketContext, SocketHandler, WebSocketConfig};
//! use windlass_http::{Request, Responder};
//!
//! struct Echo;
//!
//! impl SocketHandler for Echo {
//!     fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message) {
//!         socket.send(message);
//!     }
//! }
//!
//! let config = WebSocketConfig::default();
//! let handler = move |request: &Request<'_>, response: Responder<'_>| {
//!     websocket::accept(request, response, &config, Echo)
//! };
//! # let _ = windlass_http::HttpService::new(handler, Default::default());
//! ```

mod close;
mod context;
mod handshake;
mod link;
mod message;
mod sender;
mod session;

use std::time::Duration;

pub use self::close::{CloseCode, Closed};
pub use self::context::SocketContext;
pub use self::handshake::accept;
pub use self::message::{Message, Text};
pub use self::sender::SocketSender;

/// What a server makes of one WebSocket. Called in the connection's thread, so it must not block.
pub trait SocketHandler: Send + 'static {
    /// The socket is open. What is sent here leaves with the answer to the handshake.
    fn on_open(&mut self, _socket: &mut SocketContext<'_>) {}

    /// A whole message came.
    fn on_message(&mut self, socket: &mut SocketContext<'_>, message: Message);

    /// The output was [full](SocketContext::is_full) and has room again.
    fn on_ready(&mut self, _socket: &mut SocketContext<'_>) {}

    /// The socket is closed: the last call, and the only one that is sure to come.
    fn on_close(&mut self, _why: &Closed) {}
}

/// Settings of WebSockets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebSocketConfig {
    /// The most bytes of a message, which may come in many frames. Default 1 MiB.
    pub message_bytes: usize,
    /// The most bytes of one frame; as much memory is kept for a frame that was announced. Default
    /// 1 MiB.
    pub frame_bytes: usize,
    /// After how long without a byte from the client it is pinged; `None` for never. Default 30 s.
    pub ping_interval: Option<Duration>,
    /// How long a client may be silent after a ping before the connection is reset. Not counted
    /// while it has output to read, for which the driver has a time-out. Default 20 s.
    pub pong_timeout: Duration,
    /// How long the client may take to answer a close frame. Default 5 s.
    pub close_timeout: Duration,
    /// How many bytes a [`SocketSender`] queues, besides the output of its connection. Default 256
    /// KiB.
    pub queue_bytes: usize,
    /// The subprotocols that are spoken (RFC 6455 section 1.9). Of those that a client offers it is
    /// the first, in the client's order, that is spoken; if none is, the socket has none.
    pub protocols: Vec<String>,
    /// From pages of which sites sockets are accepted. Default [`Origins::SameHost`].
    pub origins: Origins,
}

/// From pages of which sites a browser may open a socket (RFC 6455 section 10.2). Requests without
/// `Origin` are not from a browser, and accepted.
///
/// A browser sends its cookies with the handshake whatever page asked for it: without a check, any
/// site can act for a user who is logged in here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Of any: for what is public, or has another proof of who asks.
    Any,
    /// Of these, as in `https://example.com`, in any case.
    Listed(Vec<String>),
    /// Of the host, with its port, that the request is for.
    SameHost,
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024,
            frame_bytes: 1024 * 1024,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(5),
            queue_bytes: 256 * 1024,
            protocols: Vec::new(),
            origins: Origins::SameHost,
        }
    }
}
