//! Carriers: those who serve the connections that a loop accepts, in models whose loop does not.

use std::os::fd::OwnedFd;

use windlass_core::Instant;

use super::report::CutConnection;
use super::room::Place;
use crate::session::Peer;

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    /// Its room, while it lives.
    pub(super) place: Place,
}

/// Serves connections in threads of its own, for the loop that accepts them and is told of a stop.
/// All calls are the loop's thread's.
pub(super) trait Carrier: Send + Sync {
    /// Takes a connection; or gives it back, if the system has no more threads: to be tried again
    /// later.
    fn carry(&self, arrival: Arrival) -> Result<(), Arrival>;

    /// How many connections it has. When the last one ends, it has the loop look.
    fn open_connections(&self) -> usize;

    /// Tells all connections that a graceful stop is under way, and those that come later.
    fn end_connections(&self);

    /// Ends all connections. Answers how many those were, and what the first ones were at, of those
    /// that can't say it themselves.
    fn cut(&self, time: Instant) -> (usize, Vec<CutConnection>);
}
