//! The policy of accepting: how many connections are taken at once, and what follows when none can be
//! had. The same for every acceptor, whatever drives it.
//!
//! ```text
//!  listening ──no room──────────────────▶ waits for room ──there is some──▶ listening
//!      │ ▲
//!      │ └─────────────the pause is over────────────────┐
//!      └──no descriptors, no memory, no thread──▶ pauses┘   10 ms, doubled up to 640 ms until one is
//!                                                           served
//! ```
//!
//! Room is taken before a connection is: what waits in the listener's queue beyond the limit stays
//! there. Without descriptors that queue stays ready, so that only a pause keeps the acceptor from
//! spinning. Nothing is shed: who waits is served when there is something to serve it with, or gives
//! up by itself.

use std::time::Duration;

use windlass_sys::net::{self, AcceptError};

use super::carrier::Arrival;
use super::listening::Sharing;
use super::room::Place;
use crate::session::Peer;

/// Connections accepted in one call: others have their turn after so many.
const BATCH_MAX: usize = 64;
/// The same if other loops accept from the same socket: who takes a batch leaves them idle.
const SHARED_BATCH_MAX: usize = 1;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(640);

/// What an acceptor keeps from call to call.
#[derive(Debug)]
pub(super) struct AcceptPolicy {
    batch_max: usize,
    /// The next one.
    pause: Duration,
    /// What was accepted and could not be served yet.
    held: Option<Arrival>,
}

/// Where connections come from and go to, in one call of an acceptor.
pub(super) trait AcceptSite {
    /// Takes room for a connection, or has the acceptor called when there is some.
    fn take_place(&mut self) -> Option<Place>;

    /// Takes a connection, if one waits.
    fn accept(&mut self) -> Result<Option<net::Accepted>, AcceptError>;

    /// Serves a connection; or gives it back, to be tried again later.
    fn serve(&mut self, arrival: Arrival) -> Result<(), Arrival>;
}

/// What an acceptor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterAccepting {
    /// It goes on to listen.
    Listen,
    /// It does not listen for so long, then it is called, whether anybody connects or not.
    Pause(Duration),
    /// It does not listen until it is called because there is room.
    WaitForRoom,
}

impl AcceptPolicy {
    /// For a listener that is shared so.
    pub(super) fn new(sharing: Sharing) -> Self {
        Self {
            batch_max: match sharing {
                Sharing::Own => BATCH_MAX,
                Sharing::Duplicate | Sharing::Shared => SHARED_BATCH_MAX,
            },
            pause: PAUSE_MIN,
            held: None,
        }
    }

    /// Accepts and serves what waits, as far as that can be done now.
    pub(super) fn run(&mut self, site: &mut impl AcceptSite) -> AfterAccepting {
        if let Some(arrival) = self.held.take()
            && !self.serve(site, arrival)
        {
            return self.pause();
        }
        for _ in 0..self.batch_max {
            let Some(place) = site.take_place() else {
                return AfterAccepting::WaitForRoom;
            };
            match site.accept() {
                Ok(Some((socket, remote))) => {
                    let arrival = Arrival {
                        socket,
                        peer: Peer::new(remote),
                        place,
                    };
                    if !self.serve(site, arrival) {
                        return self.pause();
                    }
                }
                Ok(None) => break,
                // That one connection is gone already.
                Err(AcceptError::Connection(_)) => {}
                // Out of descriptors or memory, or the listener itself is broken: no spinning.
                Err(_) => return self.pause(),
            }
        }
        AfterAccepting::Listen
    }

    /// Answers whether it is served.
    fn serve(&mut self, site: &mut impl AcceptSite, arrival: Arrival) -> bool {
        self.held = site.serve(arrival).err();
        let is_served = self.held.is_none();
        if is_served {
            self.pause = PAUSE_MIN;
        }
        is_served
    }

    /// The next pause is longer, until a connection is served.
    #[cold]
    fn pause(&mut self) -> AfterAccepting {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        AfterAccepting::Pause(pause)
    }
}

#[cfg(test)]
mod tests;
