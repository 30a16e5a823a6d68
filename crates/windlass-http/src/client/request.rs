//! Requests: as a value, and laid out for the wire.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;
use windlass::session::Output;

use crate::client::error::RequestError;
use crate::client::origin::Origin;
use crate::method::Method;
use crate::syntax::is_value;

/// A request that owns its parts; `'l` is how long the source of a streamed body lives.
///
/// ```
/// # use windlass_http::client::{ClientRequest, RequestError};
/// # fn run() -> Result<ClientRequest<'static>, RequestError> {
/// Ok(ClientRequest::post("http://example.com/orders?new")?
///     .header("Content-Type", "application/json")?
///     .body(r#"{"count":1}"#))
/// # }
/// # assert!(run().is_ok());
/// ```
pub struct ClientRequest<'l> {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) origin: Origin,
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody<'l>,
    pub(super) timeout: Option<Duration>,
}

pub(super) enum RequestBody<'l> {
    Bytes(Bytes),
    /// There is none, which for some methods is said.
    None,
    Stream {
        source: Box<dyn UploadSource + 'l>,
        length: Option<u64>,
    },
    /// The source is in use, or used up.
    Taken {
        length: Option<u64>,
    },
}

/// Makes the body of a request piece by piece. Each closure of the right shape is one.
///
/// It is asked for a piece whenever the connection has little left to send, so that no more than
/// the output's low mark and one piece are held in memory.
pub trait UploadSource {
    /// Appends the next piece, of some KiB, to `piece`, which is empty.
    ///
    /// # Errors
    ///
    /// Ends the request with [`UploadSource`](super::ClientErrorKind::UploadSource); the connection is
    /// closed, so that the server can't take what it has for the whole.
    fn pull(&mut self, piece: &mut Vec<u8>) -> Result<Pulled, Box<dyn Error + Send + Sync>>;
}

impl<F> UploadSource for F
where
    F: FnMut(&mut Vec<u8>) -> Result<Pulled, Box<dyn Error + Send + Sync>>,
{
    fn pull(&mut self, piece: &mut Vec<u8>) -> Result<Pulled, Box<dyn Error + Send + Sync>> {
        self(piece)
    }
}

/// Whether a body goes on after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// That was all.
    End,
    /// There is more. Without a piece it is taken for [`Pending`](Self::Pending).
    More,
    /// There will be more: the source is asked again after
    /// [`HttpClient::resume`](super::HttpClient::resume).
    Pending,
}

impl<'l> ClientRequest<'l> {
    /// A request of `method` for `url`, without headers and body.
    ///
    /// # Errors
    ///
    /// [`RequestError::Url`] and those of [`Origin::new`].
    pub fn new(method: Method, url: &str) -> Result<Self, RequestError> {
        let url = Url::parse(url).map_err(RequestError::Url)?;
        let origin = Origin::new(&url)?;
        Ok(Self {
            method,
            url,
            origin,
            headers: HeaderMap::new(),
            body: RequestBody::None,
            timeout: None,
        })
    }

    /// A `GET` request for `url`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn get(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::Get, url)
    }

    /// A `POST` request for `url`, without a body as yet.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn post(url: &str) -> Result<Self, RequestError> {
        Self::new(Method::Post, url)
    }

    /// Adds a header. `Host` replaces that of the URL, until a redirect leads to another origin.
    ///
    /// # Errors
    ///
    /// [`RequestError::HeaderName`], [`RequestError::HeaderValue`],
    /// [`RequestError::ReservedHeader`].
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, RequestError> {
        let value = value.as_ref();
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| RequestError::HeaderName)?;
        if RESERVED.contains(&name.as_str()) {
            return Err(RequestError::ReservedHeader);
        }
        if !is_value(value) {
            return Err(RequestError::HeaderValue);
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| RequestError::HeaderValue)?;
        if name == header::HOST {
            self.headers.insert(name, value);
        } else {
            self.headers.append(name, value);
        }
        Ok(self)
    }

    /// Sets the body to bytes.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = RequestBody::Bytes(bytes.into());
        self
    }

    /// Sets the body to what `source` makes, sent as it is made: in chunks if its `length` in bytes
    /// is not known. It cannot be sent twice, so that a redirect which asks for that fails.
    #[must_use]
    pub fn body_stream(mut self, source: impl UploadSource + 'l, length: Option<u64>) -> Self {
        self.body = RequestBody::Stream {
            source: Box::new(source),
            length,
        };
        self
    }

    /// Sets the time of the whole request, in place of
    /// [`ClientTimeouts::request`](super::ClientTimeouts::request).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Lays the request out for a [`ClientConnection`](super::ClientConnection), as often as it is
    /// to be sent. Of a streamed body the head only: the pieces are pushed.
    #[must_use]
    pub fn prepare(&self) -> PreparedRequest {
        self.prepare_with("")
    }

    pub(super) fn prepare_with(&self, user_agent: &str) -> PreparedRequest {
        let mut bytes = Vec::with_capacity(256);
        self.write_head(&mut bytes, user_agent);
        let mut shared = Bytes::new();
        match &self.body {
            RequestBody::Bytes(body) if body.len() <= COPY_BYTES_MAX => {
                bytes.extend_from_slice(body);
            }
            RequestBody::Bytes(body) => shared = body.clone(),
            _ => {}
        }
        let upload = match &self.body {
            RequestBody::Bytes(_) | RequestBody::None => Upload::Ended,
            RequestBody::Stream { length, .. } | RequestBody::Taken { length } => {
                length.map_or(Upload::Chunked, Upload::Length)
            }
        };
        PreparedRequest {
            bytes,
            shared,
            method: self.method,
            upload,
            last: false,
        }
    }

    fn write_head(&self, buf: &mut Vec<u8>, user_agent: &str) {
        self.write_request_line(buf);
        let mut line = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                buf.extend_from_slice(part);
            }
        };
        match self.headers.get(header::HOST) {
            Some(host) => line("Host", host.as_bytes()),
            None => line("Host", self.origin.host_value().as_bytes()),
        }
        if !self.headers.contains_key(header::USER_AGENT)
            && !user_agent.is_empty()
            && is_value(user_agent.as_bytes())
        {
            line("User-Agent", user_agent.as_bytes());
        }
        for (name, value) in &self.headers {
            if name != header::HOST {
                line(name.as_str(), value.as_bytes());
            }
        }
        match &self.body {
            RequestBody::Bytes(bytes) => {
                line("Content-Length", bytes.len().to_string().as_bytes());
            }
            // RFC 9110 section 8.6: said where the method expects a body.
            RequestBody::None => {
                if matches!(self.method, Method::Patch | Method::Post | Method::Put) {
                    line("Content-Length", b"0");
                }
            }
            RequestBody::Stream { length, .. } | RequestBody::Taken { length } => match length {
                Some(length) => line("Content-Length", length.to_string().as_bytes()),
                None => line("Transfer-Encoding", b"chunked"),
            },
        }
        buf.extend_from_slice(b"\r\n");
    }

    /// RFC 9112 section 3.2: the authority for CONNECT, else path and query.
    fn write_request_line(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(self.method.name().as_bytes());
        buf.push(b' ');
        if self.method == Method::Connect {
            let host = self.origin.host();
            buf.extend_from_slice(format!("{host}:{}", self.origin.port()).as_bytes());
        } else {
            buf.extend_from_slice(self.url.path().as_bytes());
            if let Some(query) = self.url.query() {
                buf.push(b'?');
                buf.extend_from_slice(query.as_bytes());
            }
        }
        buf.extend_from_slice(b" HTTP/1.1\r\n");
    }
}

impl fmt::Debug for ClientRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRequest")
            .field("method", &self.method)
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

/// What frames messages and rules connections is not the program's to say.
const RESERVED: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A body up to this size is copied along with the head; a longer one is shared.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// What is still to be sent of a streamed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upload {
    Chunked,
    Ended,
    Length(u64),
}

/// A request laid out once, to be sent as often as wanted, on any connection to its origin.
#[derive(Clone)]
pub struct PreparedRequest {
    /// The head, and the body if it is short.
    bytes: Vec<u8>,
    /// A long body.
    shared: Bytes,
    method: Method,
    upload: Upload,
    last: bool,
}

/// Without its bytes, in which secrets may stand (`Authorization`, `Cookie`).
impl fmt::Debug for PreparedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedRequest")
            .field("method", &self.method)
            .field("len_bytes", &self.len_bytes())
            .field("upload", &self.upload)
            .finish_non_exhaustive()
    }
}

impl PreparedRequest {
    /// The same with `Connection: close`: the connection carries no further request.
    #[must_use]
    pub fn closing(mut self) -> Self {
        if !self.last {
            self.last = true;
            let line_end = memchr::memchr(b'\n', &self.bytes).map_or(0, |at| at + 1);
            let line = *b"Connection: close\r\n";
            self.bytes.splice(line_end..line_end, line);
        }
        self
    }

    /// How many bytes it is on the wire, without a streamed body.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.shared.len()
    }

    pub(super) fn write(&self, output: &mut Output) {
        output.push(&self.bytes);
        if !self.shared.is_empty() {
            output.push_shared(self.shared.clone());
        }
    }

    pub(super) fn method(&self) -> Method {
        self.method
    }

    pub(super) fn upload(&self) -> Upload {
        self.upload
    }

    pub(super) fn is_last(&self) -> bool {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(request: &ClientRequest<'_>, user_agent: &str) -> String {
        let mut output = Output::default();
        request.prepare_with(user_agent).write(&mut output);
        let mut text = Vec::new();
        while let Some(windlass::session::Front::Bytes(bytes)) = output.front() {
            text.extend_from_slice(bytes);
            let len = bytes.len() as u64;
            output.advance(len);
        }
        String::from_utf8(text).expect("ASCII")
    }

    #[test]
    fn head_has_target_host_agent_headers_and_framing() {
        let request = ClientRequest::post("http://a:81/b c?d=\"e\"#f")
            .expect("valid")
            .header("X-A", "1")
            .expect("valid")
            .body("xyz");
        assert_eq!(
            wire(&request, "w/1"),
            "POST /b%20c?d=%22e%22 HTTP/1.1\r\nHost: a:81\r\nUser-Agent: w/1\r\nx-a: 1\r\n\
             Content-Length: 3\r\n\r\nxyz"
        );
        let plain = ClientRequest::get("http://[::1]").expect("valid");
        assert_eq!(wire(&plain, ""), "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    }

    #[test]
    fn own_host_and_agent_replace_the_defaults() {
        let request = ClientRequest::get("http://a/")
            .and_then(|request| request.header("Host", "b"))
            .and_then(|request| request.header("user-agent", "mine"))
            .expect("valid");
        assert_eq!(
            wire(&request, "w"),
            "GET / HTTP/1.1\r\nHost: b\r\nuser-agent: mine\r\n\r\n"
        );
    }

    #[test]
    fn body_framing_is_told_where_a_body_is_expected() {
        let source = |_: &mut Vec<u8>| Ok(Pulled::End);
        let put = ClientRequest::new(Method::Put, "http://a/").expect("valid");
        assert!(wire(&put, "").contains("Content-Length: 0\r\n"));
        let chunked = ClientRequest::post("http://a/").expect("valid");
        let chunked = chunked.body_stream(source, None);
        assert!(wire(&chunked, "").ends_with("Transfer-Encoding: chunked\r\n\r\n"));
        let sized = ClientRequest::post("http://a/").expect("valid");
        let sized = sized.body_stream(source, Some(5));
        assert!(wire(&sized, "").ends_with("Content-Length: 5\r\n\r\n"));
    }

    #[test]
    fn pf28_headers_that_would_break_the_head_are_refused() {
        let request = || ClientRequest::get("http://a/").expect("valid");
        for (name, value, error) in [
            ("", "v", RequestError::HeaderName),
            ("a b", "v", RequestError::HeaderName),
            ("a\r\nb", "v", RequestError::HeaderName),
            ("a", "v\r\nx: y", RequestError::HeaderValue),
            ("a", " v", RequestError::HeaderValue),
            ("a", "v\0", RequestError::HeaderValue),
            ("Content-Length", "1", RequestError::ReservedHeader),
            ("Transfer-encoding", "x", RequestError::ReservedHeader),
            ("connection", "close", RequestError::ReservedHeader),
        ] {
            assert_eq!(request().header(name, value).err(), Some(error), "{name:?}");
        }
    }

    #[test]
    fn closing_says_so_once() {
        let request = ClientRequest::get("http://a/").expect("valid").prepare();
        let closing = request.closing().closing();
        assert_eq!(
            closing.bytes,
            b"GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n"
        );
    }

    #[test]
    fn debugging_shows_no_secret() {
        let request = ClientRequest::get("http://a/")
            .expect("valid")
            .header("Authorization", "Basic c2VjcmV0")
            .expect("valid");
        let shown = format!("{request:?} {:?}", request.prepare());
        let as_numbers = format!("{:?}", b"c2VjcmV0");
        assert!(!shown.contains("c2VjcmV0"), "{shown}");
        assert!(
            !shown.contains(as_numbers.trim_matches(['[', ']'])),
            "{shown}"
        );
    }
}
