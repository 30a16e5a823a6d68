//! Reports: what a server did, and what its stop cut.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::time::Duration;

use crate::session::Peer;

/// What a server did since it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Connections that were accepted, and served by somebody.
    pub accepted: u64,
    /// Connections that ended by a reset or another error.
    pub failed: u64,
    /// Connections that were cut because the graceful stop took too long, or was called off.
    pub cut: u64,
    /// Connections that ended because the service or a session panicked, and panics of a service
    /// that settled.
    pub panics: u64,
    /// Connections whose peer took nothing of the output for too long.
    pub write_stalls: u64,
    /// Files that became shorter while they were sent; the connection ended at once.
    pub truncated_files: u64,
    /// How often accepting was paused because descriptors, memory or threads had run out. A pause is
    /// 10 ms, then twice the one before, up to 640 ms, until a connection is served.
    pub accept_pauses: u64,
    /// Bytes read from connections.
    pub received_bytes: u64,
    /// Bytes written to connections.
    pub sent_bytes: u64,
}

impl AddAssign for ServerReport {
    fn add_assign(&mut self, other: Self) {
        let Self {
            accepted,
            failed,
            cut,
            panics,
            write_stalls,
            truncated_files,
            accept_pauses,
            received_bytes,
            sent_bytes,
        } = other;
        for (sum, more) in [
            (&mut self.accepted, accepted),
            (&mut self.failed, failed),
            (&mut self.cut, cut),
            (&mut self.panics, panics),
            (&mut self.write_stalls, write_stalls),
            (&mut self.truncated_files, truncated_files),
            (&mut self.accept_pauses, accept_pauses),
            (&mut self.received_bytes, received_bytes),
            (&mut self.sent_bytes, sent_bytes),
        ] {
            *sum += more;
        }
    }
}

impl Add for ServerReport {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// The report of several loops together.
impl Sum for ServerReport {
    fn sum<I: Iterator<Item = Self>>(reports: I) -> Self {
        reports.fold(Self::default(), Self::add)
    }
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} bytes received, {} sent",
            self.accepted, self.received_bytes, self.sent_bytes
        )?;
        for (count, what) in [
            (self.failed, "failed"),
            (self.cut, "cut at the stop"),
            (self.panics, "ended by a panic"),
            (self.write_stalls, "stalled"),
            (self.truncated_files, "files truncated while sent"),
            (self.accept_pauses, "pauses without descriptors"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// A connection that was cut by a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutConnection {
    /// Whom it was with.
    pub peer: Peer,
    /// What it did.
    pub phase: ConnectionPhase,
    /// How long ago it was accepted.
    pub age: Duration,
    /// Output that its peer had not taken.
    pub queued_bytes: u64,
}

impl fmt::Display for CutConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer.remote {
            Some(remote) => write!(f, "{remote}")?,
            None => f.write_str("a local peer")?,
        }
        write!(
            f,
            ": {}, {:.1} s old, {} bytes not sent",
            self.phase,
            self.age.as_secs_f64(),
            self.queued_bytes
        )
    }
}

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionPhase {
    /// Its peer has not taken all of the output yet.
    Answering,
    /// Fully answered; what the peer still sends is dropped until it closes too.
    Lingering,
    /// It waits for input.
    Reading,
    /// It waits for a notification.
    Waiting,
    /// It waits for a job, or for its session, which a worker calls.
    WaitingForJob,
}

impl fmt::Display for ConnectionPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answering => "answering",
            Self::Lingering => "waiting for the peer's close",
            Self::Reading => "waiting for input",
            Self::Waiting => "waiting for a notification",
            Self::WaitingForJob => "waiting for a job",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_every_number() {
        let ones = ServerReport {
            accepted: 1,
            failed: 2,
            cut: 3,
            panics: 4,
            write_stalls: 5,
            truncated_files: 6,
            accept_pauses: 7,
            received_bytes: 8,
            sent_bytes: 9,
        };
        let sum: ServerReport = [ones, ones].into_iter().sum();
        assert_eq!(
            sum.to_string(),
            "2 connections, 16 bytes received, 18 sent, 4 failed, 6 cut at the stop, \
             8 ended by a panic, 10 stalled, 12 files truncated while sent, \
             14 pauses without descriptors"
        );
    }

    #[test]
    fn a_cut_connection_is_told_in_a_line() {
        let cut = CutConnection {
            peer: Peer::new(Some(([127, 0, 0, 1], 80).into())),
            phase: ConnectionPhase::WaitingForJob,
            age: Duration::from_millis(1250),
            queued_bytes: 7,
        };
        assert_eq!(
            cut.to_string(),
            "127.0.0.1:80: waiting for a job, 1.2 s old, 7 bytes not sent"
        );
    }
}
