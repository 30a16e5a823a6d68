//! What can be chosen about static files.

use std::error::Error;
use std::fmt;

/// Whether the content of a directory without an index is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listing {
    /// It is `404`.
    #[default]
    Off,
    /// As a page or, for a client that prefers it, as JSON.
    On,
}

/// Whether names that begin with a dot are served and listed.
///
/// `/.well-known/` is, either way: it is made to be public (RFC 8615).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dotfiles {
    /// They are `404`: `.git`, `.env` and the like got there by mistake.
    #[default]
    Hide,
    /// As all others. `.` and `..` are still `404`.
    Serve,
}

/// Whether files that were compressed beforehand are sent in place of the originals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precompressed {
    /// Never: `Accept-Encoding` is not looked at.
    #[default]
    Off,
    /// For `name`, `name.br`, `name.zst` or `name.gz` beside it is sent, whichever the client
    /// wants most. One that is older than the original (in whole seconds) is stale and ignored.
    /// Costs a look-up for each coding that the client accepts.
    Siblings,
}

/// The bounds of the open-file cache of each driver thread.
///
/// What is cached is what would be read again for each request: descriptor, headers, the content
/// of small files. Each use compares number, length and times of the file that the path leads to
/// with those of the cached one, so a change is never missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileCache {
    /// The most files. Those with their content in memory need no descriptor. Default 256; with 0
    /// nothing is cached.
    pub files_max: usize,
    /// The most memory, in bytes. Default 16 MiB.
    pub bytes_max: usize,
}

impl FileCache {
    /// No cache: each request opens its file.
    pub const OFF: Self = Self {
        files_max: 0,
        bytes_max: 0,
    };
}

impl Default for FileCache {
    fn default() -> Self {
        Self {
            files_max: 256,
            bytes_max: 16 * 1024 * 1024,
        }
    }
}

/// An option that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileOptionError {
    /// The value of `Cache-Control` is not a header value.
    CacheControl,
    /// The fallback is not the path of a file below the root.
    FallbackPath,
    /// The name of an index is empty, or has a slash or a NUL in it.
    IndexName,
}

impl fmt::Display for FileOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CacheControl => "set a Cache-Control that is not a header value",
            Self::FallbackPath => "set a fallback that is not a path below the root",
            Self::IndexName => "set an index that is not a file name",
        })
    }
}

impl Error for FileOptionError {}
