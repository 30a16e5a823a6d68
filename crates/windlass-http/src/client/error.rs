//! Errors of the client. Making a request: [`RequestError`]. A response that breaks the protocol:
//! [`ResponseFault`]. Everything that can come of a request: [`ClientError`].

use std::error::Error;
use std::net::SocketAddr;
use std::{fmt, io};

use windlass::event_loop::RegisterErrorKind;
use windlass::pool::SubmitErrorKind;

use crate::client::origin::Origin;

/// A request that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The name of a header is not a token (RFC 9110 section 5.1).
    HeaderName,
    /// The value of a header has a control byte, or a blank at an end (RFC 9110 section 5.5).
    HeaderValue,
    /// `CONNECT` is no request for a resource; only a [`ClientConnection`](super::ClientConnection)
    /// takes it.
    Method,
    /// The URL names no host.
    NoHost,
    /// The header belongs to the client: `Connection`, `Content-Length`, `Expect`, `Keep-Alive`,
    /// `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`.
    ReservedHeader,
    /// The URL's scheme is not `http` or `https`.
    Scheme,
    /// `https` needs the feature `client-tls`.
    TlsUnavailable,
    /// The URL is malformed.
    Url(url::ParseError),
    /// The URL carries a user name or a password, which are not sent: put them into a header.
    UserInfo,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeaderName => "set a request header whose name is not a token",
            Self::HeaderValue => "set a request header whose value has a forbidden byte",
            Self::Method => "send CONNECT: it is no request for a resource",
            Self::NoHost => "take a URL that names no host",
            Self::ReservedHeader => "set a request header that belongs to the client",
            Self::Scheme => "take a URL whose scheme is not http or https",
            Self::TlsUnavailable => "take an https URL without the feature client-tls",
            Self::Url(_) => "parse a URL",
            Self::UserInfo => "take a URL with a user name or a password in it",
        })
    }
}

impl Error for RequestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Url(source) => Some(source),
            _ => None,
        }
    }
}

/// How a response breaks the protocol (RFC 9112) or a limit. No byte after it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseFault {
    /// The chunks or trailers of the body are malformed, or more than the head's limit.
    Body,
    /// The body is longer than the limit.
    BodyTooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// The connection ended before the first byte of the response.
    Closed,
    /// `Content-Length` and `Transfer-Encoding` exclude each other.
    ConflictingLengths,
    /// `Content-Length` is repeated or not one decimal number.
    ContentLength,
    /// The head is longer than the limit.
    HeadTooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// A header line has no valid name before a colon.
    HeaderName,
    /// A header value has a forbidden byte, or is folded.
    HeaderValue,
    /// A line does not end in CR LF.
    LineEnd,
    /// These bytes do not begin a response of HTTP/1.0 or 1.1.
    NotHttp,
    /// The status is not from 100 to 599.
    Status,
    /// There are more header lines than the limit.
    TooManyHeaders,
    /// There are more interim responses (1xx) than the limit.
    TooManyInterim,
    /// The transfer coding is not `chunked`, or the version has none.
    TransferEncoding,
    /// The connection ended before the response did.
    Truncated,
    /// There are bytes that no request asked for.
    Unsolicited,
    /// `101` without having been asked to switch.
    Upgrade,
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("the chunks or trailers of the body are malformed"),
            Self::BodyTooLarge { limit_bytes } => {
                write!(f, "the body is longer than {limit_bytes} bytes")
            }
            Self::Closed => f.write_str("the connection ended before the response began"),
            Self::ConflictingLengths => {
                f.write_str("Content-Length and Transfer-Encoding exclude each other")
            }
            Self::ContentLength => f.write_str("Content-Length is not one decimal number"),
            Self::HeadTooLarge { limit_bytes } => {
                write!(f, "the head is longer than {limit_bytes} bytes")
            }
            Self::HeaderName => f.write_str("a header line has no valid name before a colon"),
            Self::HeaderValue => f.write_str("a header value has a forbidden byte"),
            Self::LineEnd => f.write_str("a line does not end in CR LF"),
            Self::NotHttp => f.write_str("this is not a response of HTTP/1.0 or 1.1"),
            Self::Status => f.write_str("the status is not from 100 to 599"),
            Self::TooManyHeaders => f.write_str("there are too many header lines"),
            Self::TooManyInterim => f.write_str("there are too many interim responses"),
            Self::TransferEncoding => f.write_str("the transfer coding is not chunked alone"),
            Self::Truncated => f.write_str("the connection ended before the response did"),
            Self::Unsolicited => f.write_str("there are bytes that no request asked for"),
            Self::Upgrade => f.write_str("the protocol was switched unasked"),
        }
    }
}

impl Error for ResponseFault {}

/// Why a redirect was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedirectFault {
    /// The body was streamed and cannot be sent again.
    BodyIsGone,
    /// From `https` to `http`, which [`ClientConfig::downgrade`](super::ClientConfig::downgrade)
    /// does not allow.
    Downgrade,
    /// `Location` is no URL that can be asked.
    Location(RequestError),
    /// More redirects than [`ClientConfig::redirects_max`](super::ClientConfig::redirects_max).
    TooMany,
}

/// Why there is no response.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The source of the body failed, or gave more or less than the length that was announced.
    UploadSource(Box<dyn Error + Send + Sync>),
    /// Too many requests wait.
    Busy {
        /// How many may.
        queue_max: usize,
    },
    /// No connection could be made; this is the error of the last address that was tried.
    Connect {
        /// Which address.
        addr: SocketAddr,
        /// The system's error: refused, out of descriptors, ….
        source: io::Error,
    },
    /// Connecting took longer than [`ClientTimeouts::connect`](super::ClientTimeouts::connect).
    ConnectTimeout,
    /// Nothing came, and nothing was taken, for
    /// [`ClientTimeouts::idle`](super::ClientTimeouts::idle).
    IdleTimeout,
    /// The loop takes no more events, or not this socket.
    Loop(RegisterErrorKind),
    /// A redirect could not be followed.
    Redirect(RedirectFault),
    /// The request cannot be made.
    Request(RequestError),
    /// No response within the time of the whole request
    /// ([`ClientTimeouts::request`](super::ClientTimeouts::request)).
    RequestTimeout,
    /// The host's name could not be resolved.
    Resolve(io::Error),
    /// The worker pool that resolves names takes no more jobs.
    Resolver(SubmitErrorKind),
    /// The response breaks the protocol or a limit.
    Response(ResponseFault),
    /// Reading or writing failed.
    Socket(io::Error),
    /// TLS: the certificate, the handshake, a record; or an end that was not announced.
    Tls(io::Error),
}

/// A request that got no response: whom it was for, and why.
#[derive(Debug)]
pub struct ClientError {
    origin: Option<Origin>,
    kind: ClientErrorKind,
}

impl ClientError {
    pub(super) fn new(origin: &Origin, kind: ClientErrorKind) -> Self {
        Self {
            origin: Some(origin.clone()),
            kind,
        }
    }

    /// Whom the request was for when it failed (after redirects not whom it was first for); nobody
    /// if there is no valid URL.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Why.
    #[must_use]
    pub fn kind(&self) -> &ClientErrorKind {
        &self.kind
    }
}

impl From<RequestError> for ClientError {
    fn from(error: RequestError) -> Self {
        Self {
            origin: None,
            kind: ClientErrorKind::Request(error),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ClientErrorKind as Kind;
        match &self.origin {
            Some(origin) => write!(f, "ask {origin}: ")?,
            None => f.write_str("make a request: ")?,
        }
        match &self.kind {
            Kind::UploadSource(_) => f.write_str("the source of the body failed"),
            Kind::Busy { queue_max } => write!(f, "{queue_max} requests wait already"),
            Kind::Connect { addr, .. } => write!(f, "connect to {addr}"),
            Kind::ConnectTimeout => f.write_str("connecting took too long"),
            Kind::IdleTimeout => f.write_str("the connection was silent for too long"),
            Kind::Loop(kind) => kind.fmt(f),
            Kind::Redirect(fault) => f.write_str(match fault {
                RedirectFault::BodyIsGone => "a redirect asks for a streamed body again",
                RedirectFault::Downgrade => "a redirect leads from https to http",
                RedirectFault::Location(_) => "a redirect leads to no URL that can be asked",
                RedirectFault::TooMany => "there are too many redirects",
            }),
            Kind::Request(error) => error.fmt(f),
            Kind::RequestTimeout => f.write_str("the request took too long"),
            Kind::Resolve(_) => f.write_str("resolve the host's name"),
            Kind::Resolver(kind) => kind.fmt(f),
            Kind::Response(fault) => fault.fmt(f),
            Kind::Socket(_) => f.write_str("the connection failed"),
            Kind::Tls(_) => f.write_str("TLS failed"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        use ClientErrorKind as Kind;
        match &self.kind {
            Kind::UploadSource(source) => Some(&**source),
            Kind::Connect { source, .. }
            | Kind::Resolve(source)
            | Kind::Socket(source)
            | Kind::Tls(source) => Some(source),
            Kind::Loop(RegisterErrorKind::Demultiplexer { source, .. }) => Some(source),
            Kind::Redirect(RedirectFault::Location(source)) => Some(source),
            // The text is that of the cause already.
            Kind::Request(error) => error.source(),
            _ => None,
        }
    }
}
