//! What the TLS layer did: counts for people and tests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`TlsService`](crate::TlsService) did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsReport {
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Those of them that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that failed or were given up by the peer.
    pub failed_handshakes: u64,
    /// Handshakes that took too long.
    pub handshake_timeouts: u64,
    /// Connections that spoke clear-text HTTP and got the configured answer.
    pub plain_http: u64,
    /// Connections that ended by an error of the protocol after the handshake.
    pub protocol_errors: u64,
    /// Files that became shorter while they were sent, or could not be read; the connection ended
    /// at once.
    pub truncated_files: u64,
}

impl fmt::Display for TlsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} TLS handshakes, {} resumed",
            self.handshakes, self.resumed
        )?;
        for (count, what) in [
            (self.failed_handshakes, "failed"),
            (self.handshake_timeouts, "took too long"),
            (self.plain_http, "spoke clear text"),
            (self.protocol_errors, "protocol errors"),
            (self.truncated_files, "files truncated while sent"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// The counts, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handshakes: AtomicU64,
    pub(crate) resumed: AtomicU64,
    pub(crate) failed_handshakes: AtomicU64,
    pub(crate) handshake_timeouts: AtomicU64,
    pub(crate) plain_http: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    pub(crate) truncated_files: AtomicU64,
}

impl Counts {
    pub(crate) fn report(&self) -> TlsReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TlsReport {
            handshakes: read(&self.handshakes),
            resumed: read(&self.resumed),
            failed_handshakes: read(&self.failed_handshakes),
            handshake_timeouts: read(&self.handshake_timeouts),
            plain_http: read(&self.plain_http),
            protocol_errors: read(&self.protocol_errors),
            truncated_files: read(&self.truncated_files),
        }
    }
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
