//! An exchange: one request on its way, through retries and redirects, to its response.

use bytes::Bytes;
use http::HeaderMap;

use crate::client::driver::RequestId;
use crate::client::redirect;
use crate::client::request::{ClientRequest, RequestBody};
use crate::client::response::ClientResponse;
use crate::method::Method;
use crate::request::Version;
use crate::status::Status;

/// One request and what has come of it.
pub(super) struct Exchange<'l> {
    pub(super) id: RequestId,
    /// As it is to be sent next.
    pub(super) request: ClientRequest<'l>,
    pub(super) delivery: Delivery,
    pub(super) incoming: Incoming,
    /// Redirects followed.
    pub(super) redirects: u8,
    /// Whether it was sent again already, after a kept connection had closed.
    pub(super) retried: bool,
}

/// How the program takes the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Collected,
    Streamed,
}

/// The response, as far as it has come.
pub(super) enum Incoming {
    Collected {
        status: Status,
        version: Version,
        headers: HeaderMap,
        body: Vec<u8>,
        trailers: HeaderMap,
    },
    /// A redirect's: only where it leads matters.
    Redirect {
        status: Status,
        location: Vec<u8>,
        body_bytes: usize,
    },
    /// Nothing yet.
    Awaited,
    Streamed {
        trailers: HeaderMap,
    },
}

/// What a request comes to, before it is told to its receiver.
pub(super) enum Answer {
    Collected(Box<ClientResponse>),
    Streamed(HeaderMap),
}

impl<'l> Exchange<'l> {
    pub(super) fn new(id: RequestId, request: ClientRequest<'l>, delivery: Delivery) -> Self {
        Self {
            id,
            request,
            delivery,
            incoming: Incoming::Awaited,
            redirects: 0,
            retried: false,
        }
    }

    /// Whether it may be sent again when a kept connection closed before it was answered
    /// (RFC 9110 section 9.2.2).
    pub(super) fn may_retry(&self) -> bool {
        let is_idempotent = matches!(
            self.request.method,
            Method::Delete
                | Method::Get
                | Method::Head
                | Method::Options
                | Method::Put
                | Method::Trace
        );
        !self.retried && is_idempotent && !matches!(self.request.body, RequestBody::Taken { .. })
    }

    /// Whether a response with this status, which has a `Location`, is not for the program.
    pub(super) fn follows(&self, status: Status, redirects_max: u8) -> bool {
        redirects_max > 0 && redirect::is_redirect(status)
    }

    /// The complete response; nothing if it was a redirect or has not begun.
    pub(super) fn into_answer(self) -> Option<Answer> {
        match self.incoming {
            Incoming::Collected {
                status,
                version,
                headers,
                body,
                trailers,
            } => Some(Answer::Collected(Box::new(ClientResponse {
                status,
                version,
                headers,
                body: Bytes::from(body),
                trailers,
                url: self.request.url,
            }))),
            Incoming::Streamed { trailers } => Some(Answer::Streamed(trailers)),
            Incoming::Awaited | Incoming::Redirect { .. } => None,
        }
    }
}
