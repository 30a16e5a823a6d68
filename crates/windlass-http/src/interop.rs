//! Conversions to and from the types of the [`http`] crate, which much else speaks.
//!
//! Requests are converted without their body, which a handler asks for
//! ([`Responder::collect`](crate::Responder::collect)) and puts in with
//! [`http::Request::map`]. Answers are converted whole. Extensions are dropped.
//!
//! ```
//! use bytes::Bytes;
//! use windlass_http::{Answered, Request, Responder, Response, ResponseError};
//!
//! /// Knows nothing of this crate.
//! fn echo(request: http::Request<Bytes>) -> http::Response<Bytes> {
//!     http::Response::new(request.into_body())
//! }
//!
//! fn handle(
//!     request: &Request<'_>,
//!     response: Responder<'_>,
//! ) -> Result<Answered, ResponseError> {
//!     let Ok(request) = request.to_http() else {
//!         let why = "the request target is not a URI";
//!         return Ok(response.respond(Response::text(windlass_http::Status::BAD_REQUEST, why)));
//!     };
//!     Ok(response.collect(move |body, response| {
//!         let answer = echo(request.map(|()| body));
//!         let answer = Response::try_from(answer).unwrap_or_else(|error| {
//!             Response::text(windlass_http::Status::INTERNAL_SERVER_ERROR, error)
//!         });
//!         Ok(response.respond(answer))
//!     }))
//! }
//! # let _ = handle;
//! ```

use std::error::Error;
use std::fmt;

use bytes::Bytes;

use crate::method::Method;
use crate::request::{Request, Version};
use crate::response::{Response, ResponseError, write_header};
use crate::status::Status;

/// Why a value has no counterpart.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// A header of a request is not one for the `http` crate, or its target is not a URI: that
    /// crate is stricter.
    Http(http::Error),
    /// The method is not known.
    Method,
    /// A header cannot be sent.
    Response(ResponseError),
    /// The status is not that of a final answer.
    Status,
    /// The version is not spoken.
    Version,
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http(_) => "convert a request to a type of the http crate",
            Self::Method => "convert a method that is not known",
            Self::Response(_) => "convert an answer with a header that cannot be sent",
            Self::Status => "convert a status that is not of a final answer",
            Self::Version => "convert a version that is not spoken",
        })
    }
}

impl Error for ConvertError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http(error) => Some(error),
            Self::Response(error) => Some(error),
            Self::Method | Self::Status | Self::Version => None,
        }
    }
}

impl Request<'_> {
    /// The request in the type of the [`http`] crate, without its body: the target as it came, also
    /// for a handler that a router nests, and all headers in order.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Http`] if the target has characters that browsers send and that crate takes
    /// for no URI.
    pub fn to_http(&self) -> Result<http::Request<()>, ConvertError> {
        let mut builder = http::Request::builder()
            .method(http::Method::from(self.method()))
            .uri(self.target())
            .version(self.version().into());
        for (name, value) in self.headers() {
            builder = builder.header(name, value);
        }
        builder.body(()).map_err(ConvertError::Http)
    }
}

/// Headers that belong to the session ([`ResponseError::ReservedHeader`]) are left out: they tell
/// of a connection that is not this one, and length and framing follow from the body. All others
/// are kept in order, those of one name together.
impl<B: Into<Bytes>> TryFrom<http::Response<B>> for Response {
    type Error = ConvertError;

    fn try_from(response: http::Response<B>) -> Result<Self, ConvertError> {
        let (parts, body) = response.into_parts();
        let mut converted = Self::new(parts.status.try_into()?);
        for (name, value) in &parts.headers {
            match write_header(&mut converted.header_lines, name.as_str(), value.as_bytes()) {
                Ok(()) | Err(ResponseError::ReservedHeader) => {}
                Err(error) => return Err(ConvertError::Response(error)),
            }
        }
        Ok(converted.body(body))
    }
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Connect => Self::CONNECT,
            Method::Delete => Self::DELETE,
            Method::Get => Self::GET,
            Method::Head => Self::HEAD,
            Method::Options => Self::OPTIONS,
            Method::Patch => Self::PATCH,
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Trace => Self::TRACE,
        }
    }
}

/// Fails with [`ConvertError::Method`].
impl TryFrom<&http::Method> for Method {
    type Error = ConvertError;

    fn try_from(method: &http::Method) -> Result<Self, ConvertError> {
        Self::from_name(method.as_str()).ok_or(ConvertError::Method)
    }
}

impl From<Status> for http::StatusCode {
    fn from(status: Status) -> Self {
        Self::from_u16(status.code()).expect("codes from 200 to 599 are status codes")
    }
}

/// Fails with [`ConvertError::Status`].
impl TryFrom<http::StatusCode> for Status {
    type Error = ConvertError;

    fn try_from(status: http::StatusCode) -> Result<Self, ConvertError> {
        Self::new(status.as_u16()).ok_or(ConvertError::Status)
    }
}

impl From<Version> for http::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::HTTP_10,
            Version::Http11 => Self::HTTP_11,
        }
    }
}

/// Fails with [`ConvertError::Version`].
impl TryFrom<http::Version> for Version {
    type Error = ConvertError;

    fn try_from(version: http::Version) -> Result<Self, ConvertError> {
        match version {
            http::Version::HTTP_10 => Ok(Self::Http10),
            http::Version::HTTP_11 => Ok(Self::Http11),
            _ => Err(ConvertError::Version),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::response::Body;

    #[test]
    fn methods_statuses_and_versions_survive_both_ways() {
        for method in Method::ALL {
            let converted = http::Method::from(method);
            assert_eq!(converted.as_str(), method.name());
            assert_eq!(Method::try_from(&converted).ok(), Some(method));
        }
        let unknown = http::Method::from_bytes(b"BREW").expect("a token");
        assert!(matches!(
            Method::try_from(&unknown),
            Err(ConvertError::Method)
        ));
        for code in 200..600 {
            let status = Status::new(code).expect("final");
            assert_eq!(
                Status::try_from(http::StatusCode::from(status)).ok(),
                Some(status)
            );
        }
        let early = Status::try_from(http::StatusCode::EARLY_HINTS);
        assert!(matches!(early, Err(ConvertError::Status)));
        for version in [Version::Http10, Version::Http11] {
            assert_eq!(
                Version::try_from(http::Version::from(version)).ok(),
                Some(version)
            );
        }
        assert!(Version::try_from(http::Version::HTTP_2).is_err());
    }

    #[test]
    fn answer_keeps_repeated_headers_in_order_and_leaves_out_those_of_the_session() {
        let response = http::Response::builder()
            .status(201)
            .header("Set-Cookie", "a=1")
            .header("Content-Length", "99")
            .header("Transfer-Encoding", "chunked")
            .header("Connection", "close")
            .header("Date", "yesterday")
            .header("Set-Cookie", "b=2")
            .body("made")
            .expect("valid");
        let converted = Response::try_from(response).expect("valid");
        assert_eq!(converted.status(), Status::CREATED);
        assert_eq!(
            converted.header_lines,
            b"set-cookie: a=1\r\nset-cookie: b=2\r\n"
        );
        assert!(matches!(converted.body, Body::Bytes(body) if body == "made"));
    }

    #[test]
    fn answer_that_cannot_be_sent_is_an_error() {
        let mut response = http::Response::new("");
        *response.status_mut() = http::StatusCode::CONTINUE;
        assert!(matches!(
            Response::try_from(response),
            Err(ConvertError::Status)
        ));
        let mut response = http::Response::new("");
        let value = HeaderValue::from_bytes(b" blank").expect("valid there");
        response
            .headers_mut()
            .insert(HeaderName::from_static("x-a"), value);
        let error = Response::try_from(response).expect_err("a blank at an end");
        assert!(matches!(
            error,
            ConvertError::Response(ResponseError::HeaderValue)
        ));
        assert!(error.source().is_some());
    }
}
