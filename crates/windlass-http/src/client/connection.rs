//! The client's side of one connection, sans I/O: writes a request, takes the response apart.
//!
//! It is given input bytes in any cut and consumes some; what it finds goes to a [`ResponseSink`]
//! by reference. It holds no socket, reads no clock and allocates nothing.
//!
//! # States
//!
//! ```text
//! Idle ──send──▶ Head ──▶ Body ──▶ Idle (kept) or Over
//!                 ⟲ 1xx     any ──fault──▶ Failed
//! ```

use std::error::Error;
use std::fmt;
use std::mem::MaybeUninit;

use windlass::session::{Input, Output};

use crate::body::BodyDecoder;
use crate::client::config::ResponseLimits;
use crate::client::error::ResponseFault;
use crate::client::head::{self, Judged, ResponseFraming, ResponseHead};
use crate::client::request::{PreparedRequest, Upload};
use crate::head::HEADER_COUNT_MAX;
use crate::method::Method;
use crate::status::Status;
use crate::syntax::trim_blanks;

/// Takes the parts of a response, in order. `()` takes none.
///
/// [`Flow::Pause`] makes [`ClientConnection::advance`] return at once; the next call goes on.
pub trait ResponseSink {
    /// The head of the final response.
    fn head(&mut self, _head: &ResponseHead<'_>) -> Flow {
        Flow::Continue
    }

    /// The next bytes of the body; never empty.
    fn body(&mut self, _piece: &[u8]) -> Flow {
        Flow::Continue
    }

    /// A trailer field. It is of the sender's word only and must not be taken for a header
    /// (RFC 9110 section 6.5.1).
    fn trailer(&mut self, _name: &str, _value: &[u8]) {}
}

impl ResponseSink for () {}

/// Whether a response goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Give the next part.
    Continue,
    /// Stop until told to go on.
    Pause,
}

/// What a call did and waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ClientProgress {
    /// How many bytes of the input are done with; the rest is to be given again.
    pub consumed: usize,
    /// What is next.
    pub next: ClientNext,
}

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClientNext {
    /// The response is complete.
    Done(Reuse),
    /// The sink paused: call again, with the rest of the input, when it goes on.
    Paused,
    /// More input.
    Read,
    /// The answer to CONNECT: all further bytes, both ways, are the tunnel's.
    Tunnel,
}

/// Whether a connection can carry another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It must be closed.
    Close,
    /// It can.
    Keep,
}

/// Why a piece of a request's body cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadError {
    /// The request has no body, or it ended.
    NoBody,
    /// It is longer than was announced.
    TooLong,
    /// It ended before its announced length.
    TooShort,
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBody => "send a body where none is expected",
            Self::TooLong => "send a body that is longer than announced",
            Self::TooShort => "end a body that is shorter than announced",
        })
    }
}

impl Error for UploadError {}

/// The client's side of one connection: one request at a time.
///
/// ```
/// use windlass::session::{Input, Output};
/// use windlass_http::client::{
///     ClientConnection, ClientNext, ClientRequest, ResponseLimits, Reuse,
/// };
///
/// let request = ClientRequest::get("http://example.com/")?.prepare();
/// let mut connection = ClientConnection::new(ResponseLimits::default());
/// let mut output = Output::default();
/// connection.send(&request, &mut output);
/// let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// let progress = connection.advance(Input { bytes, ended: false }, &mut ())?;
/// assert_eq!(progress.next, ClientNext::Done(Reuse::Keep));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClientConnection {
    limits: ResponseLimits,
    state: State,
    upload: Upload,
    method: Method,
    /// Whether the request or the response said that it is the last one.
    last: bool,
    /// Whether a byte of the response has come.
    started: bool,
    interim_count: u32,
    /// What of the input is known to hold no complete head.
    scanned_bytes: usize,
    body_bytes: u64,
}

#[derive(Debug)]
enum State {
    Body(BodyDecoder),
    Failed(ResponseFault),
    Head,
    Idle,
    Over,
    UntilClose,
}

/// How far one step came.
enum Step {
    Consumed(usize),
    Next(usize, ClientNext),
    Ended(usize),
}

impl ClientConnection {
    /// A fresh connection.
    #[must_use]
    pub fn new(limits: ResponseLimits) -> Self {
        Self {
            limits,
            state: State::Idle,
            upload: Upload::Ended,
            method: Method::Get,
            last: false,
            started: false,
            interim_count: 0,
            scanned_bytes: 0,
            body_bytes: 0,
        }
    }

    /// Sets the limits for the response that is not complete yet, and those to come.
    pub fn set_limits(&mut self, limits: ResponseLimits) {
        self.limits = limits;
    }

    /// Appends a request to `output` and expects its response. If the request's body is streamed,
    /// [`push_body`](Self::push_body) and [`end_body`](Self::end_body) follow.
    ///
    /// # Panics
    ///
    /// If the response to another request is not complete, or the connection must be closed.
    pub fn send(&mut self, request: &PreparedRequest, output: &mut Output) {
        assert!(
            matches!(self.state, State::Idle),
            "a request is sent on a connection that is not idle"
        );
        request.write(output);
        self.state = State::Head;
        self.upload = request.upload();
        self.method = request.method();
        self.last = request.is_last();
        self.started = false;
        self.interim_count = 0;
        self.scanned_bytes = 0;
        self.body_bytes = 0;
    }

    /// Appends a piece of the request's body, framed, to `output`.
    ///
    /// # Errors
    ///
    /// [`UploadError::NoBody`], [`UploadError::TooLong`]; then nothing was appended.
    pub fn push_body(&mut self, piece: &[u8], output: &mut Output) -> Result<(), UploadError> {
        match &mut self.upload {
            Upload::Ended => return Err(UploadError::NoBody),
            // An empty chunk would be the last one.
            Upload::Chunked if piece.is_empty() => {}
            Upload::Chunked => output.push_with(|buf| {
                write_hex(buf, piece.len());
                buf.extend_from_slice(b"\r\n");
                buf.extend_from_slice(piece);
                buf.extend_from_slice(b"\r\n");
            }),
            Upload::Length(left) => {
                *left = left
                    .checked_sub(piece.len() as u64)
                    .ok_or(UploadError::TooLong)?;
                output.push(piece);
            }
        }
        Ok(())
    }

    /// Ends the request's body.
    ///
    /// # Errors
    ///
    /// [`UploadError::NoBody`], [`UploadError::TooShort`].
    pub fn end_body(&mut self, output: &mut Output) -> Result<(), UploadError> {
        match self.upload {
            Upload::Ended => return Err(UploadError::NoBody),
            Upload::Chunked => output.push(b"0\r\n\r\n"),
            Upload::Length(0) => {}
            Upload::Length(_) => return Err(UploadError::TooShort),
        }
        self.upload = Upload::Ended;
        Ok(())
    }

    /// Whether a part of the request's body is still to be pushed.
    #[must_use]
    pub fn is_uploading(&self) -> bool {
        self.upload != Upload::Ended
    }

    /// Whether a request can be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether a byte of the current response has come.
    #[must_use]
    pub fn has_response_begun(&self) -> bool {
        self.started
    }

    /// Goes on with `input`: all bytes that were not consumed yet, in order. Once the input has
    /// ended, every later call must say so.
    ///
    /// [`Done`](ClientNext::Done) says [`Reuse::Close`] if either side said so, if the request's
    /// body has not ended, or if there are more bytes than the response: nobody asked for them. On
    /// an idle connection without input it is [`Read`](ClientNext::Read).
    ///
    /// # Errors
    ///
    /// If the response breaks the protocol or a limit; every later call answers with the same
    /// fault. The end of the input on an idle connection is [`ResponseFault::Closed`].
    pub fn advance<K: ResponseSink + ?Sized>(
        &mut self,
        input: Input<'_>,
        sink: &mut K,
    ) -> Result<ClientProgress, ResponseFault> {
        let result = self.advance_inner(input, sink);
        if let Err(fault) = result {
            self.state = State::Failed(fault);
        }
        result
    }

    fn advance_inner<K: ResponseSink + ?Sized>(
        &mut self,
        input: Input<'_>,
        sink: &mut K,
    ) -> Result<ClientProgress, ResponseFault> {
        let mut at = 0;
        loop {
            let rest = &input.bytes[at..];
            let step = match &self.state {
                State::Body(_) | State::UntilClose => self.body(rest, input.ended, sink)?,
                State::Failed(fault) => return Err(*fault),
                State::Head => self.head(rest, input.ended, sink)?,
                State::Idle if !rest.is_empty() => return Err(ResponseFault::Unsolicited),
                State::Idle | State::Over if input.ended => return Err(ResponseFault::Closed),
                State::Idle | State::Over => Step::Next(0, ClientNext::Read),
            };
            match step {
                Step::Consumed(count) => at += count,
                Step::Next(count, next) => {
                    let consumed = at + count;
                    return Ok(ClientProgress { consumed, next });
                }
                Step::Ended(count) => {
                    let consumed = at + count;
                    let is_all = consumed == input.bytes.len() && !input.ended;
                    let next = ClientNext::Done(self.finish(is_all));
                    return Ok(ClientProgress { consumed, next });
                }
            }
        }
    }

    fn finish(&mut self, is_all: bool) -> Reuse {
        if is_all && !self.last && self.upload == Upload::Ended {
            self.state = State::Idle;
            Reuse::Keep
        } else {
            self.state = State::Over;
            Reuse::Close
        }
    }

    /// Takes one head, interim or final.
    fn head<K: ResponseSink + ?Sized>(
        &mut self,
        input: &[u8],
        ended: bool,
        sink: &mut K,
    ) -> Result<Step, ResponseFault> {
        const BEGIN: &[u8] = b"HTTP/1.";
        self.started |= !input.is_empty();
        let window = &input[..input.len().min(self.limits.head_bytes)];
        let begin_len = BEGIN.len().min(window.len());
        if window[..begin_len] != BEGIN[..begin_len] {
            return Err(ResponseFault::NotHttp);
        }
        // Judged line by line, so that the cut of the input makes no difference.
        let fresh = &window[self.scanned_bytes.min(window.len())..];
        let Some(end) = memchr::memrchr(b'\n', fresh) else {
            return self.incomplete_head(window.len(), ended);
        };
        let lines = &window[..window.len() - fresh.len() + end + 1];
        let mut headers = [const { MaybeUninit::uninit() }; HEADER_COUNT_MAX];
        let headers = &mut headers[..self.limits.header_count.min(HEADER_COUNT_MAX)];
        let Some((len, judged, headers)) = head::parse(lines, headers, self.method)? else {
            return self.incomplete_head(window.len(), ended);
        };
        self.scanned_bytes = 0;
        let Some(status) = Status::new(judged.code) else {
            self.interim(judged.code)?;
            return Ok(Step::Consumed(len));
        };
        self.last |= !judged.persistent;
        self.begin_body(&judged)?;
        let head = ResponseHead {
            status,
            version: judged.version,
            headers,
            body_bytes: body_bytes(judged.framing),
        };
        let flow = sink.head(&head);
        if judged.framing == ResponseFraming::Tunnel {
            return Ok(Step::Next(len, ClientNext::Tunnel));
        }
        Ok(after(len, flow))
    }

    fn incomplete_head(&mut self, seen: usize, ended: bool) -> Result<Step, ResponseFault> {
        let limit_bytes = self.limits.head_bytes;
        if seen >= limit_bytes {
            return Err(ResponseFault::HeadTooLarge { limit_bytes });
        }
        if ended {
            return Err(if self.started {
                ResponseFault::Truncated
            } else {
                ResponseFault::Closed
            });
        }
        self.scanned_bytes = seen;
        Ok(Step::Next(0, ClientNext::Read))
    }

    /// Interim responses say nothing that matters here (RFC 9110 section 15.2).
    fn interim(&mut self, code: u16) -> Result<(), ResponseFault> {
        // Nothing but `Upgrade` can ask for it, which is never sent (section 15.2.2).
        if code == 101 {
            return Err(ResponseFault::Upgrade);
        }
        self.interim_count += 1;
        if self.interim_count > self.limits.interim_count {
            return Err(ResponseFault::TooManyInterim);
        }
        Ok(())
    }

    fn begin_body(&mut self, judged: &Judged) -> Result<(), ResponseFault> {
        if body_bytes(judged.framing).is_some_and(|length| length > self.limits.body_bytes) {
            return Err(self.body_too_large());
        }
        self.state = match judged.framing {
            ResponseFraming::Decoded(framing) => {
                State::Body(BodyDecoder::new(framing, self.limits.head_bytes))
            }
            ResponseFraming::Tunnel => State::Over,
            ResponseFraming::UntilClose => {
                self.last = true;
                State::UntilClose
            }
        };
        Ok(())
    }

    fn body<K: ResponseSink + ?Sized>(
        &mut self,
        input: &[u8],
        ended: bool,
        sink: &mut K,
    ) -> Result<Step, ResponseFault> {
        let State::Body(decoder) = &mut self.state else {
            return self.body_until_close(input, ended, sink);
        };
        let decoded = decoder.decode(input).map_err(|_| ResponseFault::Body)?;
        let (consumed, done) = (decoded.consumed, decoded.done);
        if !decoded.trailer.is_empty() {
            give_trailer(decoded.trailer, sink)?;
        }
        if !decoded.data.is_empty() {
            self.count_body(decoded.data.len())?;
            if sink.body(decoded.data) == Flow::Pause {
                // Also if it is the last piece: the end is told when the sink goes on.
                return Ok(Step::Next(consumed, ClientNext::Paused));
            }
        }
        if done {
            return Ok(Step::Ended(consumed));
        }
        if consumed > 0 {
            return Ok(Step::Consumed(consumed));
        }
        if ended {
            return Err(ResponseFault::Truncated);
        }
        Ok(Step::Next(0, ClientNext::Read))
    }

    fn body_until_close<K: ResponseSink + ?Sized>(
        &mut self,
        input: &[u8],
        ended: bool,
        sink: &mut K,
    ) -> Result<Step, ResponseFault> {
        if input.is_empty() {
            return Ok(if ended {
                Step::Ended(0)
            } else {
                Step::Next(0, ClientNext::Read)
            });
        }
        self.count_body(input.len())?;
        Ok(after(input.len(), sink.body(input)))
    }

    fn count_body(&mut self, count: usize) -> Result<(), ResponseFault> {
        self.body_bytes += count as u64;
        if self.body_bytes > self.limits.body_bytes {
            return Err(self.body_too_large());
        }
        Ok(())
    }

    fn body_too_large(&self) -> ResponseFault {
        ResponseFault::BodyTooLarge {
            limit_bytes: self.limits.body_bytes,
        }
    }
}

fn after(consumed: usize, flow: Flow) -> Step {
    match flow {
        Flow::Continue => Step::Consumed(consumed),
        Flow::Pause => Step::Next(consumed, ClientNext::Paused),
    }
}

fn body_bytes(framing: ResponseFraming) -> Option<u64> {
    match framing {
        ResponseFraming::Decoded(crate::body::Framing::Length(length)) => Some(length),
        _ => None,
    }
}

fn give_trailer<K: ResponseSink + ?Sized>(line: &[u8], sink: &mut K) -> Result<(), ResponseFault> {
    let colon = memchr::memchr(b':', line).ok_or(ResponseFault::Body)?;
    let name = str::from_utf8(&line[..colon]).map_err(|_| ResponseFault::Body)?;
    sink.trailer(name, trim_blanks(&line[colon + 1..]));
    Ok(())
}

fn write_hex(buf: &mut Vec<u8>, value: usize) {
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = (value >> (place * 4) & 0xf) as u8;
        buf.push(match digit {
            0..=9 => b'0' + digit,
            _ => b'a' + digit - 10,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_has_no_leading_zeros() {
        for value in [0, 1, 9, 10, 15, 16, 255, 256, 65_535, usize::MAX] {
            let mut buf = Vec::new();
            write_hex(&mut buf, value);
            assert_eq!(buf, format!("{value:x}").as_bytes());
        }
    }
}
