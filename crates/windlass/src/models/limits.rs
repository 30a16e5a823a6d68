//! Limits that every model obeys.

use std::time::Duration;

use crate::session::OutputLimits;

/// What a server takes on, and for how long. All sizes are in bytes. With room for zero connections
/// none is accepted; a time of zero is over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of the whole server at once; beyond that none is accepted until one ends
    /// (default 65,536). What waits in the listeners' queues beyond it waits on.
    pub connections_max: usize,
    /// When the output of one connection is full: then nothing more is read from it.
    pub output: OutputLimits,
    /// Input that a session may leave unconsumed (default 64 KiB, at least 4 KiB); with more the
    /// connection ends.
    pub input_bytes_max: usize,
    /// How long a peer may take nothing of the output that is queued for it (default 30 s; `None`:
    /// for ever). Then the connection ends.
    pub write_stall_timeout: Option<Duration>,
    /// How long what a peer still sends is read and dropped after the last answer, before the
    /// connection is closed (default 5 s).
    pub linger_timeout: Duration,
    /// How much of that is read (default 256 MiB): a peer that sends all before it reads must get
    /// there.
    pub linger_bytes_max: u64,
    /// How long a graceful stop waits for connections before it cuts them (default 10 s).
    pub stop_deadline: Duration,
}

/// How long the end of a server waits for calls of sessions that are under way, in threads other than
/// that which runs it. Nobody needs their answers.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(1);

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            output: OutputLimits::default(),
            input_bytes_max: 64 * 1024,
            write_stall_timeout: Some(Duration::from_secs(30)),
            linger_timeout: Duration::from_secs(5),
            linger_bytes_max: 256 * 1024 * 1024,
            stop_deadline: Duration::from_secs(10),
        }
    }
}
