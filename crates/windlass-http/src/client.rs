//! The HTTP/1.1 client: a sans-I/O connection, and a driver of it on the event loop.
//!
//! | to … | use |
//! | --- | --- |
//! | fetch something from a handler of a loop | [`HttpClient::get`], [`HttpClient::send`] |
//! | take a long body piece by piece, with back-pressure | [`HttpClient::stream`] and [`ResponseHandler`] |
//! | send a body that is made piece by piece | [`ClientRequest::body_stream`] and [`UploadSource`] |
//! | drive many connections by a loop of one's own | [`ClientConnection`] and [`PreparedRequest`] |
//!
//! # Strictness
//!
//! As on the server's side, laxness is how one answer gets taken for another: bare LF, folded
//! lines, a blank before the colon, `Content-Length` that is repeated, signed or in company of
//! `Transfer-Encoding`, a coding other than `chunked`, a body that ends early and bytes that nobody
//! asked for are errors ([`ResponseFault`]), and the connection is not used again (RFC 9112
//! sections 4, 5 and 6.3).
//!
//! # What the driver does
//!
//! ```text
//! send ─▶ queue of the origin ─▶ idle connection, or: resolve (pool) ─▶ connect ─▶ TLS
//!                                       ▲                                          │
//!                                       └───── response complete ◀── exchange ◀────┘
//! ```
//!
//! One request at a time on a connection (no pipelining); connections are kept per [`Origin`],
//! within the limits of [`ClientConfig`]. Requests that had to wait are sent in their order. A
//! handler is called exactly once, from the loop and never from within a call of the client,
//! unless its request is [cancelled](HttpClient::cancel): then it is dropped. Nothing of the client
//! is borrowed while code of the program runs: it may send, cancel, and drop the client.
//!
//! With the feature `client-tls`, `https` is spoken through rustls; without it, such a URL is an
//! error.

mod config;
mod connection;
mod core;
mod driver;
mod error;
mod exchange;
mod head;
mod link;
mod origin;
mod redirect;
mod request;
mod response;
mod sink;
mod transport;

pub use self::config::{ClientConfig, ClientTimeouts, Downgrade, ResponseLimits};
pub use self::connection::{
    ClientConnection, ClientNext, ClientProgress, Flow, ResponseSink, Reuse, UploadError,
};
pub use self::driver::{HttpClient, RequestId, ResponseHandler};
pub use self::error::{ClientError, ClientErrorKind, RedirectFault, RequestError, ResponseFault};
pub use self::head::ResponseHead;
pub use self::origin::{Origin, Scheme};
pub use self::request::{ClientRequest, PreparedRequest, Pulled, UploadSource};
pub use self::response::ClientResponse;
