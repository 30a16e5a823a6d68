//! Serves the files below a directory.
//!
//! A path is decoded once and checked segment by segment ([`path`]); then the kernel opens it
//! relative to the root and keeps the look-up inside ([`windlass::files`]). Length and times come
//! from the open descriptor. What was opened is kept for the next request for as long as the path
//! leads to the same file in the same state ([`lookup`]). Whatever cannot be served is `404`,
//! which tells nothing of what is there.
//!
//! Files are opened, described and sent on the driver's thread: that waits for the disk if the
//! kernel has neither the directory nor the content in memory. Listings, which may be long, are
//! made in the worker pool.
//!
//! Descriptors: one for each cached file that is longer than 16 KiB, and one for each file that
//! is being sent. A file that was deleted keeps its space on the disk until it is asked for again
//! or others push it out of the cache.
//!
//! Limit: a program that changes a file through a shared memory map changes its times only now
//! and then; the content of a short file may be late for as long.

mod answer;
mod cache;
mod conditional;
mod content_type;
mod listing;
mod lookup;
mod missing;
mod multipart;
mod options;
mod path;
mod range;
mod representation;

use std::io;
use std::path::Path;
use std::sync::Arc;

use windlass::files::{FileKind, Links, Root};

use self::cache::OpenFileCache;
use self::lookup::Lookup;
use self::missing::Missing;
use self::multipart::Boundaries;
pub use self::options::{Dotfiles, FileCache, FileOptionError, Listing, Precompressed};
use self::path::{BadPath, LookupPath, is_plain};
use self::representation::Representation;
use crate::handler::Handler;
use crate::negotiation::media_wish;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::status::Status;
use crate::syntax::is_value;

/// A [`Handler`] that serves the files below a directory.
///
/// `GET` and `HEAD`; conditions (RFC 9110 section 13) and ranges (section 14, up to 16 in one
/// request, more are ignored; those that overlap or touch are sent as one); redirects of
/// directories to their path with a slash; the index in them.
///
/// ```
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass_http::{HttpConfig, HttpService, Listing, Precompressed, StaticFiles};
///
/// let files = StaticFiles::new(".")?
///     .listing(Listing::On)
///     .precompressed(Precompressed::Siblings)
///     .cache_control("max-age=60")?;
/// let service = HttpService::new(files, HttpConfig::default());
/// # let _ = service;
/// # Ok(())
/// # }
/// # run().expect("the working directory can be opened");
/// ```
#[derive(Debug)]
pub struct StaticFiles {
    root: Arc<Root>,
    links: Links,
    dotfiles: Dotfiles,
    listing: Listing,
    precompressed: Precompressed,
    cache: FileCache,
    index: Vec<Box<[u8]>>,
    fallback: Option<Box<[u8]>>,
    cache_control: Option<Box<[u8]>>,
}

/// The open-file cache and scratch memory of one driver thread.
#[derive(Debug)]
pub struct StaticFilesLocal {
    path: LookupPath,
    cache: OpenFileCache,
    boundaries: Boundaries,
}

impl StaticFiles {
    /// Serves the directory at `path`.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(Root::open(path)?),
            links: Links::default(),
            dotfiles: Dotfiles::default(),
            listing: Listing::default(),
            precompressed: Precompressed::default(),
            cache: FileCache::default(),
            index: vec![b"index.html"[..].into()],
            fallback: None,
            cache_control: None,
        })
    }

    /// Sets which symbolic links are followed: by default those that stay within the root.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Sets whether names that begin with a dot are served: by default they are not.
    #[must_use]
    pub fn dotfiles(mut self, dotfiles: Dotfiles) -> Self {
        self.dotfiles = dotfiles;
        self
    }

    /// Sets whether directories without an index are listed: by default they are not.
    #[must_use]
    pub fn listing(mut self, listing: Listing) -> Self {
        self.listing = listing;
        self
    }

    /// Sets whether files that were compressed beforehand are sent in place of the originals: by
    /// default they are not.
    #[must_use]
    pub fn precompressed(mut self, precompressed: Precompressed) -> Self {
        self.precompressed = precompressed;
        self
    }

    /// Sets the bounds of the open-file cache of each driver thread.
    #[must_use]
    pub fn cache(mut self, cache: FileCache) -> Self {
        self.cache = cache;
        self
    }

    /// Sets what is sent for a directory: the first of these files that is there. By default
    /// `index.html`; none at all is allowed.
    ///
    /// # Errors
    ///
    /// [`FileOptionError::IndexName`].
    pub fn index<N: AsRef<[u8]>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, FileOptionError> {
        self.index = names.into_iter().map(|name| name.as_ref().into()).collect();
        let is_name = |name: &[u8]| is_plain(name) && !name.contains(&b'/');
        if self.index.iter().all(|name| is_name(name)) {
            Ok(self)
        } else {
            Err(FileOptionError::IndexName)
        }
    }

    /// Sets a file below the root that is sent, as `200`, in place of what is not there, as
    /// single-page applications need it: to clients that ask for `text/html` by name, for paths
    /// without an extension.
    ///
    /// # Errors
    ///
    /// [`FileOptionError::FallbackPath`].
    pub fn spa(mut self, path: impl AsRef<[u8]>) -> Result<Self, FileOptionError> {
        let path = path.as_ref();
        if !is_plain(path) {
            return Err(FileOptionError::FallbackPath);
        }
        self.fallback = Some(path.into());
        Ok(self)
    }

    /// Sets the value of `Cache-Control` of all files. By default there is none.
    ///
    /// # Errors
    ///
    /// [`FileOptionError::CacheControl`].
    pub fn cache_control(mut self, value: impl AsRef<[u8]>) -> Result<Self, FileOptionError> {
        let value = value.as_ref();
        if value.is_empty() || !is_value(value) {
            return Err(FileOptionError::CacheControl);
        }
        self.cache_control = Some(value.into());
        Ok(self)
    }

    /// Whether the fallback takes the place of what is not at the path of `request`.
    fn falls_back(&self, request: &Request<'_>) -> bool {
        let name = request.path().rsplit('/').next().unwrap_or_default();
        self.fallback.is_some() && !name.contains('.') && {
            let html = media_wish(request, "text", "html");
            html.by_name && html.weight > 0
        }
    }

    /// What is sent for a path that names a directory: its index.
    fn find_index(
        &self,
        lookup: &mut Lookup<'_>,
        path: &mut LookupPath,
        request: &Request<'_>,
    ) -> Result<Arc<Representation>, Missing> {
        for name in &self.index {
            path.enter(name);
            match lookup.find(path, request) {
                // A directory of that name is no index.
                Err(Missing::NotFound | Missing::Slash) => {}
                found => return found,
            }
        }
        path.leave();
        Err(Missing::NotFound)
    }
}

impl Handler for StaticFiles {
    type Local = StaticFilesLocal;

    fn local(&self) -> Self::Local {
        StaticFilesLocal {
            path: LookupPath::default(),
            cache: OpenFileCache::new(self.cache),
            boundaries: Boundaries::default(),
        }
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let StaticFilesLocal {
            path,
            cache,
            boundaries,
        } = local;
        match path.decode(request.path(), self.dotfiles) {
            Ok(()) => {}
            Err(BadPath::Hidden) => return Ok(response.respond(Missing::NotFound.answer())),
            Err(BadPath::Malformed) => {
                let answer = Response::text(Status::BAD_REQUEST, "the path is malformed");
                return Ok(response.respond(answer));
            }
        }
        let mut lookup = Lookup {
            site: self,
            cache,
            now: request.now(),
        };
        let mut found = if path.names_directory() {
            self.find_index(&mut lookup, path, request)
        } else {
            lookup.find(path, request)
        };
        if matches!(found, Err(Missing::NotFound)) {
            if self.listing == Listing::On
                && path.names_directory()
                && let Ok(directory) =
                    path.with_suffix("", |path| self.root.open_file(path, self.links))
                && directory.status.kind == FileKind::Directory
            {
                return Ok(listing::answer(
                    self,
                    directory,
                    path.relative(),
                    request,
                    response,
                ));
            }
            if let Some(fallback) = self
                .fallback
                .as_deref()
                .filter(|_| self.falls_back(request))
            {
                path.fall_back(fallback);
                found = lookup.find(path, request);
            }
        }
        match found {
            Ok(representation) => answer::answer(&representation, boundaries, request, response),
            Err(Missing::Slash) if !path.is_fallback() => redirect(request, response),
            Err(missing) => self.miss(missing, response),
        }
    }
}

impl StaticFiles {
    /// Says why there is no file, and what that depends on.
    fn miss(&self, missing: Missing, response: Responder<'_>) -> Result<Answered, ResponseError> {
        let answer = missing.answer();
        Ok(response.respond(match missing {
            Missing::NotAcceptable => answer.header("Vary", "Accept-Encoding")?,
            Missing::NotFound if self.fallback.is_some() => answer.header("Vary", "Accept")?,
            _ => answer,
        }))
    }
}

/// Redirects to the same path with a slash. Slashes at its start are made one: `//host` would be
/// another site.
fn redirect(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    let path = request.full_path().trim_start_matches('/');
    let (mark, query) = request.query().map_or(("", ""), |query| ("?", query));
    Ok(response
        .start(Status::MOVED_PERMANENTLY)
        .header_fmt("Location", format_args!("/{path}/{mark}{query}"))?
        .empty())
}
