//! Compression of answers on the fly (RFC 9110 section 8.4), as far as clients accept it.
//!
//! Whole bodies are compressed by a job in the worker pool while the connection waits, files read
//! there; streams piece by piece in the connection's thread, at a low level and with a small
//! window, and up to the last byte whenever the source has no more yet, so that events are not held
//! back. An answer that could be compressed has `Vary: Accept-Encoding` for every client. One that
//! is has a weak `ETag`, as its bytes depend on the level, and no `Accept-Ranges`.
//!
//! Memory: a job holds the compressed body and up to some MiB of window; a stream 1 MiB at most.

mod encoder;
mod fields;
mod negotiated;
mod source;

pub(crate) use self::negotiated::{Negotiated, negotiate};
use crate::content_coding::{AcceptedCodings, Coding};
use crate::request::Request;
use crate::status::Status;

/// Which answers are compressed, and how.
///
/// Those with a status from 200 to 299 other than 206, a `Content-Type` that stands for text, or
/// for what shrinks like it, and a body of a length in the bounds; and of these, those without
/// `Content-Encoding`, `Content-Range`, digest, or `Cache-Control: no-transform`.
///
/// # Security
///
/// The length of a compressed answer tells of its content. Where one holds a secret beside
/// something that an attacker chooses, the secret can be guessed from lengths piece by piece, also
/// through TLS (the attack called BREACH). So compression is off unless it is asked for, and
/// answers like that should have `Cache-Control: no-transform`.
///
/// ```
/// let mut config = windlass_http::HttpConfig::default();
/// let mut compression = windlass_http::Compression::default();
/// compression.brotli = None;
/// compression.bytes_min = 4096;
/// config.compression = Some(compression);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compression {
    /// The level of Brotli for whole bodies, up to 11; `None`: it is not used. Default 5.
    pub brotli: Option<u32>,
    /// The level of gzip for whole bodies, up to 9; `None`: it is not used. Default 6.
    pub gzip: Option<u32>,
    /// The level of Zstandard for whole bodies, from 1 to 19; `None`: it is not used. Default 6.
    pub zstd: Option<u32>,
    /// Shorter bodies are sent as they are. Default 1 KiB.
    pub bytes_min: u64,
    /// Longer bodies are sent as they are, unless they are streamed. Default 8 MiB.
    pub bytes_max: u64,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            brotli: Some(5),
            gzip: Some(6),
            zstd: Some(6),
            bytes_min: 1024,
            bytes_max: 8 * 1024 * 1024,
        }
    }
}

impl Compression {
    /// The coding for the answer to `request`.
    pub(crate) fn choose(&self, request: &Request<'_>) -> Coding {
        AcceptedCodings::parse(request)
            .by_preference()
            .find(|coding| *coding == Coding::Identity || self.level(*coding).is_some())
            .unwrap_or(Coding::Identity)
    }

    /// The level for whole bodies, if `coding` is used.
    fn level(&self, coding: Coding) -> Option<u32> {
        match coding {
            Coding::Brotli => self.brotli.map(|level| level.min(11)),
            Coding::Gzip => self.gzip.map(|level| level.min(9)),
            Coding::Identity => None,
            // Above it the window may be larger than clients must have (RFC 9659).
            Coding::Zstd => self.zstd.map(|level| level.clamp(1, 19)),
        }
    }

    /// Whether a body may be compressed of this length, unknown for a stream.
    fn fits(&self, status: Status, len: Option<u64>, is_stream: bool) -> bool {
        let full = !matches!(status, Status::PARTIAL_CONTENT) && status.has_body();
        full && status.code() < 300
            && len.is_none_or(|len| len >= self.bytes_min && (is_stream || len <= self.bytes_max))
    }
}
