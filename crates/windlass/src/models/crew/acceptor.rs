//! The acceptor of a crew: takes connections in whichever thread is free, and pauses when
//! descriptors run out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Disposition, Happened, Instant, Interest};
use windlass_sys::net::{self, AcceptError};

use super::book::{Book, Noted};
use super::connection::CrewConnection;
use super::held::HeldConnection;
use super::{Hand, Stay};
use crate::models::connection::Connection;
use crate::models::listening::ListenSocket;
use crate::models::room::Place;
use crate::session::{Peer, Service};
use crate::thread_set::{HandleOptions, SetContext, SetHandler};

/// Connections accepted in one call: the thread's own connections have their turn after so many.
const BATCH_MAX: usize = 64;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(640);

/// Accepts from one listener.
pub(super) struct CrewAcceptor<V: Service> {
    /// First: it is closed when the book is told.
    socket: Arc<ListenSocket>,
    pause: Duration,
    is_paused: bool,
    _closed: Closed<V>,
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
            socket,
            pause: PAUSE_MIN,
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

    fn accept(&mut self, hand: &mut Hand<V>, cx: &SetContext<'_, Hand<V>>) {
        for _ in 0..BATCH_MAX {
            let crew = &hand.crew;
            let Some(place) = crew.room.take(0, &crew.doorbell, cx.event()) else {
                // Activated when there is some.
                self.stop_listening(cx);
                return;
            };
            match net::accept(self.socket.fd.as_fd()) {
                Ok(Some((socket, remote))) => {
                    self.pause = PAUSE_MIN;
                    open(hand, cx, socket, Peer::new(remote), place);
                }
                Ok(None) => return,
                // That one connection is gone already.
                Err(AcceptError::Connection(_)) => {}
                // Out of descriptors or memory, or the listener itself is broken: no spinning.
                Err(_) => {
                    hand.lane.counts.accept_pauses += 1;
                    self.stop_listening(cx);
                    let _ = cx.arm_at(cx.event(), cx.clock() + self.pause);
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                    return;
                }
            }
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
        self.accept(hand, cx);
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
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
