//! The session of one socket: its life from the answered handshake to its end.
//!
//! ```text
//! Opening ──▶ Open ──▶ Closing (a close frame was sent or came) ──▶ Over
//!               └──────────── failure, loss ──────────────────────────▲
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass::Instant;
use windlass::session::{Input, Next, Now, Output, Progress, Session, SessionContext};

use super::close::{CloseCode, Closed};
use super::context::SocketContext;
use super::link::{InputEnd, Link, Received};
use super::message::Text;
use super::sender::Outgoing;
use super::{SocketHandler, WebSocketConfig};
use crate::mailbox::{Mailbox, Taken};

/// A handler with its socket.
pub(super) struct SocketSession<H: SocketHandler> {
    handler: H,
    socket: Socket,
}

/// All of a socket but its handler.
pub(super) struct Socket {
    pub(super) link: Link,
    /// Made when somebody wants to send from outside.
    pub(super) mailbox: Option<Arc<Mailbox<Outgoing>>>,
    /// Whether it was made just now, so that no notifier was left there yet.
    pub(super) mailbox_is_new: bool,
    pub(super) protocol: Option<Box<str>>,
    pub(super) settings: Settings,
    /// Whether the handler is to be called when the output has room again.
    awaits_room: bool,
    phase: Phase,
    liveness: Liveness,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    ping_interval: Option<Duration>,
    pong_timeout: Duration,
    close_timeout: Duration,
    pub(super) queue_bytes: usize,
}

#[derive(Debug)]
enum Phase {
    Closing {
        until: Instant,
        why: Closed,
    },
    Open,
    Opening,
    /// The handler was told.
    Over,
}

/// What is known of whether the client is there.
#[derive(Clone, Copy, Debug)]
struct Liveness {
    heard_at: Instant,
    /// When to look again.
    check_at: Instant,
    /// Whether a ping was sent behind which nothing was heard.
    pinged: bool,
}

impl<H: SocketHandler> SocketSession<H> {
    pub(super) fn new(handler: H, config: &WebSocketConfig, protocol: Option<&str>) -> Self {
        let socket = Socket {
            link: Link::new(config),
            mailbox: None,
            mailbox_is_new: false,
            protocol: protocol.map(Box::from),
            settings: Settings {
                ping_interval: config.ping_interval,
                pong_timeout: config.pong_timeout,
                close_timeout: config.close_timeout,
                queue_bytes: config.queue_bytes,
            },
            awaits_room: false,
            phase: Phase::Opening,
            liveness: Liveness {
                heard_at: Instant::ZERO,
                check_at: Instant::FAR,
                pinged: false,
            },
        };
        Self { handler, socket }
    }

    /// Calls the handler.
    fn call(
        &mut self,
        cx: &mut SessionContext<'_, ()>,
        call: impl FnOnce(&mut H, &mut SocketContext<'_>),
    ) {
        let mut context = SocketContext {
            socket: &mut self.socket,
            output: cx.output,
            now: cx.now,
        };
        call(&mut self.handler, &mut context);
    }

    /// Sends what came from outside, as far as there is room.
    fn deliver(&mut self, cx: &mut SessionContext<'_, ()>) {
        let Some(mailbox) = self.socket.mailbox.clone() else {
            return;
        };
        while self.socket.is_open() && !cx.output.is_full() {
            match mailbox.take(|| cx.wakeups.notifier()) {
                Taken::Item(Outgoing::Message(message)) => {
                    self.socket.link.send(message, cx.output);
                }
                Taken::Item(Outgoing::Close(code, reason)) => {
                    self.socket.begin_close(code, &reason, cx.output, cx.now);
                }
                Taken::Nothing => return,
            }
        }
    }

    /// Does what one frame demands; answers what is waited for, if that is settled.
    fn on_received(&mut self, cx: &mut SessionContext<'_, ()>, received: Received) -> Option<Next> {
        match received {
            Received::Message(message) => {
                if self.socket.is_open() {
                    self.call(cx, |handler, socket| handler.on_message(socket, message));
                }
                return None;
            }
            Received::Control => return None,
            Received::NeedsInput => return Some(Next::Read),
            Received::Close(close) => {
                self.socket.on_close_frame(close, cx.now);
                return None;
            }
            Received::Closed | Received::Lost => self.over(Closed::Lost),
            Received::Failed(code) => {
                self.socket.link.close(code, "", cx.output);
                self.over(Closed::Failed(code));
            }
        }
        Some(Next::Close)
    }

    /// Tells the handler that the socket is closed: for the reason with which its closing began, if
    /// it had, or for `why`.
    fn over(&mut self, why: Closed) {
        let why = match std::mem::replace(&mut self.socket.phase, Phase::Over) {
            // Told already, or not even told that it is open.
            Phase::Over | Phase::Opening => return,
            Phase::Closing { why, .. } => why,
            Phase::Open => why,
        };
        self.socket.close_mailbox();
        self.handler.on_close(&why);
    }
}

impl Socket {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.link.is_open()
    }

    /// Sends a close frame, and waits for the client's.
    pub(super) fn begin_close(
        &mut self,
        code: CloseCode,
        reason: &str,
        output: &mut Output,
        now: Now,
    ) {
        if self.is_open() {
            self.link.close(code, reason, output);
            self.phase = Phase::Closing {
                until: now.monotonic + self.settings.close_timeout,
                why: Closed::ByUs {
                    code,
                    acknowledged: false,
                },
            };
            self.close_mailbox();
        }
    }

    /// Notes that the client begins to close, or answers our close frame.
    fn on_close_frame(&mut self, close: Option<(CloseCode, Text)>, now: Now) {
        if let Phase::Closing {
            why: Closed::ByUs { acknowledged, .. },
            ..
        } = &mut self.phase
        {
            *acknowledged = true;
            return;
        }
        let (code, reason) = close.unzip();
        self.phase = Phase::Closing {
            until: now.monotonic + self.settings.close_timeout,
            why: Closed::ByPeer {
                code,
                reason: reason.unwrap_or_default(),
            },
        };
        self.close_mailbox();
    }

    fn close_mailbox(&self) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.close();
        }
    }

    /// Pings, or answers that the client is dead.
    fn check_liveness(&mut self, output: &mut Output, now: Instant) -> Result<(), Dead> {
        let Settings {
            ping_interval: Some(interval),
            pong_timeout,
            ..
        } = self.settings
        else {
            return Ok(());
        };
        let liveness = &mut self.liveness;
        if !output.is_empty() {
            // It is still reading: whether it does so fast enough is the driver's business. And
            // while the output is full nothing that it sends would be heard.
            liveness.pinged = false;
            liveness.check_at = now + interval;
            return Ok(());
        }
        if liveness.pinged {
            return Err(Dead);
        }
        if liveness.heard_at + interval <= now {
            self.link.ping(output);
            liveness.pinged = true;
            liveness.check_at = now + pong_timeout;
        } else {
            liveness.check_at = liveness.heard_at + interval;
        }
        Ok(())
    }
}

/// The client did not answer a ping in time.
struct Dead;

impl<H: SocketHandler> Session for SocketSession<H> {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        let mut rest = input.bytes;
        let end = if input.ended {
            InputEnd::Ended
        } else {
            InputEnd::Open
        };
        if !rest.is_empty() {
            self.socket.liveness.hear(cx.now.monotonic);
        }
        if let Phase::Opening = self.socket.phase {
            self.socket.phase = Phase::Open;
            self.socket.liveness.heard_at = cx.now.monotonic;
            if let Some(interval) = self.socket.settings.ping_interval {
                self.socket.liveness.check_at = cx.now.monotonic + interval;
            }
            self.call(cx, |handler, socket| handler.on_open(socket));
        } else if self.socket.awaits_room && !cx.output.is_full() {
            self.socket.awaits_room = false;
            if self.socket.is_open() {
                self.call(cx, |handler, socket| handler.on_ready(socket));
            }
        }
        self.deliver(cx);
        let next = loop {
            if let Phase::Over = self.socket.phase {
                break Next::Close;
            }
            if std::mem::take(&mut self.socket.mailbox_is_new) {
                // Its first item would wake nobody.
                self.deliver(cx);
            }
            if cx.output.is_full() {
                self.socket.awaits_room = true;
                break Next::Flush;
            }
            let received = self.socket.link.receive(&mut rest, end, cx.output);
            if let Some(next) = self.on_received(cx, received) {
                break next;
            }
        };
        let left = match next {
            Next::Close => 0,
            _ => rest.len(),
        };
        Progress {
            consumed: input.bytes.len() - left,
            next,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let deadline = match &self.socket.phase {
            Phase::Closing { until, .. } => *until,
            Phase::Open => self.socket.liveness.check_at,
            Phase::Opening | Phase::Over => Instant::FAR,
        };
        (deadline != Instant::FAR).then_some(deadline)
    }

    fn expire(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        let now = cx.now.monotonic;
        match &self.socket.phase {
            Phase::Closing { until, .. } if *until <= now => {
                self.over(Closed::TimedOut);
                Next::Close
            }
            Phase::Open if self.socket.liveness.check_at <= now => {
                if self.socket.check_liveness(cx.output, now).is_ok() {
                    return Next::Read;
                }
                self.over(Closed::TimedOut);
                Next::Abort
            }
            Phase::Closing { .. } | Phase::Open | Phase::Opening => Next::Read,
            Phase::Over => Next::Close,
        }
    }

    fn stop(&mut self, cx: &mut SessionContext<'_, ()>) -> Next {
        match self.socket.phase {
            Phase::Over => Next::Close,
            _ => {
                let code = CloseCode::GOING_AWAY;
                self.socket.begin_close(code, "", cx.output, cx.now);
                Next::Read
            }
        }
    }
}

impl Liveness {
    fn hear(&mut self, now: Instant) {
        self.heard_at = now;
        self.pinged = false;
    }
}

impl<H: SocketHandler> Drop for SocketSession<H> {
    fn drop(&mut self) {
        // The connection was lost, or cut. A handler that has just panicked is left alone.
        if !std::thread::panicking() {
            self.over(Closed::Lost);
        }
    }
}

impl<H: SocketHandler> fmt::Debug for SocketSession<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketSession")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("phase", &self.phase)
            .field("liveness", &self.liveness)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}
