//! Filters: what looks at a request before its handler does.
//!
//! A [`Filter`] answers in the handler's place or lets the request pass, perhaps with headers
//! added to whatever the answer will be. [`Filtered`] puts one in front of a handler; a tuple of
//! filters is a filter that asks them in order, an [`Option`] one that may be absent.
//!
//! ```
//! use windlass_http::middleware::{Filtered, FixedHeaders};
//! use windlass_http::{HttpConfig, HttpService, Request, Responder, Response, Status};
//!
//! let mut headers = FixedHeaders::default();
//! headers.add("X-Content-Type-Options", "nosniff")?;
//! let handler = |_: &Request<'_>, response: Responder<'_>| {
//!     Ok(response.respond(Response::text(Status::OK, "hello")))
//! };
//! let service = HttpService::new(Filtered::new(headers, handler), HttpConfig::default());
//! # let _ = service;
//! # Ok::<(), windlass_http::ResponseError>(())
//! ```

#[cfg(feature = "basic-auth")]
mod basic_auth;
mod cors;
mod filter;
mod fixed_headers;
mod health;
#[cfg(feature = "basic-auth")]
mod users;

#[cfg(feature = "basic-auth")]
pub use self::basic_auth::{BasicAuth, BasicAuthLocal};
pub use self::cors::{Cors, CorsError};
pub use self::filter::{Filter, Filtered, FilteredLocal, Verdict};
pub use self::fixed_headers::FixedHeaders;
pub use self::health::{Health, HealthState};
#[cfg(feature = "basic-auth")]
pub use self::users::{BadEntry, Users, UsersError};
