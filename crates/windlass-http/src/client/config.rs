//! What a client allows and for how long it waits.

use std::time::Duration;

/// Settings of an [`HttpClient`](super::HttpClient).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Connections to one origin at once; further requests to it wait. Default 16; 0 counts as 1.
    pub connections_per_origin: usize,
    /// Connections that are kept without a request, to all origins together; beyond it the one
    /// that was kept longest is closed. Default 64.
    pub idle_connections_max: usize,
    /// Requests that wait for a connection, of all origins together; beyond it sending is an
    /// error. Default 4096.
    pub queue_max: usize,
    /// Redirects that one request follows. With 0 they are responses like all others. Default 10.
    pub redirects_max: u8,
    /// Whether redirects may lead from `https` to `http`. Default: no.
    pub downgrade: Downgrade,
    /// The most that a server may send.
    pub limits: ResponseLimits,
    /// The longest body that is collected ([`HttpClient::send`](super::HttpClient::send)). Default
    /// 16 MiB. A body that is streamed has no limit but [`limits`](Self::limits).
    pub collected_bytes_max: u64,
    /// Times.
    pub timeouts: ClientTimeouts,
    /// The `User-Agent` of requests that have none; empty: none is sent. Must be a valid header
    /// value, else none is sent. Default `windlass/` and the version.
    pub user_agent: String,
    /// What TLS trusts and offers; by default the root certificates of Mozilla.
    #[cfg(feature = "client-tls")]
    pub tls: Option<std::sync::Arc<rustls::ClientConfig>>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connections_per_origin: 16,
            idle_connections_max: 64,
            queue_max: 4096,
            redirects_max: 10,
            downgrade: Downgrade::Refuse,
            limits: ResponseLimits::default(),
            collected_bytes_max: 16 * 1024 * 1024,
            timeouts: ClientTimeouts::default(),
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).to_owned(),
            #[cfg(feature = "client-tls")]
            tls: None,
        }
    }
}

/// Whether a redirect may lead from `https` to `http`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Downgrade {
    /// It may.
    Allow,
    /// It is an error.
    #[default]
    Refuse,
}

/// The most of each thing that a server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponseLimits {
    /// Status line and header lines together, of each interim response too, and the trailers of a
    /// chunked body with its chunk extensions. Default 64 KiB.
    pub head_bytes: usize,
    /// Header lines. Default 100; values above 128 count as 128.
    pub header_count: usize,
    /// Interim responses (1xx) before the final one. Default 16.
    pub interim_count: u32,
    /// The body. No limit by default.
    pub body_bytes: u64,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            header_count: 100,
            interim_count: 16,
            body_bytes: u64::MAX,
        }
    }
}

/// How long a client waits; `None` switches a limit off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientTimeouts {
    /// Making one connection: all addresses of the host, and the TLS handshake. Resolving its name
    /// does not count. Default 10 s.
    pub connect: Option<Duration>,
    /// During a request: since anything last came or was taken. While a response is paused by the
    /// program it does not run. Default 30 s.
    pub idle: Option<Duration>,
    /// A connection that is kept without a request is closed after this. Default 30 s: less than
    /// most servers wait.
    pub keep: Option<Duration>,
    /// The whole request, from [`send`](super::HttpClient::send) to the end of the response:
    /// waiting, resolving, connecting and redirects included. Default 5 min.
    pub request: Option<Duration>,
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            idle: Some(Duration::from_secs(30)),
            keep: Some(Duration::from_secs(30)),
            request: Some(Duration::from_secs(300)),
        }
    }
}
