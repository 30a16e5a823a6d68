//! What a server allows and for how long it waits.

use std::time::Duration;

use crate::access_log::AccessLog;
#[cfg(feature = "compression")]
use crate::compression::Compression;
use crate::error_pages::ErrorPages;

/// Settings of an [`HttpService`](crate::HttpService).
///
/// ```
/// let mut config = windlass_http::HttpConfig::default();
/// config.timeouts.idle = None;
/// config.limits.head_bytes = 8 * 1024;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HttpConfig {
    /// Sizes.
    pub limits: Limits,
    /// Times.
    pub timeouts: Timeouts,
    /// Where requests are logged; not at all by default.
    pub access_log: Option<AccessLog>,
    /// Pages that replace the plain text of error answers.
    pub error_pages: ErrorPages,
    /// Which answers are compressed; none by default, see [`Compression`].
    #[cfg(feature = "compression")]
    pub compression: Option<Compression>,
}

/// The most of each thing that a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Request line and header lines together, and the trailer section of a chunked body. Above it
    /// the answer is 414 if the request line alone is longer, else 431. Default 16 KiB. A driver
    /// must be able to keep that much input.
    pub head_bytes: usize,
    /// Header lines; 431 above it. Default 100; values above 128 count as 128.
    pub header_count: usize,
    /// The request target; 414 above it. Default 8 KiB.
    pub target_bytes: usize,
    /// The most of a body that a handler takes, unless it sets a limit of its own
    /// ([`Responder::body_limit`](crate::Responder::body_limit)); 413 above it. Default 1 MiB.
    pub body_bytes: u64,
    /// The part of a body that no handler takes and that is read and dropped to keep the
    /// connection. Beyond it the connection ends after the answer. Default 1 MiB.
    pub drain_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 16 * 1024,
            header_count: 100,
            target_bytes: 8 * 1024,
            body_bytes: 1024 * 1024,
            drain_bytes: 1024 * 1024,
        }
    }
}

/// How long a server waits for its client; `None` switches a limit off.
///
/// How long a client may take to read is the driver's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// The whole head of a request, from accept or from the first byte after idle; then 408.
    /// Default 30 s.
    pub header: Option<Duration>,
    /// Between an answer and the first byte of the next request. Default 75 s.
    pub idle: Option<Duration>,
    /// A body: this long, and a second more for each
    /// [`body_bytes_per_second`](Self::body_bytes_per_second) received. Default 60 s.
    pub body: Option<Duration>,
    /// How old a connection must be for a graceful stop to close it though it has not sent its first
    /// request. Younger ones have the rest of that time: the request may be on its way, and a client
    /// need not expect that to fail. Needs a [`header`](Self::header) time-out that is no shorter.
    /// Default zero: all are closed at once.
    pub first_request_at_stop: Duration,
    /// The rate below which a body runs into its time-out in the end. Default 4 KiB.
    pub body_bytes_per_second: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(75)),
            body: Some(Duration::from_secs(60)),
            first_request_at_stop: Duration::ZERO,
            body_bytes_per_second: 4096,
        }
    }
}
