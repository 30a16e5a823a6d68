//! Limits that every model obeys, and what a server reports at its end.

use std::fmt;
use std::time::Duration;

use crate::session::OutputLimits;

/// What a server takes on, and for how long. `None` switches a time limit off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; beyond that none is accepted until one ends (default 65,536).
    pub connections_max: usize,
    /// When the output of one connection is full: then nothing more is read from it.
    pub output: OutputLimits,
    /// Input that a session may leave unconsumed (default 64 KiB); with more the connection ends.
    pub input_bytes_max: usize,
    /// How long a peer may take nothing of the output that is queued for it (default 30 s).
    pub write_stall_timeout: Option<Duration>,
    /// How long what a peer still sends is read and dropped after the last answer, before the
    /// connection is closed (default 5 s).
    pub linger_timeout: Duration,
    /// How much of that is read (default 8 MiB).
    pub linger_bytes_max: u64,
    /// How long a graceful stop waits for connections before it cuts them (default 10 s).
    pub stop_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            output: OutputLimits::default(),
            input_bytes_max: 64 * 1024,
            write_stall_timeout: Some(Duration::from_secs(30)),
            linger_timeout: Duration::from_secs(5),
            linger_bytes_max: 8 * 1024 * 1024,
            stop_deadline: Duration::from_secs(10),
        }
    }
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that ended by a reset or another error.
    pub failed: u64,
    /// Connections that were cut because the graceful stop took too long, or was called off.
    pub cut: u64,
    /// Connections that ended because the service or a session panicked.
    pub panics: u64,
    /// Connections whose peer took nothing of the output for too long.
    pub write_stalls: u64,
    /// Files that became shorter while they were sent; the connection ended at once.
    pub truncated_files: u64,
    /// How often accepting was paused because descriptors or memory had run out.
    pub accept_pauses: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Bytes written.
    pub sent_bytes: u64,
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
