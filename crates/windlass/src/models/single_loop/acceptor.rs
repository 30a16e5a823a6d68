//! The acceptor: takes connections for its loop, and pauses when descriptors run out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use windlass_core::{Disposition, Happened, Instant, Trigger};
use windlass_sys::net::{self, AcceptError};

use super::completion_connection::{self, CompletionConnection};
use super::loop_connection::LoopConnection;
use super::state::ServerState;
use crate::event_loop::{CompletionOptions, Context, EventHandler, IoOptions};
use crate::models::accept_policy::{AcceptPolicy, AcceptSite, AfterAccepting};
use crate::models::carrier::Arrival;
use crate::models::connection::Connection;
use crate::models::listening::ListenSocket;
use crate::models::room::Place;
use crate::session::{Peer, Service};

/// Accepts from one listener.
pub(super) struct Acceptor {
    socket: Rc<ListenSocket>,
    policy: AcceptPolicy,
    /// It does not listen, and is called for another reason than a connection.
    is_paused: bool,
}

/// Where its connections go: to this loop, to another one, or to the carrier.
struct Site<'a, 'c, V: Service> {
    socket: &'a ListenSocket,
    state: &'a mut ServerState<V>,
    cx: &'a mut Context<'c, 'static, ServerState<V>>,
}

impl Acceptor {
    pub(super) fn new(socket: Rc<ListenSocket>) -> Self {
        Self {
            policy: AcceptPolicy::new(socket.sharing),
            socket,
            is_paused: false,
        }
    }

    /// Stops listening for a while.
    fn pause<V: Service>(
        &mut self,
        cx: &mut Context<'_, 'static, ServerState<V>>,
        pause: Duration,
    ) -> Disposition {
        let event = cx.event();
        let resumed = cx.after(pause, move |_, cx| {
            // Gone: the server stops.
            let _ = cx.activate(event, 1);
        });
        match resumed {
            Ok(_) => {
                self.is_paused = true;
                Disposition::Disable
            }
            // Without a timer it could not be called again.
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
        if std::mem::take(&mut self.is_paused) {
            // It exists: its handler runs.
            let event = cx.event();
            let _ = cx.enable(event);
        }
        let after = self.policy.run(&mut Site {
            socket: &self.socket,
            state,
            cx,
        });
        match after {
            AfterAccepting::Listen => Disposition::Keep,
            AfterAccepting::Pause(pause) => {
                state.lane.counts.accept_pauses += 1;
                self.pause(cx, pause)
            }
            AfterAccepting::WaitForRoom => {
                self.is_paused = true;
                Disposition::Disable
            }
        }
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }
}

impl<V: Service> AcceptSite for Site<'_, '_, V> {
    fn take_place(&mut self) -> Option<Place> {
        self.state.take_place(self.cx.event())
    }

    fn accept(&mut self) -> Result<Option<net::Accepted>, AcceptError> {
        let accepted = net::accept(self.socket.fd.as_fd());
        if let Ok(Some(_)) = accepted {
            self.state.group.note_dealt();
        }
        accepted
    }

    fn serve(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        let state = &mut *self.state;
        if let Some(carrier) = &state.carrier {
            carrier.carry(arrival)?;
            state.lane.counts.accepted += 1;
            return Ok(());
        }
        let Arrival {
            socket,
            peer,
            place,
        } = arrival;
        match state.other_loop(&place) {
            None => open(state, self.cx, socket, peer, place),
            Some(other) => {
                // It lives as long as any loop accepts, unless the server fails: then the
                // connection is cut like the others.
                let _ = other.post(move |state, cx| open(state, cx, socket, peer, place));
            }
        }
        Ok(())
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
