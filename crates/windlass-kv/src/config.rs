//! Configuration: what the store takes, and how it is divided.

/// Limits of requests, and the number of shards.
///
/// A request beyond a limit is answered with a protocol error, after which the connection ends;
/// a key that is too long only with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Arguments of one command, the name included (default 1,048,576).
    pub args_max: usize,
    /// Bytes of one argument, and of a value (default 64 MiB; Redis takes 512 MiB).
    pub bulk_bytes_max: usize,
    /// Bytes of one command with all of its arguments (default 256 MiB). A client can have the
    /// server keep as much before it is answered anything.
    pub command_bytes_max: usize,
    /// Bytes of a key (default 64 KiB).
    pub key_bytes_max: usize,
    /// How many parts the keys are divided into, each with a lock (default 1, at most 16, rounded up
    /// to a power of two). One is the cheapest for one thread; for several, four times as many as
    /// threads rarely wait for each other.
    pub shards: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            args_max: 1024 * 1024,
            bulk_bytes_max: 64 * 1024 * 1024,
            command_bytes_max: 256 * 1024 * 1024,
            key_bytes_max: 64 * 1024,
            shards: 1,
        }
    }
}
