//! The access log: one line per answer, gathered per thread and written when a turn ends.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::date::DATE_BYTES;
use crate::status::Status;

/// Beyond this a thread's lines are written before its turn ends.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Where and how requests are logged.
#[derive(Clone)]
pub struct AccessLog {
    sink: Arc<Mutex<dyn Write + Send>>,
    format: LogFormat,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// Common log format, then referrer and user agent.
    Combined,
    /// `host - - [date] "request line" status bytes`.
    #[default]
    Common,
}

impl AccessLog {
    /// Logs to `sink`. Whole lines are written while its lock is held.
    #[must_use]
    pub fn new(sink: Arc<Mutex<dyn Write + Send>>, format: LogFormat) -> Self {
        Self { sink, format }
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.format
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
            .finish_non_exhaustive()
    }
}

/// Whether so many gathered bytes should be written at once.
pub(crate) fn is_full(lines: &[u8]) -> bool {
    lines.len() >= BUFFER_BYTES_MAX
}

/// What the request adds to a line. A refused request has no parts that could be trusted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) line: Option<(&'a str, &'a str, &'a str)>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
}

impl LoggedRequest<'_> {
    /// Appends what the request adds, as it stands in a line.
    pub(crate) fn write_request(&self, buf: &mut Vec<u8>) {
        buf.push(b'"');
        match self.line {
            Some((method, target, version)) => {
                escape(method.as_bytes(), buf);
                buf.push(b' ');
                escape(target.as_bytes(), buf);
                buf.push(b' ');
                buf.extend_from_slice(version.as_bytes());
            }
            None => buf.push(b'-'),
        }
        buf.push(b'"');
    }

    /// Appends what the combined format has after the size.
    pub(crate) fn write_tail(&self, format: LogFormat, buf: &mut Vec<u8>) {
        if format == LogFormat::Combined {
            for value in [self.referer, self.user_agent] {
                buf.extend_from_slice(b" \"");
                escape(value.unwrap_or(b"-"), buf);
                buf.push(b'"');
            }
        }
    }
}

/// What the answer adds to a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedAnswer<'a> {
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) date: &'a [u8; DATE_BYTES],
    pub(crate) status: Status,
    pub(crate) body_bytes: u64,
}

/// Appends one line; `request` and `tail` append the request's two parts.
pub(crate) fn write_line(
    buf: &mut Vec<u8>,
    answer: LoggedAnswer<'_>,
    request: impl FnOnce(&mut Vec<u8>),
    tail: impl FnOnce(&mut Vec<u8>),
) {
    const INFALLIBLE: &str = "writing to a Vec does not fail";
    match answer.peer {
        Some(peer) => write!(buf, "{}", peer.ip()).expect(INFALLIBLE),
        None => buf.push(b'-'),
    }
    buf.extend_from_slice(b" - - [");
    // "Sun, 06 Nov 1994 08:49:37 GMT" to "06/Nov/1994:08:49:37 +0000".
    let date = answer.date;
    for (part, mark) in [(5..7, b'/'), (8..11, b'/'), (12..16, b':'), (17..25, b' ')] {
        buf.extend_from_slice(&date[part]);
        buf.push(mark);
    }
    buf.extend_from_slice(b"+0000] ");
    request(buf);
    write!(buf, " {} ", answer.status.code()).expect(INFALLIBLE);
    match answer.body_bytes {
        0 => buf.push(b'-'),
        bytes => write!(buf, "{bytes}").expect(INFALLIBLE),
    }
    tail(buf);
    buf.push(b'\n');
}

/// Appends `text` so that it can neither end its quotes nor the line.
fn escape(text: &[u8], buf: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => buf.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => buf.push(byte),
            _ => write!(buf, "\\x{byte:02x}").expect("writing to a Vec does not fail"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_escaped_and_has_the_common_form() {
        let mut buf = Vec::new();
        let request = LoggedRequest {
            line: Some(("GET", "/\"\\", "HTTP/1.1")),
            referer: None,
            user_agent: Some(b"a\"\n\xff"),
        };
        let answer = LoggedAnswer {
            peer: Some(([10, 0, 0, 1], 80).into()),
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
            status: Status::OK,
            body_bytes: 5,
        };
        write_line(
            &mut buf,
            answer,
            |buf| request.write_request(buf),
            |buf| request.write_tail(LogFormat::Combined, buf),
        );
        assert_eq!(
            String::from_utf8(buf).expect("ASCII"),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /\\\"\\\\ HTTP/1.1\" 200 5 \
             \"-\" \"a\\\"\\x0a\\xff\"\n"
        );
    }
}
