//! A channel whose far end is the body of an answer: for producers in other threads, or in another
//! connection.
//!
//! What is queued is bounded: a producer that is faster than its client is refused, or blocked, and
//! told when there is room again. The connection is woken only when it has nothing to send and
//! something comes.
//!
//! ```
//! use windlass_http::{Request, Responder, Status, body_channel};
//!
//! let handler = |_: &Request<'_>, response: Responder<'_>| {
//!     let (sender, body) = body_channel(64 * 1024);
//!     std::thread::spawn(move || {
//!         for number in 0..1000 {
//!             if sender.send(format!("{number}\n").into()).is_err() {
//!                 return; // The client is gone.
//!             }
//!         }
//!         sender.finish();
//!     });
//!     Ok(response.start(Status::OK).stream(body))
//! };
//! # let _ = windlass_http::HttpService::new(handler, Default::default());
//! ```

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::body_source::{BodySource, BodyWriter, Produced};
use crate::mailbox::{Mailbox, Taken, TrySendError};
use crate::response::{ResponseError, write_header};

/// Makes a channel that holds up to `capacity_bytes`. A piece that is longer is taken while the
/// channel is empty.
#[must_use]
pub fn body_channel(capacity_bytes: usize) -> (BodySender, ChannelBody) {
    let mailbox = Arc::new(Mailbox::new(capacity_bytes));
    let sender = BodySender(Arc::clone(&mailbox));
    (sender, ChannelBody(mailbox))
}

/// Sends the body of an answer. Dropped without [`finish`](Self::finish) it
/// [aborts](Self::abort): what a client got of a body whose producer failed must not look whole.
///
/// Several producers share it in an [`Arc`].
pub struct BodySender(Arc<Mailbox<Piece>>);

/// The body that a [`BodySender`] sends.
pub struct ChannelBody(Arc<Mailbox<Piece>>);

enum Piece {
    Abort,
    Data(Bytes),
    End(Vec<(String, Vec<u8>)>),
}

/// The other side of a channel is gone: what was to be sent comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("send to a client that is gone")
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

impl BodySender {
    /// Queues `piece`, if there is room now.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] if not: the callback of [`on_change`](Self::on_change) will be called
    /// when there is. [`TrySendError::Closed`] if the client is gone or the body was ended.
    pub fn try_send(&self, piece: Bytes) -> Result<(), TrySendError<Bytes>> {
        if piece.is_empty() {
            return if self.is_closed() {
                Err(TrySendError::Closed(piece))
            } else {
                Ok(())
            };
        }
        let bytes = piece.len();
        self.0
            .try_send(Piece::Data(piece), bytes)
            .map_err(|error| match error {
                TrySendError::Closed(piece) => TrySendError::Closed(piece.into_bytes()),
                TrySendError::Full(piece) => TrySendError::Full(piece.into_bytes()),
            })
    }

    /// Queues `piece`, and waits for room until there is. For threads that may block, such as those
    /// of a worker pool; never to be called in a loop's thread, which may be the one that makes the
    /// room.
    ///
    /// # Errors
    ///
    /// If the client is gone or the body was ended, also while it waits.
    pub fn send(&self, piece: Bytes) -> Result<(), SendError<Bytes>> {
        if piece.is_empty() {
            return if self.is_closed() {
                Err(SendError(piece))
            } else {
                Ok(())
            };
        }
        let bytes = piece.len();
        self.0
            .send(Piece::Data(piece), bytes)
            .map_err(|piece| SendError(piece.into_bytes()))
    }

    /// Sets what is called when there is room again after a [`TrySendError::Full`], when the client
    /// is gone, and when the server begins to stop. It is called in the connection's thread, so it
    /// must be short: post to a loop, use a notifier. To be set before the first piece is sent.
    pub fn on_change(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.0.on_change(Arc::new(callback));
    }

    /// How many bytes there is room for.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.0.free_bytes()
    }

    /// Whether nothing more can be sent: the client is gone, or the body was ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether the server stops gracefully: a producer without an end of its own should
    /// [finish](Self::finish).
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.is_stopping()
    }

    /// Ends the body, behind what is queued. Nothing happens if it was ended already.
    pub fn finish(&self) {
        self.0.seal(Piece::End(Vec::new()));
    }

    /// Ends the body with trailer fields, sent if it is chunked, else dropped (RFC 9110 section
    /// 6.5.1).
    ///
    /// # Errors
    ///
    /// If one is not valid, or one that the session sets itself: the body is not ended then.
    pub fn finish_with(&self, trailers: &[(&str, &str)]) -> Result<(), ResponseError> {
        let mut checked = Vec::with_capacity(trailers.len());
        for (name, value) in trailers {
            write_header(&mut Vec::new(), name, value.as_bytes())?;
            checked.push(((*name).to_owned(), value.as_bytes().to_vec()));
        }
        self.0.seal(Piece::End(checked));
        Ok(())
    }

    /// Breaks the body off: what is queued is dropped and the connection reset. Nothing happens if
    /// the body was ended already and the end has left the queue.
    pub fn abort(&self) {
        self.0.seal_now(Piece::Abort);
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        // Nobody else has it: it can't be ended in between.
        if !self.is_closed() {
            self.abort();
        }
    }
}

impl fmt::Debug for BodySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BodySender").field(&self.0).finish()
    }
}

impl ChannelBody {
    /// Appends what is queued; answers as a source does.
    pub(crate) fn pump(&self, body: &mut BodyWriter<'_, '_>) -> Produced {
        if body.is_stopping() {
            self.0.note_stopping();
        }
        loop {
            if body.is_full() {
                return Produced::More;
            }
            match self.0.take(|| body.notifier()) {
                Taken::Item(Piece::Data(piece)) => body.push_shared(piece),
                Taken::Item(Piece::Abort) => return Produced::Failed,
                Taken::Item(Piece::End(trailers)) => {
                    for (name, value) in trailers {
                        if body.trailer(&name, value).is_err() {
                            return Produced::Failed;
                        }
                    }
                    return Produced::End;
                }
                Taken::Nothing => return Produced::Pending,
            }
        }
    }
}

impl BodySource for ChannelBody {
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        self.pump(body)
    }
}

impl Drop for ChannelBody {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for ChannelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChannelBody").field(&self.0).finish()
    }
}

impl Piece {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Data(bytes) => bytes,
            Self::Abort | Self::End(_) => Bytes::new(),
        }
    }
}
