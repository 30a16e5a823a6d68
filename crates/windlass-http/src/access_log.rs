//! The access log: one line per answer, gathered per thread and written when a turn ends.
//!
//! What a client sent is escaped so that it can neither end its field nor the line. The parts of a
//! line that the request adds are kept ready while its answer takes longer than the call.

mod line;

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use windlass::Instant;
use windlass::session::{Now, Peer};

pub(crate) use self::line::{KeptRequest, LoggedRequest};
use crate::date::DATE_BYTES;
use crate::status::Status;

/// Beyond this a thread's lines are written before its turn ends.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Where and how requests are logged.
#[derive(Clone)]
pub struct AccessLog {
    sink: Arc<Mutex<dyn Write + Send>>,
    format: LogFormat,
    names: UserNames,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Common log format, then referrer and user agent.
    Combined,
    /// `host - user [date] "request line" status bytes`.
    #[default]
    Common,
    /// A JSON object: `time` (RFC 3339), `remote`, `user`, `method`, `target`, `version`, `status`,
    /// `bytes` (of the body that was sent), `duration_us`, `host`, `referer`, `user_agent`, `tls`.
    /// What there is not is `null`. The duration is from the complete head of the request to the
    /// end of its answer as it went into the output queue, by the time of the driver's turns: 0 for
    /// what was answered at once.
    Json,
}

/// Whose names the log shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserNames {
    /// Those of Basic credentials (RFC 7617), unless the answer is 401: for handlers that check
    /// them.
    Basic,
    /// Nobody's: no credentials are looked at.
    #[default]
    None,
}

impl AccessLog {
    /// Logs to `sink`. Whole lines are written while its lock is held.
    #[must_use]
    pub fn new(sink: Arc<Mutex<dyn Write + Send>>, format: LogFormat) -> Self {
        Self {
            sink,
            format,
            names: UserNames::None,
        }
    }

    /// Sets whose names are shown.
    #[must_use]
    pub fn user_names(mut self, names: UserNames) -> Self {
        self.names = names;
        self
    }

    /// Keeps the parts of a line that `request` adds, for an answer that is yet to come.
    pub(crate) fn keep(&self, request: &LoggedRequest<'_>, began: Instant) -> KeptRequest {
        KeptRequest::new(self, request, began)
    }

    /// Appends a line for an answer that is given in the same call.
    pub(crate) fn line_now(
        &self,
        lines: &mut Vec<u8>,
        request: &LoggedRequest<'_>,
        answer: &LoggedAnswer<'_>,
    ) {
        line::write(lines, self, answer, answer.now.monotonic, request);
    }

    /// Appends a line for an answer that took longer.
    pub(crate) fn line_kept(
        &self,
        lines: &mut Vec<u8>,
        request: &KeptRequest,
        answer: &LoggedAnswer<'_>,
    ) {
        if !request.is_silent() {
            line::write(lines, self, answer, request.began(), request);
        }
    }

    /// Writes and empties `lines`; on an error they are lost.
    pub(crate) fn write(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        // A writer that panicked in another thread has lost its own lines, not ours.
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let result = sink.write_all(lines).and_then(|()| sink.flush());
        lines.clear();
        result
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog")
            .field("format", &self.format)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// Whether so many gathered bytes should be written at once.
pub(crate) fn is_full(lines: &[u8]) -> bool {
    lines.len() >= BUFFER_BYTES_MAX
}

/// What the answer adds to a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedAnswer<'a> {
    pub(crate) peer: Peer,
    /// The second of `now`, formatted.
    pub(crate) date: &'a [u8; DATE_BYTES],
    pub(crate) now: Now,
    pub(crate) status: Status,
    pub(crate) body_bytes: u64,
}
