//! Serves the files below a directory.
//!
//! A path is decoded once and checked segment by segment ([`path`]); then the kernel opens it
//! relative to the root and keeps the look-up inside ([`windlass::files`]). Length and times come
//! from the open descriptor. Whatever cannot be served is `404`, which tells nothing of what is
//! there; names that begin with a dot are never served.

mod conditional;
mod path;
mod range;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass::files::{FileKind, Links, OpenFile, Root};

use self::conditional::{Outcome, Validators};
use self::path::{BadPath, RelativePath};
use self::range::Range;
use crate::handler::Handler;
use crate::method::Method;
use crate::request::Request;
use crate::responder::{Answered, Responder, ResponseHead};
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// A file up to this size is copied into the output, to leave in one send with its head.
const COPY_BYTES_MAX: u64 = 16 * 1024;

/// A [`Handler`] that serves the files below a directory.
///
/// `GET` and `HEAD`; ranges (RFC 9110 section 14, one range), conditions (section 13), redirects
/// of directories to their path with a slash, `index.html` in them.
#[derive(Debug)]
pub struct StaticFiles {
    root: Root,
    links: Links,
    index: PathBuf,
}

/// Scratch memory of one driver thread.
#[derive(Debug, Default)]
pub struct StaticFilesLocal {
    path: Vec<u8>,
    content: Vec<u8>,
}

impl StaticFiles {
    /// Serves the directory at `path`.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let root = Root::open(path)?;
        Ok(Self {
            root,
            links: Links::WithinRoot,
            index: PathBuf::from("index.html"),
        })
    }

    /// Sets which symbolic links are followed: by default those that stay within the root.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Opens what `path` names; if it ends in a slash, the index of that directory.
    fn open(&self, path: &RelativePath<'_>) -> Result<OpenFile, Missing> {
        let file = if path.names_directory() {
            self.root
                .open_file(&path.as_path().join(&self.index), self.links)?
        } else {
            self.root.open_file(path.as_path(), self.links)?
        };
        match file.kind {
            FileKind::File => Ok(file),
            FileKind::Directory if !path.names_directory() => Err(Missing::Slash),
            FileKind::Directory | FileKind::Other => Err(Missing::NotFound),
        }
    }
}

impl Handler for StaticFiles {
    type Local = StaticFilesLocal;

    fn local(&self) -> Self::Local {
        StaticFilesLocal::default()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let StaticFilesLocal {
            path: decoded,
            content,
        } = local;
        let path = match RelativePath::decode(request.path(), decoded) {
            Ok(path) => path,
            Err(BadPath::Hidden) => return Ok(response.respond(Missing::NotFound.answer())),
            Err(BadPath::Malformed) => {
                let answer = Response::text(Status::BAD_REQUEST, "the path is malformed");
                return Ok(response.respond(answer));
            }
        };
        match self.open(&path) {
            Ok(file) => {
                let name = if path.names_directory() {
                    &self.index
                } else {
                    path.as_path()
                };
                send(file, content_type(name), content, request, response)
            }
            Err(Missing::Slash) => redirect(request, response),
            Err(missing) => Ok(response.respond(missing.answer())),
        }
    }
}

/// Why there is no file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The server's own trouble, which may pass.
    Busy,
    /// The server's own trouble.
    Failed,
    Forbidden,
    NotFound,
    /// A directory whose path lacks the slash at the end.
    Slash,
}

impl Missing {
    fn answer(self) -> Response {
        match self {
            Self::Busy => Response::text(Status::SERVICE_UNAVAILABLE, "try again later"),
            Self::Failed | Self::Slash => {
                Response::text(Status::INTERNAL_SERVER_ERROR, "the file cannot be read")
            }
            Self::Forbidden => Response::text(Status::FORBIDDEN, "the file is not public"),
            Self::NotFound => Response::text(Status::NOT_FOUND, "there is no such file"),
        }
    }
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind;
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        const ENXIO: i32 = 6;
        const ELOOP: i32 = 40;
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::PermissionDenied, _) => Self::Forbidden,
            // Out of the root, through a link that is refused, through a file, a socket.
            (
                ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::CrossesDevices
                | ErrorKind::InvalidFilename
                | ErrorKind::InvalidInput,
                _,
            )
            | (_, Some(ELOOP | ENXIO)) => Self::NotFound,
            (ErrorKind::WouldBlock | ErrorKind::OutOfMemory, _) | (_, Some(EMFILE | ENFILE)) => {
                Self::Busy
            }
            _ => Self::Failed,
        }
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

/// Sends `file`, a part of it, or why not.
fn send(
    file: OpenFile,
    content_type: ContentType,
    content: &mut Vec<u8>,
    request: &Request<'_>,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let validators = Validators::of(&file);
    match validators.judge(request) {
        Outcome::Failed => {
            let detail = "the file is not what the condition asks for";
            return Ok(response.respond(Response::text(Status::PRECONDITION_FAILED, detail)));
        }
        Outcome::NotModified => {
            return Ok(validators
                .write(response.start(Status::NOT_MODIFIED))?
                .empty());
        }
        Outcome::Send => {}
    }
    // A field that may stand once, RFC 9110 section 14.2: twice it is as if it were not there.
    let mut ranges = request.header_values("range");
    let range = match ranges.next().filter(|_| ranges.next().is_none()) {
        Some(value) if request.method() == Method::Get && validators.judge_range(request) => {
            Range::parse(value, file.len)
        }
        _ => Range::Whole,
    };
    let (status, offset, len) = match range {
        Range::Part { first, last } => (Status::PARTIAL_CONTENT, first, last - first + 1),
        Range::Unsatisfiable => {
            return Ok(response
                .start(Status::RANGE_NOT_SATISFIABLE)
                .header_fmt("Content-Range", format_args!("bytes */{}", file.len))?
                .empty());
        }
        Range::Whole => (Status::OK, 0, file.len),
    };
    let mut head = content_type.write(validators.write(response.start(status))?)?;
    head = head.header("Accept-Ranges", "bytes")?;
    if let Range::Part { first, last } = range {
        let value = format_args!("bytes {first}-{last}/{}", file.len);
        head = head.header_fmt("Content-Range", value)?;
    }
    // HEAD takes the second way: a segment that is not sent costs nothing.
    if len <= COPY_BYTES_MAX
        && request.method() != Method::Head
        && read_exactly(&file.file, offset, len, content)
    {
        return Ok(head.body(content));
    }
    Ok(head.file(Arc::new(file.file), offset, len))
}

/// Reads a short part of `file`. If that fails, the driver will find out the same, and end the
/// connection.
fn read_exactly(file: &File, offset: u64, len: u64, content: &mut Vec<u8>) -> bool {
    // At most COPY_BYTES_MAX.
    content.resize(len as usize, 0);
    file.read_exact_at(content, offset).is_ok()
}

/// A media type, and whether it is text.
#[derive(Clone, Copy, Debug)]
struct ContentType {
    name: &'static str,
    is_text: bool,
}

impl ContentType {
    fn write(self, head: ResponseHead<'_>) -> Result<ResponseHead<'_>, ResponseError> {
        let charset = if self.is_text { "; charset=utf-8" } else { "" };
        head.header_fmt("Content-Type", format_args!("{}{charset}", self.name))
    }
}

/// The type that the extension of `path` stands for.
fn content_type(path: &Path) -> ContentType {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let name = extension
        .and_then(|extension| mime_guess::from_ext(extension).first_raw())
        .unwrap_or("application/octet-stream");
    let is_text = name.starts_with("text/")
        || matches!(
            name,
            "application/javascript" | "application/xml" | "image/svg+xml"
        );
    ContentType { name, is_text }
}
