//! A response as a value, with its body collected.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::client::head::ResponseHead;
use crate::request::Version;
use crate::status::Status;

/// A complete response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientResponse {
    /// The status.
    pub status: Status,
    /// The version that the server speaks.
    pub version: Version,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, free of its framing. A content coding (`gzip`) is left as it is.
    pub body: Bytes,
    /// Fields that came after the body; not to be taken for headers (RFC 9110 section 6.5.1).
    pub trailers: HeaderMap,
    /// Whence it came: after redirects not the URL that was asked first.
    pub url: Url,
}

impl ClientResponse {
    /// The value of the first header of this name, if there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// The headers of `head`, owned.
pub(super) fn owned_headers(head: &ResponseHead<'_>) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(head.headers.len());
    for (name, value) in head.headers() {
        append(&mut map, name, value);
    }
    map
}

/// Appends a field of a message that was parsed: its grammar is that of the map, so that nothing
/// is left out.
pub(super) fn append(map: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (
        HeaderName::from_bytes(name.as_bytes()),
        HeaderValue::from_bytes(value),
    ) {
        map.append(name, value);
    }
}
