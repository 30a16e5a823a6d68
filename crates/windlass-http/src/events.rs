//! Server-sent events: a stream of small messages to a browser's `EventSource` (WHATWG HTML,
//! section 9.2).
//!
//! [`ResponseHead::events`] answers with such a stream and gives an [`EventSender`], which any
//! thread may use. A [`Broadcast`] sends one event to many clients: it is written once, and each
//! client's queue refers to the same bytes.
//!
//! A comment is sent when there was nothing else for a while, so that proxies keep the connection
//! and a client that vanished is noticed. The stream ends when the client closes, when the server
//! stops gracefully, and when the sender does. A browser connects again by itself then, and tells
//! the last id it saw ([`Request::last_event_id`]).
//!
//! ```
//! use windlass_http::{Broadcast, Event, EventsConfig, Request, Responder, Status};
//!
//! let news = Broadcast::default();
//! let subscribers = news.clone();
//! let handler = move |_: &Request<'_>, response: Responder<'_>| {
//!     let (answered, sender) = response.start(Status::OK).events(EventsConfig::default());
//!     subscribers.add(sender);
//!     Ok(answered)
//! };
//! # let _ = windlass_http::HttpService::new(handler, Default::default());
//! // In any thread:
//! news.send(&Event::new("two\nlines").id("7"))?;
//! # Ok::<(), windlass_http::EventError>(())
//! ```

mod broadcast;
mod event;

use std::fmt;
use std::time::Duration;

use windlass::Instant;

pub use self::broadcast::Broadcast;
pub use self::event::{EncodedEvent, Event, EventError};
use crate::body_source::{BodySource, BodyWriter, Produced};
use crate::channel::{BodySender, ChannelBody, body_channel};
use crate::mailbox::TrySendError;
use crate::request::Request;
use crate::responder::{Answered, ResponseHead};

/// How a stream of events behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventsConfig {
    /// After how long without an event a comment is sent; `None` for never. Default 15 s.
    pub heartbeat: Option<Duration>,
    /// How many bytes are queued for a client that reads slowly, besides the output of its
    /// connection. Default 64 KiB.
    pub queue_bytes: usize,
    /// What becomes of a client whose queue is full. Default [`Lag::Disconnect`].
    pub lag: Lag,
    /// What the client is told of how long it should wait before it connects again; nothing by
    /// default, which leaves it to the browser.
    pub retry: Option<Duration>,
}

/// What becomes of a client whose queue is full when another event is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// Its connection is reset: it connects again when it can, and tells the last id it saw.
    Disconnect,
    /// It keeps its connection and goes without the event.
    Skip,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            heartbeat: Some(Duration::from_secs(15)),
            queue_bytes: 64 * 1024,
            lag: Lag::Disconnect,
            retry: None,
        }
    }
}

/// Sends events to one client, from any thread. Dropping it ends the stream.
pub struct EventSender {
    sender: BodySender,
    lag: Lag,
}

/// Why an event did not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventSendError {
    /// The client is gone, or the stream was ended.
    Closed,
    /// The event can't be written.
    Invalid(EventError),
    /// The client's queue is full. By [`Lag::Disconnect`] its connection is being reset.
    Lagging,
}

impl EventSender {
    /// Sends an event.
    ///
    /// # Errors
    ///
    /// If it can't be written, or the client reads too slowly or is gone.
    pub fn send(&self, event: &Event<'_>) -> Result<(), EventSendError> {
        let encoded = event.encode().map_err(EventSendError::Invalid)?;
        self.send_encoded(&encoded)
    }

    /// Sends an event that is written already.
    ///
    /// # Errors
    ///
    /// If the client reads too slowly or is gone.
    pub fn send_encoded(&self, event: &EncodedEvent) -> Result<(), EventSendError> {
        match self.sender.try_send(event.bytes()) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(EventSendError::Closed),
            Err(TrySendError::Full(_)) => {
                if self.lag == Lag::Disconnect {
                    self.sender.abort();
                }
                Err(EventSendError::Lagging)
            }
        }
    }

    /// Whether nothing more can be sent: the client is gone, or the stream was ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Ends the stream behind what is queued.
    pub fn finish(&self) {
        self.sender.finish();
    }

    /// As [`BodySender::on_change`]: called when the client is gone, among others.
    pub fn on_change(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.sender.on_change(callback);
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        // A stream of events may end anywhere between two: nothing of it is cut.
        self.sender.finish();
    }
}

impl fmt::Debug for EventSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender")
            .field("sender", &self.sender)
            .field("lag", &self.lag)
            .finish()
    }
}

impl fmt::Display for EventSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "send an event to a client that is gone",
            Self::Invalid(_) => "send an event that can't be written",
            Self::Lagging => "send an event to a client that reads too slowly",
        })
    }
}

impl std::error::Error for EventSendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Closed | Self::Lagging => None,
        }
    }
}

impl ResponseHead<'_> {
    /// Answers with a stream of server-sent events: sets `Content-Type` and `Cache-Control`, and
    /// gives what sends them.
    pub fn events(self, config: EventsConfig) -> (Answered, EventSender) {
        let (sender, events) = body_channel(config.queue_bytes);
        let body = EventBody {
            events,
            config,
            quiet_until: None,
        };
        self.responder
            .scratch
            .extend_from_slice(b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n");
        let answered = self.stream(body);
        let lag = config.lag;
        (answered, EventSender { sender, lag })
    }
}

impl<'a> Request<'a> {
    /// The id of the last event that a client saw which connects again to a stream of events: the
    /// value of `Last-Event-ID`, if it is UTF-8.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&'a str> {
        self.header("last-event-id")
            .and_then(|id| str::from_utf8(id).ok())
    }
}

/// The body of an answer with events.
struct EventBody {
    events: ChannelBody,
    config: EventsConfig,
    /// Until when no comment is due; nothing before the first call.
    quiet_until: Option<Instant>,
}

impl EventBody {
    /// Puts the next comment off.
    fn keep_quiet(&mut self, now: Instant) {
        let heartbeat = self.config.heartbeat;
        self.quiet_until = Some(heartbeat.map_or(Instant::FAR, |pause| now + pause));
    }
}

impl BodySource for EventBody {
    fn produce(&mut self, body: &mut BodyWriter<'_, '_>) -> Produced {
        let now = body.now().monotonic;
        if body.peer_ended() {
            // A client that reads events keeps its side open as long as it wants them.
            return Produced::End;
        }
        if self.quiet_until.is_none() {
            self.keep_quiet(now);
            if let Some(retry) = self.config.retry {
                body.push(format!("retry: {}\n\n", retry.as_millis()).as_bytes());
            }
        }
        let before = body.written_bytes();
        let produced = self.events.pump(body);
        if produced != Produced::Pending {
            return produced;
        }
        if body.is_stopping() {
            return Produced::End;
        }
        if body.written_bytes() == before && self.quiet_until.is_some_and(|until| until <= now) {
            body.push(b":\n\n");
        }
        if body.written_bytes() != before {
            self.keep_quiet(now);
        }
        Produced::Pending
    }

    fn wake_at(&self) -> Option<Instant> {
        self.quiet_until.filter(|until| *until != Instant::FAR)
    }
}
