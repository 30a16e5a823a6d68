//! A connection in the loop: connects, carries one exchange after the other, is kept in between.
//!
//! # States
//!
//! ```text
//! connecting ──▶ TLS ──▶ exchange ⇄ kept
//!     │           │         │         │
//!     └───────────┴─────────┴─────────┴──▶ closed
//! next address   fail   fail, or retry   end, or too old
//! ```
//!
//! The exchange lies in the slot's mailbox until the connection takes it up.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use windlass::event_loop::{Context, EventHandler};
use windlass::session::Output;
use windlass::{Disposition, Happened, Instant, Interest};
use windlass_sys::net;

use crate::client::connection::{ClientConnection, Reuse};
use crate::client::core::{Attempt, Core, Slot};
use crate::client::error::{ClientErrorKind, RedirectFault};
use crate::client::exchange::{Delivery, Exchange, Incoming};
use crate::client::redirect;
use crate::client::request::{RequestBody, UploadSource};
use crate::client::transport::{Transport, TransportError};

mod transfer;

/// One connection of a client.
pub(super) struct Link<'l, S> {
    core: Rc<Core<'l, S>>,
    slot: Rc<Slot<'l>>,
    transport: Transport,
    protocol: ClientConnection,
    output: Output,
    /// Input that the protocol left.
    carry: Vec<u8>,
    input_ended: bool,
    exchange: Option<Box<Exchange<'l>>>,
    /// While it is being made.
    attempt: Option<Attempt>,
    /// Whether the socket is connected (TLS may not be).
    connected: bool,
    /// What makes the rest of the request's body.
    source: Option<Box<dyn UploadSource + 'l>>,
    /// The source has nothing for now.
    source_waits: bool,
    /// The source's pieces are made in it.
    piece: Vec<u8>,
    /// The response's handler wants nothing for now.
    paused: bool,
    /// Nothing can be sent any more; an answer may have come all the same.
    write_error: Option<TransportError>,
    /// Whether a response was complete before.
    used: bool,
    /// When anything last came or was taken.
    active_at: Instant,
    interest: Interest,
    /// For when the event's timer is armed.
    armed: Option<Instant>,
}

/// What becomes of the connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Close,
    Keep,
}

/// How far an exchange came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchanged {
    /// The connection is of no more use.
    Closed,
    /// It is complete, the connection is kept.
    Complete,
    /// It waits for its peer or for the program.
    Waits,
}

impl<'l, S: 'l> Link<'l, S> {
    /// A connection that is being made for `exchange`.
    pub(super) fn new(
        core: Rc<Core<'l, S>>,
        slot: Rc<Slot<'l>>,
        transport: Transport,
        exchange: Box<Exchange<'l>>,
        attempt: Attempt,
    ) -> Self {
        slot.mailbox.set(Some(exchange));
        let armed = (attempt.deadline != Instant::FAR).then_some(attempt.deadline);
        Self {
            protocol: ClientConnection::new(core.config.limits),
            core,
            slot,
            transport,
            output: Output::default(),
            carry: Vec::new(),
            input_ended: false,
            exchange: None,
            attempt: Some(attempt),
            connected: false,
            source: None,
            source_waits: false,
            piece: Vec::new(),
            paused: false,
            write_error: None,
            used: false,
            active_at: Instant::ZERO,
            interest: Interest::WRITE,
            armed,
        }
    }

    fn go_on(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>, happened: Happened) -> After {
        if Core::<'l, S>::is_released(&self.slot) {
            return After::Close;
        }
        if self.attempt.is_some() {
            match self.go_on_connecting(cx, happened) {
                Some(after) => return after,
                None => self.attempt = None,
            }
        }
        loop {
            if self.slot.resumed.take() {
                self.paused = false;
                self.source_waits = false;
                self.active_at = cx.now();
            }
            if self.exchange.is_none() {
                let Some(exchange) = self.slot.mailbox.take() else {
                    return self.stay_idle();
                };
                // Also of one that could be sent again: what came before it was sent must not be
                // taken for its answer (RFC 9112 section 9.2).
                if self.used && !self.is_quiet() {
                    // Nothing of it was sent, so another connection may carry it.
                    self.send_elsewhere(cx, exchange);
                    return After::Close;
                }
                self.begin(cx, exchange);
            }
            match self.transfer(state, cx) {
                Exchanged::Closed => return After::Close,
                Exchanged::Waits if !self.slot.resumed.get() => return After::Keep,
                Exchanged::Complete | Exchanged::Waits => {}
            }
        }
    }

    /// Goes on with connecting; nothing to say if that is done.
    fn go_on_connecting(
        &mut self,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Option<After> {
        if !self.connected {
            if happened.readiness.is_none() {
                return Some(After::Keep);
            }
            let error = match net::take_socket_error(self.transport.as_fd()) {
                Ok(None) => None,
                Ok(Some(error)) | Err(error) => Some(error),
            };
            if let Some(error) = error {
                return Some(self.try_next(cx, error));
            }
            self.connected = true;
            // It only costs latency if it can't be set.
            let _ = net::set_nodelay(self.transport.as_fd());
        }
        match self.transport.handshake() {
            Ok(true) => None,
            Ok(false) => Some(After::Keep),
            Err(error) => {
                self.fail(cx, error.into_kind());
                Some(After::Close)
            }
        }
    }

    /// Leaves the request to a connection to the next address.
    fn try_next(&mut self, cx: &mut Context<'_, 'l, S>, error: std::io::Error) -> After {
        if let (Some(exchange), Some(attempt)) = (self.slot.mailbox.take(), self.attempt.take()) {
            self.slot.hand_over();
            let core = Rc::clone(&self.core);
            core.try_next(cx, exchange, attempt, error);
        }
        After::Close
    }

    /// Nobody has a request: whatever comes now ends the connection.
    fn stay_idle(&mut self) -> After {
        if self.is_quiet() {
            return After::Keep;
        }
        self.core.release(&self.slot);
        After::Close
    }

    /// Whether a connection without a request has neither ended nor brought anything. After any
    /// other answer it is of no more use.
    fn is_quiet(&mut self) -> bool {
        matches!(self.transport.read(&mut [0; 1]), Ok(None))
    }

    /// Gives the connection up and leaves the request to another one.
    fn send_elsewhere(&self, cx: &mut Context<'_, 'l, S>, mut exchange: Box<Exchange<'l>>) {
        exchange.retried = true;
        let core = Rc::clone(&self.core);
        core.release(&self.slot);
        core.requeue(exchange);
        core.pump(cx, &self.slot.origin);
    }

    fn begin(&mut self, cx: &mut Context<'_, 'l, S>, mut exchange: Box<Exchange<'l>>) {
        let config = &self.core.config;
        let prepared = exchange.request.prepare_with(&config.user_agent);
        let length = match exchange.request.body {
            RequestBody::Stream { length, .. } => Some(length),
            _ => None,
        };
        if let Some(length) = length
            && let RequestBody::Stream { source, .. } =
                std::mem::replace(&mut exchange.request.body, RequestBody::Taken { length })
        {
            self.source = Some(source);
        }
        let mut limits = config.limits;
        if exchange.delivery == Delivery::Collected {
            limits.body_bytes = limits.body_bytes.min(config.collected_bytes_max);
        }
        self.protocol.set_limits(limits);
        self.protocol.send(&prepared, &mut self.output);
        self.exchange = Some(exchange);
        self.source_waits = false;
        self.paused = false;
        self.active_at = cx.now();
    }

    /// The response is complete: tells it or follows it, and keeps or closes the connection.
    fn complete(&mut self, cx: &mut Context<'_, 'l, S>, reuse: Reuse) -> Exchanged {
        let Some(mut exchange) = self.exchange.take() else {
            return Exchanged::Closed;
        };
        self.source = None;
        let origin = exchange.request.origin.clone();
        let may_keep = reuse == Reuse::Keep
            && self.output.is_empty()
            && !self.transport.wants_write()
            && self.write_error.is_none();
        self.used = true;
        self.active_at = cx.now();
        let is_kept = may_keep && self.core.keep(cx, &self.slot);
        if !is_kept {
            self.core.release(&self.slot);
        }
        let core = Rc::clone(&self.core);
        let id = exchange.id;
        match std::mem::replace(&mut exchange.incoming, Incoming::Awaited) {
            Incoming::Redirect {
                status, location, ..
            } => match follow(&core, &mut exchange, status, &location) {
                Ok(()) => {
                    let next = exchange.request.origin.clone();
                    core.requeue(exchange);
                    core.pump(cx, &next);
                }
                Err(fault) => core.finish(cx, id, Err(ClientErrorKind::Redirect(fault))),
            },
            incoming => {
                exchange.incoming = incoming;
                if let Some(answer) = exchange.into_answer() {
                    core.finish(cx, id, Ok(answer));
                }
            }
        }
        core.pump(cx, &origin);
        if is_kept {
            Exchanged::Complete
        } else {
            Exchanged::Closed
        }
    }

    /// The connection is lost: the request is sent again on another one if that is safe.
    fn lose(&mut self, cx: &mut Context<'_, 'l, S>, kind: ClientErrorKind) {
        let may_retry = self.used
            && !self.protocol.has_response_begun()
            && self
                .exchange
                .as_ref()
                .is_some_and(|exchange| exchange.may_retry());
        if !may_retry {
            return self.fail(cx, kind);
        }
        if let Some(exchange) = self.exchange.take() {
            self.send_elsewhere(cx, exchange);
        }
    }

    /// The request has failed, and the connection ends.
    fn fail(&mut self, cx: &mut Context<'_, 'l, S>, kind: ClientErrorKind) {
        let core = Rc::clone(&self.core);
        core.release(&self.slot);
        if let Some(exchange) = self.exchange.take().or_else(|| self.slot.mailbox.take()) {
            self.source = None;
            let id = exchange.id;
            drop(exchange);
            core.finish(cx, id, Err(kind));
        }
        core.pump(cx, &self.slot.origin);
    }

    /// Until when it waits for what it waits for, and what it is if that does not come.
    fn deadline(&self) -> Option<(Instant, Overdue)> {
        let timeouts = &self.core.config.timeouts;
        if let Some(attempt) = &self.attempt {
            return Some((attempt.deadline, Overdue::Connect));
        }
        if self.exchange.is_none() {
            return Some((self.active_at + timeouts.keep?, Overdue::Keep));
        }
        let waits_for_program = self.output.is_empty() && (self.paused || self.source_waits);
        if waits_for_program {
            return None;
        }
        Some((self.active_at + timeouts.idle?, Overdue::Idle))
    }

    /// Ends what waited too long; else says what it waits for.
    fn settle(&mut self, cx: &mut Context<'_, 'l, S>) -> Disposition {
        if let Some((deadline, overdue)) = self.deadline()
            && deadline != Instant::FAR
        {
            if deadline <= cx.now() {
                match overdue {
                    Overdue::Connect => self.fail(cx, ClientErrorKind::ConnectTimeout),
                    Overdue::Idle => self.fail(cx, ClientErrorKind::IdleTimeout),
                    Overdue::Keep => self.core.release(&self.slot),
                }
                return Disposition::Remove;
            }
            // A timer that comes early finds out and is armed anew.
            if self.armed.is_none_or(|armed| deadline < armed) {
                self.armed = Some(deadline);
                // It exists: its handler runs.
                let event = cx.event();
                let _ = cx.arm_at(event, deadline);
            }
        }
        let interest = self.wanted();
        if interest == Interest::NONE {
            // Not only without interest: an end or an error would be reported again and again.
            self.armed = None;
            return Disposition::Disable;
        }
        if interest != self.interest {
            self.interest = interest;
            let event = cx.event();
            let _ = cx.set_interest(event, interest);
        }
        Disposition::Keep
    }

    fn wanted(&self) -> Interest {
        if !self.connected {
            return Interest::WRITE;
        }
        let mut interest = Interest::NONE;
        if !self.paused && !self.input_ended {
            interest |= Interest::READ;
        }
        let has_source = self.source.is_some() && !self.source_waits;
        if !self.output.is_empty() || self.transport.wants_write() || has_source {
            interest |= Interest::WRITE;
        }
        interest
    }
}

/// Which time-out a deadline is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overdue {
    Connect,
    Idle,
    Keep,
}

fn follow<'l, S: 'l>(
    core: &Core<'l, S>,
    exchange: &mut Exchange<'l>,
    status: crate::Status,
    location: &[u8],
) -> Result<(), RedirectFault> {
    if exchange.redirects >= core.config.redirects_max {
        return Err(RedirectFault::TooMany);
    }
    exchange.redirects += 1;
    exchange.retried = false;
    redirect::follow(
        &mut exchange.request,
        status,
        location,
        core.config.downgrade,
    )
}

impl TransportError {
    fn into_kind(self) -> ClientErrorKind {
        match self {
            Self::Socket(error) => ClientErrorKind::Socket(error),
            Self::Tls(error) => ClientErrorKind::Tls(error),
        }
    }
}

impl<'l, S: 'l> EventHandler<'l, S> for Link<'l, S> {
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Disposition {
        if happened.timed_out {
            self.armed = None;
        }
        match self.go_on(state, cx, happened) {
            After::Close => Disposition::Remove,
            After::Keep => self.settle(cx),
        }
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.transport.as_fd())
    }
}

impl<S> Drop for Link<'_, S> {
    /// Only if the loop is dropped, or something panicked, is there anything left to give back.
    fn drop(&mut self) {
        self.core.release(&self.slot);
        let exchange = self.exchange.take().or_else(|| self.slot.mailbox.take());
        if let Some(exchange) = exchange
            && !self.core.is_elsewhere(exchange.id, &self.slot)
        {
            self.core.forget(exchange.id);
        }
    }
}
