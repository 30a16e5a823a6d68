//! A line of the access log, in each format.

use std::io::Write;

use windlass::Instant;
use windlass::session::Transport;

use super::{AccessLog, LogFormat, LoggedAnswer, UserNames};
use crate::credentials::{decode_basic, name_and_password};
use crate::status::Status;

const INFALLIBLE: &str = "writing to a Vec does not fail";

/// What the request adds to a line. A refused request has no parts that could be trusted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoggedRequest<'a> {
    /// Method, target, version.
    pub(crate) line: Option<(&'a str, &'a str, &'a str)>,
    pub(crate) authorization: Option<&'a [u8]>,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
}

/// The parts of a line that the request adds, as they will stand in it.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    began: Instant,
    is_silent: bool,
    user: Vec<u8>,
    request: Vec<u8>,
    tail: Vec<u8>,
}

/// Gives the parts of a line that the request adds.
pub(super) trait RequestParts {
    /// Appends the user's name, if there is one to be shown.
    fn write_user(&self, log: &AccessLog, buf: &mut Vec<u8>);
    /// Appends the request line.
    fn write_request(&self, format: LogFormat, buf: &mut Vec<u8>);
    /// Appends what comes last.
    fn write_tail(&self, format: LogFormat, buf: &mut Vec<u8>);
}

/// Appends a line.
pub(super) fn write(
    buf: &mut Vec<u8>,
    log: &AccessLog,
    answer: &LoggedAnswer<'_>,
    began: Instant,
    request: &impl RequestParts,
) {
    if log.format == LogFormat::Json {
        write_json(buf, log, answer, began, request);
    } else {
        write_common(buf, log, answer, request);
    }
    buf.push(b'\n');
}

fn write_common(
    buf: &mut Vec<u8>,
    log: &AccessLog,
    answer: &LoggedAnswer<'_>,
    request: &impl RequestParts,
) {
    match answer.peer.remote {
        Some(peer) => write!(buf, "{}", peer.ip()).expect(INFALLIBLE),
        None => buf.push(b'-'),
    }
    buf.extend_from_slice(b" - ");
    write_user(buf, log, answer, request, b"-");
    buf.extend_from_slice(b" [");
    // "Sun, 06 Nov 1994 08:49:37 GMT" to "06/Nov/1994:08:49:37 +0000".
    let date = answer.date;
    for (part, mark) in [(5..7, b'/'), (8..11, b'/'), (12..16, b':'), (17..25, b' ')] {
        buf.extend_from_slice(&date[part]);
        buf.push(mark);
    }
    buf.extend_from_slice(b"+0000] ");
    request.write_request(log.format, buf);
    write!(buf, " {} ", answer.status.code()).expect(INFALLIBLE);
    match answer.body_bytes {
        0 => buf.push(b'-'),
        bytes => write!(buf, "{bytes}").expect(INFALLIBLE),
    }
    request.write_tail(log.format, buf);
}

fn write_json(
    buf: &mut Vec<u8>,
    log: &AccessLog,
    answer: &LoggedAnswer<'_>,
    began: Instant,
    request: &impl RequestParts,
) {
    buf.extend_from_slice(b"{\"time\":\"");
    write_rfc3339(buf, answer);
    match answer.peer.remote {
        Some(peer) => write!(buf, "\",\"remote\":\"{}\"", peer.ip()).expect(INFALLIBLE),
        None => buf.extend_from_slice(b"\",\"remote\":null"),
    }
    buf.extend_from_slice(b",\"user\":");
    write_user(buf, log, answer, request, b"null");
    request.write_request(log.format, buf);
    let took_us = answer.now.monotonic.saturating_since(began).as_micros();
    write!(
        buf,
        ",\"status\":{},\"bytes\":{},\"duration_us\":{took_us}",
        answer.status.code(),
        answer.body_bytes,
    )
    .expect(INFALLIBLE);
    request.write_tail(log.format, buf);
    let tls = answer.peer.transport == Transport::Tls;
    write!(buf, ",\"tls\":{tls}}}").expect(INFALLIBLE);
}

/// Appends the user's name, or `nobody`.
fn write_user(
    buf: &mut Vec<u8>,
    log: &AccessLog,
    answer: &LoggedAnswer<'_>,
    request: &impl RequestParts,
    nobody: &[u8],
) {
    let start = buf.len();
    // Whoever was refused is not known to be who they say.
    if answer.status != Status::UNAUTHORIZED {
        request.write_user(log, buf);
    }
    if buf.len() == start {
        buf.extend_from_slice(nobody);
    }
}

/// Appends the time as in "1994-11-06T08:49:37.123Z".
fn write_rfc3339(buf: &mut Vec<u8>, answer: &LoggedAnswer<'_>) {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let date = answer.date;
    let at = MONTHS.chunks(3).position(|name| *name == date[8..11]);
    let month = at.map_or(0, |at| at + 1);
    buf.extend_from_slice(&date[12..16]);
    write!(buf, "-{month:02}-").expect(INFALLIBLE);
    buf.extend_from_slice(&date[5..7]);
    buf.push(b'T');
    buf.extend_from_slice(&date[17..25]);
    write!(buf, ".{:03}Z", answer.now.unix_ms % 1000).expect(INFALLIBLE);
}

impl RequestParts for LoggedRequest<'_> {
    fn write_user(&self, log: &AccessLog, buf: &mut Vec<u8>) {
        if log.names != UserNames::Basic {
            return;
        }
        let credentials = self.authorization.and_then(decode_basic);
        let Some(credentials) = credentials else {
            return;
        };
        let (name, _) = name_and_password(&credentials);
        if name.is_empty() {
            return;
        }
        if log.format == LogFormat::Json {
            write_string(name, buf);
        } else {
            escape_word(name, buf);
        }
    }

    fn write_request(&self, format: LogFormat, buf: &mut Vec<u8>) {
        if format == LogFormat::Json {
            let (method, target, version) = match self.line {
                Some((method, target, version)) => (Some(method), Some(target), Some(version)),
                None => (None, None, None),
            };
            for (name, value) in [("method", method), ("target", target), ("version", version)] {
                write_member(name, value.map(str::as_bytes), buf);
            }
            return;
        }
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

    fn write_tail(&self, format: LogFormat, buf: &mut Vec<u8>) {
        match format {
            LogFormat::Combined => {
                for value in [self.referer, self.user_agent] {
                    buf.extend_from_slice(b" \"");
                    escape(value.unwrap_or(b"-"), buf);
                    buf.push(b'"');
                }
            }
            LogFormat::Common => {}
            LogFormat::Json => {
                write_member("host", self.host, buf);
                write_member("referer", self.referer, buf);
                write_member("user_agent", self.user_agent, buf);
            }
        }
    }
}

impl KeptRequest {
    pub(super) fn new(log: &AccessLog, request: &LoggedRequest<'_>, began: Instant) -> Self {
        let mut kept = Self {
            began,
            is_silent: false,
            user: Vec::new(),
            request: Vec::new(),
            tail: Vec::new(),
        };
        request.write_user(log, &mut kept.user);
        request.write_request(log.format, &mut kept.request);
        request.write_tail(log.format, &mut kept.tail);
        kept
    }

    /// Keeps the answer out of the log.
    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// When the request's head was complete.
    pub(super) fn began(&self) -> Instant {
        self.began
    }
}

/// Nothing is kept where nothing is logged.
impl Default for KeptRequest {
    fn default() -> Self {
        Self {
            began: Instant::ZERO,
            is_silent: false,
            user: Vec::new(),
            request: Vec::new(),
            tail: Vec::new(),
        }
    }
}

impl RequestParts for KeptRequest {
    fn write_user(&self, _log: &AccessLog, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.user);
    }

    fn write_request(&self, _format: LogFormat, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.request);
    }

    fn write_tail(&self, _format: LogFormat, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.tail);
    }
}

/// Appends `text` so that it can neither end its quotes nor the line.
fn escape(text: &[u8], buf: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => buf.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => buf.push(byte),
            _ => write!(buf, "\\x{byte:02x}").expect(INFALLIBLE),
        }
    }
}

/// As [`escape`], without blanks, which part fields.
fn escape_word(text: &[u8], buf: &mut Vec<u8>) {
    for word in text.split_inclusive(|&byte| byte == b' ') {
        match word.split_last() {
            Some((b' ', word)) => {
                escape(word, buf);
                buf.extend_from_slice(b"\\x20");
            }
            _ => escape(word, buf),
        }
    }
}

/// Appends `,"name":` and the value.
fn write_member(name: &str, value: Option<&[u8]>, buf: &mut Vec<u8>) {
    write!(buf, ",\"{name}\":").expect(INFALLIBLE);
    match value {
        Some(value) => write_string(value, buf),
        None => buf.extend_from_slice(b"null"),
    }
}

/// Appends a JSON string (RFC 8259 section 7). What is not UTF-8 becomes U+FFFD.
fn write_string(value: &[u8], buf: &mut Vec<u8>) {
    buf.push(b'"');
    for chunk in value.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => buf.extend_from_slice(&[b'\\', byte]),
                0..=0x1f | 0x7f => write!(buf, "\\u{byte:04x}").expect(INFALLIBLE),
                _ => buf.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            buf.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    buf.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use windlass::session::{Now, Peer};

    use super::*;

    fn line(format: LogFormat, status: Status, kept_for: Option<Duration>) -> String {
        let log = AccessLog::new(Arc::new(Mutex::new(Vec::new())), format);
        let log = log.user_names(UserNames::Basic);
        let request = LoggedRequest {
            line: Some(("GET", "/\"\\", "HTTP/1.1")),
            // "a b:c"
            authorization: Some(b"basic YSBiOmM="),
            host: Some(b"h"),
            referer: None,
            user_agent: Some(b"a\"\n\xff\xc3\xa9"),
        };
        let began = Instant::from_nanos(5);
        let answer = LoggedAnswer {
            peer: Peer::new(Some(([10, 0, 0, 1], 80).into())),
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
            now: Now {
                monotonic: began + kept_for.unwrap_or_default(),
                unix_ms: 784_111_777_042,
            },
            status,
            body_bytes: 5,
        };
        let mut buf = Vec::new();
        match kept_for {
            Some(_) => log.line_kept(&mut buf, &log.keep(&request, began), &answer),
            None => log.line_now(&mut buf, &request, &answer),
        }
        String::from_utf8(buf).expect("UTF-8")
    }

    #[test]
    fn line_is_escaped_and_has_the_common_form() {
        let expected = "10.0.0.1 - a\\x20b [06/Nov/1994:08:49:37 +0000] \
                        \"GET /\\\"\\\\ HTTP/1.1\" 200 5 \"-\" \"a\\\"\\x0a\\xff\\xc3\\xa9\"\n";
        assert_eq!(line(LogFormat::Combined, Status::OK, None), expected);
        let later = Some(Duration::from_secs(1));
        assert_eq!(line(LogFormat::Combined, Status::OK, later), expected);
        let refused = line(LogFormat::Common, Status::UNAUTHORIZED, None);
        assert!(refused.starts_with("10.0.0.1 - - ["), "{refused}");
    }

    #[test]
    fn json_line_is_an_object_with_escaped_strings() {
        let expected = "{\"time\":\"1994-11-06T08:49:37.042Z\",\"remote\":\"10.0.0.1\",\
                        \"user\":\"a b\",\"method\":\"GET\",\"target\":\"/\\\"\\\\\",\
                        \"version\":\"HTTP/1.1\",\"status\":200,\"bytes\":5,\
                        \"duration_us\":1500,\"host\":\"h\",\"referer\":null,\
                        \"user_agent\":\"a\\\"\\u000a\u{fffd}\u{e9}\",\"tls\":false}\n";
        let took = Some(Duration::from_micros(1500));
        assert_eq!(line(LogFormat::Json, Status::OK, took), expected);
        let at_once = line(LogFormat::Json, Status::UNAUTHORIZED, None);
        assert!(at_once.contains("\"user\":null,") && at_once.contains("\"duration_us\":0,"));
    }

    #[test]
    fn credentials_that_are_none_name_nobody() {
        for bad in [
            &b""[..],
            b"Basic",
            b"Basic !",
            b"Bearer YTpi",
            b"Basic Og==",
            b"Basic YWI=",
        ] {
            let log = AccessLog::new(Arc::new(Mutex::new(Vec::new())), LogFormat::Common);
            let log = log.user_names(UserNames::Basic);
            let request = LoggedRequest {
                authorization: Some(bad),
                ..LoggedRequest::default()
            };
            let mut user = Vec::new();
            request.write_user(&log, &mut user);
            assert!(user.is_empty(), "{bad:?}");
        }
    }
}
