//! A request's head as a handler sees it, borrowed from the input.

use std::any::Any;
use std::fmt;

use httparse::Header;
use windlass::session::{Now, Peer};

use crate::body::Framing;
use crate::head::Head;
use crate::known_heads::Field;
use crate::method::Method;

/// A protocol version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

impl Version {
    /// As on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// What a request's head tells of the length of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; 0 is no body.
    Known(u64),
    /// The body is chunked.
    Unknown,
}

/// The parts of a request target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Of the grammar of an authority, so ASCII.
    pub(crate) authority: Option<&'a [u8]>,
}

/// The header lines of a request: parsed, or known from before. Names and values are of the input,
/// for `'a`; where they lie in a known section is looked up in `'k`.
#[derive(Clone, Copy)]
pub(crate) enum HeaderLines<'a, 'k> {
    Known {
        section: &'a [u8],
        fields: &'k [Field],
    },
    Parsed(&'a [Header<'a>]),
}

impl<'a, 'k> HeaderLines<'a, 'k> {
    /// Names, which are tokens, and values in order.
    #[inline]
    fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a, 'k> {
        let (section, fields, headers): (&'a [u8], &'k [Field], &'a [Header<'a>]) = match self {
            Self::Known { section, fields } => (section, fields, &[]),
            Self::Parsed(headers) => (&[], &[], headers),
        };
        let known = fields
            .iter()
            .map(move |field| (field.name(section), field.value(section)));
        let parsed = headers
            .iter()
            .map(|header| (header.name.as_bytes(), header.value));
        known.chain(parsed)
    }

    /// The value of the first header called `name`, in any case.
    #[inline]
    pub(crate) fn header(self, name: &str) -> Option<&'a [u8]> {
        self.iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// The head of a request: it keeps to the grammar, its framing is understood.
///
/// Copy out what must live longer than the call.
pub struct Request<'a> {
    pub(crate) head: &'a Head<'a>,
    pub(crate) lines: HeaderLines<'a, 'a>,
    pub(crate) peer: &'a Peer,
    pub(crate) now: Now,
    /// What a job has found out about it.
    pub(crate) carried: Option<&'a (dyn Any + Send)>,
    /// What the routers on its way found in its path.
    pub(crate) route: Option<&'a Route<'a>>,
}

/// What a router found in a path.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    /// What the handler is given of the path.
    pub(crate) path: &'a str,
    /// Names and decoded values.
    pub(crate) params: &'a [(&'a str, &'a str)],
    /// What the router around this one found.
    pub(crate) outer: Option<&'a Self>,
}

impl<'a> Request<'a> {
    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The target as it came: `/a?b`, `http://host/a?b`.
    #[must_use]
    pub fn target(&self) -> &'a str {
        self.head.raw_target
    }

    /// The target's path, not decoded, printable ASCII; begins with a slash. For a handler that is
    /// nested in a [`Router`](crate::Router), what is behind its prefix.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.route.map_or(self.head.target.path, |route| route.path)
    }

    /// The target's path with the prefixes of all routers: what a redirect is relative to.
    #[must_use]
    pub fn full_path(&self) -> &'a str {
        self.head.target.path
    }

    /// The value of the parameter called `name` in the patterns of the routers that the request
    /// went through, decoded; the innermost, if there are several.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'a str> {
        self.params()
            .find_map(|(found, value)| (found == name).then_some(value))
    }

    /// Names and values of all parameters, those of the innermost router first.
    pub fn params(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        std::iter::successors(self.route, |route| route.outer)
            .flat_map(|route| route.params.iter().copied())
    }

    /// The request as a handler sees it that a router found.
    pub(crate) fn routed<'b>(&self, route: &'b Route<'b>) -> Request<'b>
    where
        'a: 'b,
    {
        Request {
            route: Some(route),
            ..*self
        }
    }

    /// What follows the first question mark of the target, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.head.target.query
    }

    /// Host and optional port that the request is for: that of an absolute target, else the
    /// `Host` header (RFC 9112 section 3.3). Only an HTTP/1.0 request can be without.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.head
            .target
            .authority
            .and_then(|authority| str::from_utf8(authority).ok())
    }

    /// The protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// All header lines in order, names as they came, values without blanks around them.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.lines
            .iter()
            .map(|(name, value)| (str::from_utf8(name).unwrap_or_default(), value))
    }

    /// The value of the first header called `name`, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.lines.header(name)
    }

    /// The values of all headers called `name`, in any case and in order.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lines
            .iter()
            .filter(move |(key, _)| key.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// What is known of the length of the body before it came.
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        match self.head.framing {
            Framing::Chunked => BodyLength::Unknown,
            Framing::Length(bytes) => BodyLength::Known(bytes),
        }
    }

    /// The protocols that the client offers to go on in instead, a list (RFC 9110 section 7.8): the
    /// value of `Upgrade`, if `Connection` names it and the request is HTTP/1.1 without a body.
    #[must_use]
    pub fn upgrade(&self) -> Option<&'a str> {
        if !self.head.upgrades {
            return None;
        }
        self.header("upgrade")
            .and_then(|value| str::from_utf8(value).ok())
    }

    /// Whom the request came from.
    #[must_use]
    pub fn peer(&self) -> Peer {
        *self.peer
    }

    /// What the work of [`Responder::again_after`](crate::Responder::again_after) returned, if the
    /// handler looks at the request again and it was a `T`.
    #[must_use]
    pub fn carried<T: 'static>(&self) -> Option<&'a T> {
        self.carried?.downcast_ref()
    }

    /// The time of the call, as the driver gave it.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }
}

/// Without the headers, of which some are secrets (`Authorization`, `Cookie`).
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method())
            .field("target", &self.target())
            .field("version", &self.head.version)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
