//! Making connections: resolving the host, then trying its addresses in order.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use url::Host;
use windlass::event_loop::{IoOptions, Reactor};
use windlass::pool::Outcome;
use windlass::{Accounting, Instant, Interest};
use windlass_sys::{errno, net};

use super::{Core, Place, Slot};
use crate::client::driver::RequestId;
use crate::client::error::ClientErrorKind;
use crate::client::exchange::Exchange;
use crate::client::link::Link;
use crate::client::origin::Origin;
use crate::client::transport::{Transport, TransportError};

/// A connection in the making: what is left to be tried, and until when.
#[derive(Debug)]
pub(in crate::client) struct Attempt {
    pub(in crate::client) addr: SocketAddr,
    others: VecDeque<SocketAddr>,
    pub(in crate::client) deadline: Instant,
}

impl<'l, S: 'l> Core<'l, S> {
    /// Makes a connection for `exchange`. Its place is reserved.
    pub(super) fn open(self: &Rc<Self>, cx: &mut Reactor<'l, S>, exchange: Box<Exchange<'l>>) {
        let origin = exchange.request.origin.clone();
        let port = origin.port();
        let name = match origin.host() {
            Host::Ipv4(addr) => return self.connect(cx, exchange, [(*addr, port).into()].into()),
            Host::Ipv6(addr) => return self.connect(cx, exchange, [(*addr, port).into()].into()),
            Host::Domain(name) => name.clone(),
        };
        let id = exchange.id;
        let core = Rc::clone(self);
        let submitted = cx.submit(
            &self.pool,
            move || Ok((name.as_str(), port).to_socket_addrs()?.collect()),
            move |_, cx, outcome| core.resolved(cx, exchange, outcome),
        );
        match submitted {
            Ok((event, job)) => {
                cx.set_label(event, "HTTP client: a host that is resolved");
                self.set_place(id, Place::Resolving { event, job });
            }
            Err(error) => {
                let kind = error.kind;
                // With it goes the exchange, whose source may come back here when it is dropped.
                drop(error);
                self.give_up(cx, id, &origin, ClientErrorKind::Resolver(kind));
            }
        }
    }

    fn resolved(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        exchange: Box<Exchange<'l>>,
        outcome: Outcome<io::Result<VecDeque<SocketAddr>>>,
    ) {
        let error = match outcome {
            Outcome::Done(Ok(addrs)) if !addrs.is_empty() => {
                return self.connect(cx, exchange, addrs);
            }
            Outcome::Done(Ok(_)) => io::Error::new(io::ErrorKind::NotFound, "no address"),
            Outcome::Done(Err(error)) => error,
            Outcome::Cancelled => io::Error::other("the worker pool was shut down"),
            Outcome::Panicked(_) => io::Error::other("the resolver panicked"),
        };
        let (id, origin) = (exchange.id, exchange.request.origin.clone());
        drop(exchange);
        self.give_up(cx, id, &origin, ClientErrorKind::Resolve(error));
    }

    /// Tries `addrs` in order.
    fn connect(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        exchange: Box<Exchange<'l>>,
        mut addrs: VecDeque<SocketAddr>,
    ) {
        let deadline = match self.config.timeouts.connect {
            Some(timeout) => cx.fresh_now() + timeout,
            None => Instant::FAR,
        };
        let Some(addr) = addrs.pop_front() else {
            return;
        };
        let attempt = Attempt {
            addr,
            others: addrs,
            deadline,
        };
        self.try_addr(cx, exchange, attempt);
    }

    /// Goes on with the next address after `error`; without one the request has failed.
    pub(in crate::client) fn try_next(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        exchange: Box<Exchange<'l>>,
        mut attempt: Attempt,
        source: io::Error,
    ) {
        if let Some(next) = attempt.others.pop_front() {
            attempt.addr = next;
            return self.try_addr(cx, exchange, attempt);
        }
        let (id, origin) = (exchange.id, exchange.request.origin.clone());
        drop(exchange);
        let addr = attempt.addr;
        self.give_up(cx, id, &origin, ClientErrorKind::Connect { addr, source });
    }

    fn try_addr(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        exchange: Box<Exchange<'l>>,
        attempt: Attempt,
    ) {
        let mut connected = net::connect(&attempt.addr);
        // Connections that nobody uses make room for one that is needed.
        if let Err(error) = &connected
            && is_exhausted(error)
            && self.close_idle(cx)
        {
            connected = net::connect(&attempt.addr);
        }
        match connected {
            Ok((socket, _)) => self.watch(cx, exchange, attempt, socket),
            Err(error) => self.try_next(cx, exchange, attempt, error),
        }
    }

    /// Registers a socket that connects.
    fn watch(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        exchange: Box<Exchange<'l>>,
        attempt: Attempt,
        socket: OwnedFd,
    ) {
        let (id, origin) = (exchange.id, exchange.request.origin.clone());
        let transport = match Transport::new(socket, &origin, &self.tls) {
            Ok(transport) => transport,
            Err(TransportError::Socket(error) | TransportError::Tls(error)) => {
                drop(exchange);
                return self.give_up(cx, id, &origin, ClientErrorKind::Tls(error));
            }
        };
        let slot = Rc::new(Slot::new(origin.clone(), Rc::clone(transport.socket())));
        let (deadline, addr) = (attempt.deadline, attempt.addr);
        let link = Link::new(
            Rc::clone(self),
            Rc::clone(&slot),
            transport,
            exchange,
            attempt,
        );
        let options = IoOptions {
            interest: Interest::WRITE,
            // Requests keep the loop running; a connection that waits for one does not.
            accounting: Accounting::Internal,
            label: Some(format!("HTTP client: {origin} at {addr}").into()),
            ..IoOptions::default()
        };
        match cx.register_handler(Box::new(link), options) {
            Ok(event) => {
                slot.event.set(Some(event));
                self.set_place(id, Place::Link(slot));
                if deadline != Instant::FAR {
                    // It exists, as it was just registered.
                    let _ = cx.arm_at(event, deadline);
                }
            }
            Err(error) => {
                let kind = error.kind;
                slot.hand_over();
                drop(error.rejected);
                self.give_up(cx, id, &origin, ClientErrorKind::Loop(kind));
            }
        }
    }

    /// A connection that has no slot any more, or not yet, has failed.
    fn give_up(
        self: &Rc<Self>,
        cx: &mut Reactor<'l, S>,
        id: RequestId,
        origin: &Origin,
        kind: ClientErrorKind,
    ) {
        self.give_back(origin);
        self.finish(cx, id, Err(kind));
        self.pump(cx, origin);
    }

    fn set_place(&self, id: RequestId, place: Place<'l>) {
        if let Some(entry) = self.table.borrow_mut().requests.get_mut(&id) {
            entry.place = place;
        }
    }
}

/// Whether the process or the system is out of descriptors.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EMFILE | errno::ENFILE))
}
