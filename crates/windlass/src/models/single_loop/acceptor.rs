//! The acceptor: takes connections, and pauses when descriptors run out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use windlass_core::{Disposition, Happened, Instant, Trigger};
use windlass_sys::net::{self, AcceptError};

use super::completion_connection::{self, CompletionConnection};
use super::loop_connection::LoopConnection;
use super::state::ServerState;
use crate::event_loop::{CompletionOptions, Context, EventHandler, IoOptions};
use crate::models::carrier::{Arrival, Carrier};
use crate::models::connection::Connection;
use crate::models::listening::{ListenSocket, Sharing};
use crate::models::room::Place;
use crate::session::{Peer, Service};

/// Accepts from one listener.
pub(super) struct Acceptor {
    socket: Rc<ListenSocket>,
    pause: Duration,
    waits_for_room: bool,
    /// For which there was no thread.
    held: Option<Arrival>,
}

/// Connections accepted in one call: others have their turn after so many.
const BATCH_MAX: usize = 64;
/// The same if other loops accept from the same socket: who takes a batch leaves them idle.
const SHARED_BATCH_MAX: usize = 1;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(640);

impl Acceptor {
    pub(super) fn new(socket: Rc<ListenSocket>) -> Self {
        Self {
            socket,
            pause: PAUSE_MIN,
            waits_for_room: false,
            held: None,
        }
    }

    /// Gives a connection to the carrier; answers whether that took it.
    fn carry(&mut self, carrier: &dyn Carrier, arrival: Arrival) -> bool {
        self.held = carrier.carry(arrival).err();
        if self.held.is_none() {
            self.pause = PAUSE_MIN;
        }
        self.held.is_none()
    }

    /// Stops listening for a while; the next pause is longer, until an accept succeeds.
    fn pause<V: Service>(&mut self, cx: &mut Context<'_, 'static, ServerState<V>>) -> Disposition {
        let event = cx.event();
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        let has_held = self.held.is_some();
        let resumed = cx.after(pause, move |_, cx| {
            // Gone: the server stops.
            let _ = cx.enable(event);
            if has_held {
                // The listener need not be ready for that one to be tried again.
                let _ = cx.activate(event, 1);
            }
        });
        match resumed {
            Ok(_) => Disposition::Disable,
            // Without a timer it could not be enabled again.
            Err(_) => Disposition::Keep,
        }
    }
}

impl<V: Service> EventHandler<'static, ServerState<V>> for Acceptor {
    fn handle_event(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Context<'_, 'static, ServerState<V>>,
        _happened: Happened,
    ) -> Disposition {
        if state.is_stopping() {
            return Disposition::Remove;
        }
        if std::mem::take(&mut self.waits_for_room) {
            // It exists: its handler runs.
            let event = cx.event();
            let _ = cx.enable(event);
        }
        if let Some(arrival) = self.held.take()
            && let Some(carrier) = state.carrier.clone()
            && !self.carry(&*carrier, arrival)
        {
            state.lane.counts.accept_pauses += 1;
            return self.pause(cx);
        }
        let batch_max = match self.socket.sharing {
            Sharing::Own => BATCH_MAX,
            Sharing::Duplicate | Sharing::Shared => SHARED_BATCH_MAX,
        };
        for _ in 0..batch_max {
            let Some(place) = state.take_place(cx.event()) else {
                // Activated when there is some.
                self.waits_for_room = true;
                return Disposition::Disable;
            };
            match net::accept(self.socket.fd.as_fd()) {
                Ok(Some((socket, remote))) => {
                    let peer = Peer::new(remote);
                    state.group.note_dealt();
                    if let Some(carrier) = state.carrier.clone() {
                        state.lane.counts.accepted += 1;
                        let arrival = Arrival {
                            socket,
                            peer,
                            place,
                        };
                        if !self.carry(&*carrier, arrival) {
                            state.lane.counts.accept_pauses += 1;
                            return self.pause(cx);
                        }
                        continue;
                    }
                    self.pause = PAUSE_MIN;
                    let Some(other) = state.other_loop(&place) else {
                        open(state, cx, socket, peer, place);
                        continue;
                    };
                    // It lives as long as any loop accepts, unless the server fails: then the
                    // connection is cut like the others.
                    let _ = other.post(move |state, cx| open(state, cx, socket, peer, place));
                }
                Ok(None) => break,
                // That one connection is gone already.
                Err(AcceptError::Connection(_)) => {}
                // Out of descriptors or memory, or the listener itself is broken: no spinning.
                Err(_) => {
                    state.lane.counts.accept_pauses += 1;
                    return self.pause(cx);
                }
            }
        }
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }
}

fn open<V: Service>(
    state: &mut ServerState<V>,
    cx: &mut Context<'_, 'static, ServerState<V>>,
    socket: OwnedFd,
    peer: Peer,
    place: Place,
) {
    state.lane.counts.accepted += 1;
    if state.is_cut() {
        state.lane.counts.cut += 1;
        return;
    }
    // Not a TCP socket, or gone already: it works without, or the first read says so.
    let _ = net::set_nodelay(socket.as_fd());
    let now = state.now(cx);
    let Some(session) = state.lane.open(&peer, now) else {
        return;
    };
    let event = match state.pool {
        Some(pool) => {
            let transport = completion_connection::transport(socket, pool);
            let connection = Connection::new(transport, session, &peer, Trigger::Edge);
            let deadline = connection.deadline();
            let handler = CompletionConnection::<V>::new(connection, state.enter(now, place));
            let options = CompletionOptions {
                label: Some("connection".into()),
                ..CompletionOptions::default()
            };
            let event = cx.completion_event(Box::new(handler), options);
            event.map(|event| {
                // Its first call starts to receive. It exists, as it was just made.
                let _ = cx.activate(event, 1);
                (event, deadline)
            })
        }
        None => {
            let connection = Connection::new(socket, session, &peer, state.trigger);
            let options = IoOptions {
                interest: connection.interest(),
                trigger: state.trigger,
                label: Some("connection".into()),
                ..IoOptions::default()
            };
            let deadline = connection.deadline();
            let handler = LoopConnection::<V>::new(connection, state.enter(now, place));
            let event = cx.register_handler(Box::new(handler), options);
            event.map(|event| (event, deadline))
        }
    };
    match event {
        Ok((event, deadline)) => {
            state.note_connection(event);
            if deadline != Instant::FAR {
                // It exists, as it was just registered.
                let _ = cx.arm_at(event, deadline);
            }
        }
        // Out of watches or memory: the peer sees a close.
        Err(_) => state.lane.counts.failed += 1,
    }
}
