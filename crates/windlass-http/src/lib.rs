//! HTTP/1.1 as sans-I/O sessions: a server state machine, and static files.
//!
//! [`HttpService`] is a [`windlass::session::Service`]: any driver of `windlass` carries it. It
//! parses requests, asks a [`Handler`] for each answer and frames what the handler gives. Nothing
//! here reads a clock, holds a socket or starts a thread.
//!
//! ```
//! use windlass_http::{HttpConfig, HttpService, Request, Responder, Status};
//!
//! let service = HttpService::new(
//!     |request: &Request<'_>, response: Responder<'_>| {
//!         let head = response.start(Status::OK).header("Content-Type", "text/plain")?;
//!         Ok(head.body(format!("You asked for {}\n", request.path())))
//!     },
//!     HttpConfig::default(),
//! );
//! # let _ = service;
//! ```
//!
//! # Strictness
//!
//! Where laxness is how requests get smuggled, the answer is `400` and the connection ends: bare
//! CR or LF, folded header lines, a blank before the colon, `Content-Length` that is repeated,
//! signed or in company of `Transfer-Encoding`, codings that do not end in `chunked`, a missing or
//! repeated `Host` (RFC 9112 sections 2.2, 3.2, 5.1, 6.1, 6.3). After such an answer nothing more
//! is parsed. Heads are judged line by line, so that the answers do not depend on how the network
//! cut the bytes.
//!
//! # Bodies
//!
//! A handler that wants the body of a request asks for it: whole ([`Responder::collect`]) or piece
//! by piece ([`Responder::receive`], [`Responder::upload`]), with back-pressure. What it does not
//! want is parsed and dropped up to a limit, so that the next request is never built from its
//! bytes; beyond the limit the connection ends. Answers are bytes, files, what a job in the worker
//! pool returns, or streams ([`ResponseHead::stream`]), which other threads may feed
//! ([`body_channel`], [`ResponseHead::events`]); after [`Responder::upgrade`] the connection speaks
//! another protocol, such as that of the module `websocket`.

#![forbid(unsafe_code)]

mod access_log;
mod body;
mod body_sink;
mod body_source;
mod channel;
pub mod client;
#[cfg(feature = "compression")]
mod compression;
mod config;
mod content_coding;
mod credentials;
mod date;
mod error_pages;
mod events;
mod fixed;
mod handler;
mod head;
mod interop;
mod known_heads;
mod mailbox;
mod method;
pub mod middleware;
mod negotiation;
mod refusal;
mod request;
mod responder;
mod response;
mod router;
mod service;
mod session;
mod static_files;
mod status;
mod sync;
mod syntax;
mod trailers;
#[cfg(feature = "websocket")]
pub mod websocket;

pub use self::access_log::{AccessLog, LogFormat, UserNames};
pub use self::body_sink::{BodySink, Notify};
pub use self::body_source::{BodySource, BodyWriter, Produced};
pub use self::channel::{BodySender, ChannelBody, SendError, body_channel};
#[cfg(feature = "compression")]
pub use self::compression::Compression;
pub use self::config::{HttpConfig, Limits, Timeouts};
pub use self::error_pages::ErrorPages;
pub use self::events::{
    Broadcast, EncodedEvent, Event, EventError, EventSendError, EventSender, EventsConfig, Lag,
};
pub use self::fixed::FixedResponse;
pub use self::handler::Handler;
pub use self::interop::ConvertError;
pub use self::mailbox::TrySendError;
pub use self::method::{Method, Methods};
pub use self::request::{BodyLength, Request, Version};
pub use self::responder::{Answered, Responder, ResponseHead};
pub use self::response::{Piece, Response, ResponseError};
pub use self::router::{RouteError, Router, RouterLocal};
pub use self::service::{HttpLocal, HttpService};
pub use self::session::HttpSession;
pub use self::static_files::{
    Dotfiles, FileCache, FileOptionError, Listing, Precompressed, StaticFiles, StaticFilesLocal,
};
pub use self::status::Status;
pub use self::trailers::Trailers;

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
