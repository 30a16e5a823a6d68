//! Why there is no file to send, and what is answered then.

use std::io::{self, ErrorKind};

use crate::response::Response;
use crate::status::Status;

/// Why there is no file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The server's own trouble, which may pass.
    Busy,
    /// The server's own trouble.
    Failed,
    Forbidden,
    /// The client accepts no coding that there is.
    NotAcceptable,
    NotFound,
    /// A directory whose path lacks the slash at the end.
    Slash,
}

impl Missing {
    pub(super) fn answer(self) -> Response {
        match self {
            Self::Busy => Response::text(Status::SERVICE_UNAVAILABLE, "try again later"),
            Self::Failed | Self::Slash => {
                Response::text(Status::INTERNAL_SERVER_ERROR, "the file cannot be read")
            }
            Self::Forbidden => Response::text(Status::FORBIDDEN, "the file is not public"),
            Self::NotAcceptable => {
                let detail = "the file is not there in a coding that is accepted";
                Response::text(Status::NOT_ACCEPTABLE, detail)
            }
            Self::NotFound => Response::text(Status::NOT_FOUND, "there is no such file"),
        }
    }
}

const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Whether `error` says that there are no more descriptors.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
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
            (ErrorKind::WouldBlock | ErrorKind::OutOfMemory, _) => Self::Busy,
            _ if is_out_of_descriptors(&error) => Self::Busy,
            _ => Self::Failed,
        }
    }
}
