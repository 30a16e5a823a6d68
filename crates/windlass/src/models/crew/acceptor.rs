//! The acceptor of a crew: takes connections in whichever thread is free, and pauses when
//! descriptors run out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use windlass_core::{Disposition, Happened, Instant, Interest};
use windlass_sys::net::{self, AcceptError};

use super::book::{Book, Noted};
use super::connection::CrewConnection;
use super::held::HeldConnection;
use super::{Hand, Stay};
use crate::models::accept_policy::{AcceptPolicy, AcceptSite, AfterAccepting};
use crate::models::carrier::Arrival;
use crate::models::connection::Connection;
use crate::models::listening::ListenSocket;
use crate::models::room::Place;
use crate::session::{Peer, Service};
use crate::thread_set::{HandleOptions, SetContext, SetHandler};

/// Accepts from one listener.
pub(super) struct CrewAcceptor<V: Service> {
    /// First: it is closed when the book is told.
    socket: Arc<ListenSocket>,
    policy: AcceptPolicy,
    is_paused: bool,
    _closed: Closed<V>,
}

/// Where its connections go: to the crew.
struct Site<'a, 'c, V: Service> {
    socket: &'a ListenSocket,
    hand: &'a mut Hand<V>,
    cx: &'a SetContext<'c, Hand<V>>,
}

/// Tells the book that a listener is closed.
struct Closed<V: Service>(Arc<Book<V>>);

impl<V: Service> Drop for Closed<V> {
    fn drop(&mut self) {
        self.0.note_listener_closed();
    }
}

impl<V: Service> CrewAcceptor<V> {
    pub(super) fn new(socket: Arc<ListenSocket>, book: Arc<Book<V>>) -> Self {
        Self {
            policy: AcceptPolicy::new(socket.sharing),
            socket,
            is_paused: false,
            _closed: Closed(book),
        }
    }

    /// Stops listening, until it is called for another reason than a connection.
    fn stop_listening(&mut self, cx: &SetContext<'_, Hand<V>>) {
        self.is_paused = true;
        // It exists: its handler runs. An activation that comes meanwhile is not lost by this.
        let _ = cx.set_interest(cx.event(), Interest::NONE);
    }

    fn listen_again(&mut self, cx: &SetContext<'_, Hand<V>>) {
        if std::mem::take(&mut self.is_paused) {
            let _ = cx.set_interest(cx.event(), Interest::READ);
        }
    }
}

impl<V: Service> SetHandler<Hand<V>> for CrewAcceptor<V> {
    fn handle_event(
        &mut self,
        hand: &mut Hand<V>,
        cx: &SetContext<'_, Hand<V>>,
        _happened: Happened,
    ) -> Disposition {
        if hand.crew.book.is_stopping() {
            return Disposition::Remove;
        }
        self.listen_again(cx);
        let after = self.policy.run(&mut Site {
            socket: &self.socket,
            hand,
            cx,
        });
        match after {
            AfterAccepting::Listen => {}
            AfterAccepting::Pause(pause) => {
                hand.lane.counts.accept_pauses += 1;
                self.stop_listening(cx);
                // It exists: its handler runs.
                let _ = cx.arm_at(cx.event(), cx.clock() + pause);
            }
            AfterAccepting::WaitForRoom => self.stop_listening(cx),
        }
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }
}

impl<V: Service> AcceptSite for Site<'_, '_, V> {
    fn take_place(&mut self) -> Option<Place> {
        let crew = &self.hand.crew;
        crew.room.take(0, &crew.doorbell, self.cx.event())
    }

    fn accept(&mut self) -> Result<Option<net::Accepted>, AcceptError> {
        net::accept(self.socket.fd.as_fd())
    }

    fn serve(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        let Arrival {
            socket,
            peer,
            place,
        } = arrival;
        open(self.hand, self.cx, socket, peer, place);
        Ok(())
    }
}

fn open<V: Service>(
    hand: &mut Hand<V>,
    cx: &SetContext<'_, Hand<V>>,
    socket: OwnedFd,
    peer: Peer,
    place: Place,
) {
    let lane = &mut hand.lane;
    lane.counts.accepted += 1;
    // Not a TCP socket, or gone already: it works without, or the first read says so.
    let _ = net::set_nodelay(socket.as_fd());
    let now = lane.now(cx.now());
    let Some(session) = lane.open(&peer, now) else {
        return;
    };
    let crew = &hand.crew;
    let socket = Arc::new(socket);
    let noted = Arc::downgrade(&socket);
    let connection = Connection::new(socket, session, &peer, crew.trigger);
    let deadline = connection.deadline();
    let options = HandleOptions {
        interest: connection.interest(),
        trigger: crew.trigger,
        deadline: (deadline != Instant::FAR).then_some(deadline),
        ..HandleOptions::default()
    };
    let entry = crew.book.enter(now.monotonic, place);
    let connection = CrewConnection::new(connection, entry);
    let handler: Box<dyn SetHandler<Hand<V>>> = match crew.stay {
        Stay::No => Box::new(connection),
        Stay::UntilDone => Box::new(HeldConnection::new(connection)),
    };
    match cx.register_handle(handler, options) {
        // Another thread may handle it already.
        Ok(event) => {
            let socket = noted;
            if crew.book.note_connection(Noted { event, socket }) {
                let _ = cx.remove_handle(event);
            }
        }
        // Out of watches or memory: the peer sees a close.
        Err(_) => lane.counts.failed += 1,
    }
}
