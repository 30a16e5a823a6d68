//! How a handler answers: straight into the connection's output, framed by us.
//!
//! A [`Responder`] is used up by answering, and only answering gives the [`Answered`] that a
//! handler must return. The head is gathered in scratch memory of the thread, so that an error
//! midway leaves no half answer behind. `Date`, `Content-Length` and `Connection` are written here
//! and nowhere else.

use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::Write;
use std::panic::UnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use windlass::session::{Job, Output, Session};

use crate::body::Framing;
use crate::body_sink::{BodySink, Collected, Taker, WithAnswer};
use crate::body_source::{BodySource, StreamFraming};
#[cfg(feature = "compression")]
use crate::compression::{Negotiated, negotiate};
use crate::config::HttpConfig;
#[cfg(feature = "compression")]
use crate::content_coding::Coding;
use crate::date::DATE_BYTES;
use crate::fixed::FixedResponse;
use crate::request::Version;
use crate::response::{Body, Piece, Response, ResponseError, check_name, write_header};
use crate::status::Status;
use crate::syntax::{is_token, is_value};
use crate::trailers::Trailers;

/// The one chance to answer a request.
///
/// Dropping it without an answer makes the answer `500`.
pub struct Responder<'a> {
    pub(crate) output: &'a mut Output,
    /// Empty: the head is gathered here.
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Header lines that whatever answer is given will have.
    pub(crate) extra: &'a mut Vec<u8>,
    pub(crate) date: &'a [u8; DATE_BYTES],
    pub(crate) config: &'a HttpConfig,
    pub(crate) framer: Framer,
    pub(crate) outcome: &'a mut Outcome,
}

/// An answer whose head is begun.
pub struct ResponseHead<'a> {
    pub(crate) responder: Responder<'a>,
    pub(crate) status: Status,
    /// Where in the scratch the handler's own header lines begin.
    #[cfg_attr(
        not(feature = "compression"),
        expect(dead_code, reason = "only compression looks at lines again")
    )]
    pub(crate) lines_start: usize,
}

/// The proof that a [`Responder`] was used.
#[derive(Debug)]
#[must_use = "the handler returns it"]
pub struct Answered(());

#[cfg(feature = "compression")]
impl Answered {
    /// Of an answer that someone else gives.
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// What became of a request.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    /// What takes the body of the request.
    pub(crate) taker: Option<Box<Taker>>,
    /// The most of a body that is taken, if not what is configured.
    pub(crate) body_bytes_max: Option<u64>,
    /// Where an answer goes that must not be sent, as the body it was to go with is refused.
    pub(crate) discarded: Option<Box<Output>>,
    /// Whether the head says that the connection ends, though the request would let it go on.
    pub(crate) closes: bool,
    pub(crate) logging: Logging,
}

/// Whether an answer is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Logging {
    #[default]
    Logged,
    Silent,
}

/// How a request is answered. What is rare is boxed: each request makes and drops one.
#[derive(Default)]
pub(crate) enum Kind {
    /// An answer was appended.
    Answered {
        status: Status,
        body_bytes: u64,
    },
    Late(Box<LateKind>),
    #[default]
    Nothing,
}

/// How a request is answered that is not at once.
pub(crate) enum LateKind {
    /// The handler looks at the request again after a job.
    Again(Job),
    Job(Job),
    /// When its body was taken.
    Receive,
    /// The head was appended; the body comes from a source.
    Stream {
        status: Status,
        source: Box<dyn BodySource>,
        framing: StreamFraming,
    },
    /// The body is announced as longer than is allowed.
    TooLarge,
    /// `101` was appended; another protocol follows.
    Upgrade(Box<dyn Session<Local = ()>>),
}

impl From<LateKind> for Kind {
    fn from(late: LateKind) -> Self {
        Self::Late(Box::new(late))
    }
}

/// What the request settles about the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framer {
    /// The request was HEAD: the header fields of GET, no body (RFC 9110 section 9.3.2).
    pub(crate) head_only: bool,
    pub(crate) version: Version,
    pub(crate) persistence: Persistence,
    /// As `persistence`, if the body of the request is read to its end.
    pub(crate) persistence_if_read: Persistence,
    /// Of the request.
    pub(crate) framing: Framing,
    /// Whether the client waits for `100 Continue`.
    pub(crate) expects_continue: bool,
    /// Whether the client offers to go on in another protocol.
    pub(crate) upgrades: bool,
    /// The coding of an answer that can be compressed.
    #[cfg(feature = "compression")]
    pub(crate) coding: Coding,
}

/// Whether and how the connection goes on after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It ends.
    Close,
    /// It goes on, as is usual in HTTP/1.1.
    Persistent,
    /// It goes on, which an HTTP/1.0 client must be told.
    PersistentHttp10,
}

impl Persistence {
    pub(crate) const fn line(self) -> &'static [u8] {
        match self {
            Self::Close => b"Connection: close\r\n",
            Self::Persistent => b"",
            Self::PersistentHttp10 => b"Connection: keep-alive\r\n",
        }
    }
}

/// Shared bytes up to this many are copied all the same: they then leave in one piece with the
/// head.
const COPY_BYTES_MAX: usize = 4096;

/// What stands between the status line and the date.
pub(crate) const DATE_NAME: &[u8] = b"\r\nDate: ";

impl<'a> Responder<'a> {
    /// Adds a header to whatever answer is given, also a prebuilt one and one that a job makes:
    /// for handlers that wrap another.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`].
    pub fn with_header(
        &mut self,
        name: &str,
        value: impl AsRef<[u8]>,
    ) -> Result<(), ResponseError> {
        write_header(self.extra, name, value.as_ref())
    }

    /// Begins an answer that is written piece by piece.
    #[must_use]
    pub fn start(self, status: Status) -> ResponseHead<'a> {
        let scratch = &mut *self.scratch;
        status.write_line(scratch);
        scratch.extend_from_slice(DATE_NAME);
        scratch.extend_from_slice(self.date);
        scratch.extend_from_slice(b"\r\n");
        scratch.extend_from_slice(self.extra);
        let lines_start = scratch.len();
        ResponseHead {
            responder: self,
            status,
            lines_start,
        }
    }

    /// Whether compression may have a say in an answer whose body has `len` bytes.
    pub(crate) fn may_compress(&self, len: u64) -> bool {
        #[cfg(feature = "compression")]
        if let Some(compression) = &self.config.compression {
            return (compression.bytes_min..=compression.bytes_max).contains(&len);
        }
        let _ = len;
        false
    }

    /// Answers with a prebuilt answer: the cheapest way. It is never compressed on the fly.
    #[inline]
    pub fn fixed(self, response: &FixedResponse) -> Answered {
        let output = self.outcome.output(self.output);
        let body_bytes = response.write(output, self.framer, self.date, self.extra);
        self.outcome.kind = Kind::Answered {
            status: response.status(),
            body_bytes,
        };
        Answered(())
    }

    /// Answers with a value. One made by [`Response::text`] gives way to the page that is
    /// configured for its status.
    pub fn respond(self, response: Response) -> Answered {
        let response = self.config.error_pages.dress(response);
        let head = self.start(response.status);
        head.responder
            .scratch
            .extend_from_slice(&response.header_lines);
        head.finish(response.body)
    }

    /// Answers with what `work` returns, once it has run in the pool. The connection's later
    /// requests wait, so that the order is kept.
    pub fn job<F>(self, work: F) -> Answered
    where
        F: FnOnce() -> Response + Send + UnwindSafe + 'static,
    {
        self.outcome.kind = LateKind::Job(Job::new(work)).into();
        Answered(())
    }

    /// Goes on in another protocol (RFC 9110 section 7.8): answers `101` with `headers`, and from
    /// then on all input and output is `session`'s.
    ///
    /// # Errors
    ///
    /// [`ResponseError::NoUpgrade`] if the client did not offer to
    /// ([`Request::upgrade`](crate::Request::upgrade) tells) or `protocol` is not a token; else as
    /// [`ResponseHead::header`]. Nothing was sent then.
    pub fn upgrade(
        self,
        protocol: &str,
        headers: &[(&str, &str)],
        session: impl Session<Local = ()>,
    ) -> Result<Answered, ResponseError> {
        if !self.framer.upgrades || !is_token(protocol.as_bytes()) {
            return Err(ResponseError::NoUpgrade);
        }
        let lines = &mut *self.scratch;
        write!(
            lines,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
        )
        .expect("writing to a Vec does not fail");
        lines.extend_from_slice(self.extra);
        for (name, value) in headers {
            write_header(lines, name, value.as_bytes())?;
        }
        lines.extend_from_slice(b"\r\n");
        self.outcome.output(self.output).push(lines);
        self.outcome.kind = LateKind::Upgrade(Box::new(session)).into();
        Ok(Answered(()))
    }

    /// Has `work` run in the pool, then has the handler look at the request again, which then
    /// [carries](crate::Request::carried) what `work` returned: for what must be known before it is
    /// clear who answers. If `work` panics or never runs, the answer is `500` and the connection
    /// ends. Only while [`Handler::handle`](crate::Handler::handle) looks at a request; afterwards
    /// the answer is `500`.
    pub fn again_after<T, F>(self, work: F) -> Answered
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + UnwindSafe + 'static,
    {
        self.outcome.kind = LateKind::Again(Job::new(work)).into();
        Answered(())
    }

    /// Keeps the answer out of the access log; it is counted all the same.
    #[must_use]
    pub fn unlogged(self) -> Self {
        self.outcome.logging = Logging::Silent;
        self
    }

    /// Sends an interim answer ahead of the final one, such as `103` (RFC 8297); `headers` are
    /// whole lines of names and values. Nothing is sent to an HTTP/1.0 client (RFC 9110 section
    /// 15.2).
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`]; [`ResponseError::NotInterim`] for `101` and for a code that is
    /// not of the class 1xx. Nothing was sent then.
    pub fn interim(&mut self, code: u16, headers: &[(&str, &str)]) -> Result<(), ResponseError> {
        if !(102..=199).contains(&code) {
            return Err(ResponseError::NotInterim);
        }
        let mut lines = Vec::new();
        for (name, value) in headers {
            write_header(&mut lines, name, value.as_bytes())?;
        }
        if self.framer.version == Version::Http11 {
            self.outcome.output(self.output).push_with(|buf| {
                write!(buf, "HTTP/1.1 {code} \r\n").expect("writing to a Vec does not fail");
                buf.extend_from_slice(&lines);
                buf.extend_from_slice(b"\r\n");
            });
        }
        Ok(())
    }

    /// Sets the most of a body that [`collect`](Self::collect), [`receive`](Self::receive) and
    /// [`upload`](Self::upload) take of this request; above it the answer is `413` and the
    /// connection ends. Default: [`Limits::body_bytes`](crate::Limits::body_bytes).
    #[must_use]
    pub fn body_limit(self, bytes_max: u64) -> Self {
        self.outcome.body_bytes_max = Some(bytes_max);
        self
    }

    /// Reads the whole body into memory, then has `answer` answer; at once if there is no body. A
    /// client that waits for `100 Continue` is told to go on.
    pub fn collect<F>(self, answer: F) -> Answered
    where
        F: FnOnce(Bytes, Responder<'_>) -> Result<Answered, ResponseError> + Send + 'static,
    {
        self.receive(Collected::default(), |body, _trailers, response| {
            answer(body.into_bytes(), response)
        })
    }

    /// Gives the body to `sink` piece by piece, then has `answer` answer with the sink. The call
    /// comes at once if there is no body.
    pub fn receive<S, F>(mut self, sink: S, answer: F) -> Answered
    where
        S: BodySink,
        F: FnOnce(S, &Trailers, Responder<'_>) -> Result<Answered, ResponseError> + Send + 'static,
    {
        if self.takes_body() {
            self.outcome.kind = LateKind::Receive.into();
            self.outcome.taker = Some(Box::new(Taker::Answering(Box::new(WithAnswer {
                sink,
                answer,
            }))));
        }
        Answered(())
    }

    /// Gives the body to `sink` piece by piece while the answer, which is to be given at once, may
    /// already be on its way: for protocols that talk both ways. A body that is announced as longer
    /// than is allowed is answered `413`, and not what is given then.
    #[must_use]
    pub fn upload<S: BodySink>(mut self, sink: S) -> Self {
        if self.takes_body() {
            self.framer.persistence = self.framer.persistence_if_read;
            self.outcome.taker = Some(Box::new(Taker::Beside(Box::new(sink))));
        } else {
            self.outcome.discarded = Some(Box::default());
        }
        self
    }

    /// Prepares for the body, or answers that it is too long.
    fn takes_body(&mut self) -> bool {
        let bytes_max = self
            .outcome
            .body_bytes_max
            .unwrap_or(self.config.limits.body_bytes);
        if matches!(self.framer.framing, Framing::Length(bytes) if bytes > bytes_max) {
            self.outcome.kind = LateKind::TooLarge.into();
            return false;
        }
        // Once only, though a sink may give way to another.
        if std::mem::take(&mut self.framer.expects_continue) {
            self.output.push(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        true
    }
}

impl Outcome {
    /// The job after which the handler wants to look at the request again, if it does.
    pub(crate) fn again(self) -> Result<Job, Self> {
        match self.kind {
            Kind::Late(kind) => match *kind {
                LateKind::Again(job) => Ok(job),
                kind => Err(Self {
                    kind: kind.into(),
                    ..self
                }),
            },
            kind => Err(Self { kind, ..self }),
        }
    }

    /// Where the answer goes: `output`, unless it is not to be sent.
    #[inline]
    fn output<'o>(&'o mut self, output: &'o mut Output) -> &'o mut Output {
        self.discarded.as_deref_mut().unwrap_or(output)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered { .. } => "Answered",
            Self::Late(_) => "Late",
            Self::Nothing => "Nothing",
        })
    }
}

impl fmt::Debug for Responder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("framer", &self.framer)
            .finish_non_exhaustive()
    }
}

impl ResponseHead<'_> {
    /// Adds a header.
    ///
    /// # Errors
    ///
    /// If the name is not a token, the value has a byte that no value may have, or the header is
    /// one that the session sets itself. Nothing was sent then, and a handler that returns the
    /// error makes the answer `500`.
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, ResponseError> {
        write_header(self.responder.scratch, name, value.as_ref())?;
        Ok(self)
    }

    /// Adds a header with a formatted value: `head.header_fmt("ETag", format_args!("\"{n}\""))`.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`].
    pub fn header_fmt(self, name: &str, value: Arguments<'_>) -> Result<Self, ResponseError> {
        check_name(name)?;
        let scratch = &mut *self.responder.scratch;
        scratch.extend_from_slice(name.as_bytes());
        scratch.extend_from_slice(b": ");
        let start = scratch.len();
        // Writing to a Vec fails only if the value's own Display does.
        scratch
            .write_fmt(value)
            .map_err(|_| ResponseError::HeaderValue)?;
        if !is_value(&scratch[start..]) {
            return Err(ResponseError::HeaderValue);
        }
        scratch.extend_from_slice(b"\r\n");
        Ok(self)
    }

    /// Answers with what `source` makes, piece by piece: chunked (RFC 9112 section 7.1), or to an
    /// HTTP/1.0 client up to the end of the connection.
    pub fn stream(self, source: impl BodySource) -> Answered {
        self.finish(Body::Stream {
            source: Box::new(source),
            len: None,
        })
    }

    /// Answers with the `len` bytes that `source` makes, piece by piece. If it makes fewer or more,
    /// the connection is reset.
    pub fn stream_sized(self, len: u64, source: impl BodySource) -> Answered {
        self.finish(Body::Stream {
            source: Box::new(source),
            len: Some(len),
        })
    }

    /// Answers without content.
    pub fn empty(self) -> Answered {
        self.body([])
    }

    /// Answers with a copy of `body`.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Answered {
        let body = body.as_ref();
        #[cfg(feature = "compression")]
        if self.may_compress(body.len()) {
            return self.finish(Body::Bytes(Bytes::copy_from_slice(body)));
        }
        let sends_body = self.finish_head(body.len() as u64);
        let Responder {
            output,
            scratch,
            outcome,
            ..
        } = self.responder;
        let output = outcome.output(output);
        output.push(scratch);
        if sends_body {
            output.push(body);
        }
        Answered(())
    }

    /// Answers with `body`, by reference if it is longer than a few KiB.
    pub fn shared(self, body: Bytes) -> Answered {
        self.finish(Body::Bytes(body))
    }

    /// Answers with `len` bytes of `file` from `offset` on. If the file turns out shorter, the
    /// driver ends the connection.
    pub fn file(self, file: Arc<File>, offset: u64, len: u64) -> Answered {
        self.finish(Body::File { file, offset, len })
    }

    /// Answers with `pieces`, one after the other. If a file turns out shorter than its piece, the
    /// driver ends the connection.
    pub fn pieces(self, pieces: Vec<Piece>) -> Answered {
        self.finish(Body::Pieces(pieces))
    }

    /// Adds header lines that were checked before, each with its line end.
    pub(crate) fn lines(self, lines: &[u8]) -> Self {
        self.responder.scratch.extend_from_slice(lines);
        self
    }

    fn finish(self, body: Body) -> Answered {
        #[cfg(feature = "compression")]
        if let Some(compression) = &self.responder.config.compression {
            return match negotiate(self, body, compression) {
                Negotiated::Answered(answered) => answered,
                Negotiated::Framed(head, body) => head.frame(body),
            };
        }
        self.frame(body)
    }

    /// Whether compression may have a say, by status and the length of the body.
    #[cfg(feature = "compression")]
    fn may_compress(&self, len: usize) -> bool {
        let compression = &self.responder.config.compression;
        compression.as_ref().is_some_and(|compression| {
            len as u64 >= compression.bytes_min || self.status == Status::NOT_MODIFIED
        })
    }

    fn frame(mut self, body: Body) -> Answered {
        let body = match body {
            Body::Stream { source, len } => return self.finish_stream(source, len),
            body => body,
        };
        let sends_body = self.finish_head(body.len());
        let Responder {
            output,
            scratch,
            outcome,
            ..
        } = self.responder;
        let output = outcome.output(output);
        output.push(scratch);
        if sends_body {
            match body {
                Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => output.push(&bytes),
                Body::Bytes(bytes) => output.push_shared(bytes),
                Body::File { file, offset, len } => output.push_file(file, offset, len),
                Body::Pieces(pieces) => pieces.into_iter().for_each(|piece| piece.push(output)),
                Body::Stream { .. } => unreachable!("a stream was begun above"),
            }
        }
        Answered(())
    }

    fn finish_stream(mut self, source: Box<dyn BodySource>, len: Option<u64>) -> Answered {
        if let Some(len) = len {
            if self.finish_head(len) {
                self.begin_stream(source, StreamFraming::Length(len));
            } else {
                self.push_head();
            }
            return Answered(());
        }
        if !self.status.has_body() {
            return self.empty();
        }
        let Responder {
            scratch,
            framer,
            outcome,
            ..
        } = &mut self.responder;
        let framing = if framer.version == Version::Http11 {
            scratch.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            StreamFraming::Chunked
        } else {
            framer.persistence = Persistence::Close;
            outcome.closes = true;
            StreamFraming::Close
        };
        scratch.extend_from_slice(framer.persistence.line());
        scratch.extend_from_slice(b"\r\n");
        if framer.head_only {
            self.push_head();
            self.responder.outcome.kind = Kind::Answered {
                status: self.status,
                body_bytes: 0,
            };
        } else {
            self.begin_stream(source, framing);
        }
        Answered(())
    }

    /// Answers HEAD where the length of the body is not known.
    #[cfg(feature = "compression")]
    pub(crate) fn finish_without_length(mut self) -> Answered {
        let Responder {
            scratch,
            framer,
            outcome,
            ..
        } = &mut self.responder;
        scratch.extend_from_slice(framer.persistence.line());
        scratch.extend_from_slice(b"\r\n");
        outcome.kind = Kind::Answered {
            status: self.status,
            body_bytes: 0,
        };
        self.push_head();
        Answered(())
    }

    fn push_head(&mut self) {
        let Responder {
            output,
            scratch,
            outcome,
            ..
        } = &mut self.responder;
        outcome.output(output).push(scratch);
    }

    fn begin_stream(&mut self, source: Box<dyn BodySource>, framing: StreamFraming) {
        self.push_head();
        let kind = LateKind::Stream {
            status: self.status,
            source,
            framing,
        };
        self.responder.outcome.kind = kind.into();
    }

    /// Ends the head; answers whether the body follows. A body given for a status that has none
    /// is dropped (RFC 9112 section 6.3).
    fn finish_head(&mut self, body_bytes: u64) -> bool {
        let Responder {
            scratch,
            framer,
            outcome,
            ..
        } = &mut self.responder;
        let has_body = self.status.has_body();
        if self.status.has_length() {
            write_content_length(scratch, if has_body { body_bytes } else { 0 });
        }
        scratch.extend_from_slice(framer.persistence.line());
        scratch.extend_from_slice(b"\r\n");
        let sends_body = has_body && !framer.head_only;
        outcome.kind = Kind::Answered {
            status: self.status,
            body_bytes: if sends_body { body_bytes } else { 0 },
        };
        sends_body
    }
}

impl fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

pub(crate) fn write_content_length(head: &mut Vec<u8>, length: u64) {
    write!(head, "Content-Length: {length}\r\n").expect("writing to a Vec does not fail");
}
