//! Status codes of final answers (RFC 9110 section 15).

use std::fmt;

/// The status of a final answer: 200 to 599.
///
/// Interim answers (1xx) are the session's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal,)*) => {
        impl Status {
            $(
                #[doc = concat!("`", $code, " ", $reason, "`")]
                pub const $name: Self = Self($code);
            )*

            /// Code and reason as on the status line; without reason for a code that is not
            /// registered.
            const fn line(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(concat!($code, " ", $reason)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    200 OK "OK",
    201 CREATED "Created",
    202 ACCEPTED "Accepted",
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information",
    204 NO_CONTENT "No Content",
    205 RESET_CONTENT "Reset Content",
    206 PARTIAL_CONTENT "Partial Content",
    300 MULTIPLE_CHOICES "Multiple Choices",
    301 MOVED_PERMANENTLY "Moved Permanently",
    302 FOUND "Found",
    303 SEE_OTHER "See Other",
    304 NOT_MODIFIED "Not Modified",
    307 TEMPORARY_REDIRECT "Temporary Redirect",
    308 PERMANENT_REDIRECT "Permanent Redirect",
    400 BAD_REQUEST "Bad Request",
    401 UNAUTHORIZED "Unauthorized",
    403 FORBIDDEN "Forbidden",
    404 NOT_FOUND "Not Found",
    405 METHOD_NOT_ALLOWED "Method Not Allowed",
    406 NOT_ACCEPTABLE "Not Acceptable",
    408 REQUEST_TIMEOUT "Request Timeout",
    409 CONFLICT "Conflict",
    410 GONE "Gone",
    411 LENGTH_REQUIRED "Length Required",
    412 PRECONDITION_FAILED "Precondition Failed",
    413 CONTENT_TOO_LARGE "Content Too Large",
    414 URI_TOO_LONG "URI Too Long",
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type",
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable",
    417 EXPECTATION_FAILED "Expectation Failed",
    421 MISDIRECTED_REQUEST "Misdirected Request",
    422 UNPROCESSABLE_CONTENT "Unprocessable Content",
    426 UPGRADE_REQUIRED "Upgrade Required",
    428 PRECONDITION_REQUIRED "Precondition Required",
    429 TOO_MANY_REQUESTS "Too Many Requests",
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large",
    500 INTERNAL_SERVER_ERROR "Internal Server Error",
    501 NOT_IMPLEMENTED "Not Implemented",
    502 BAD_GATEWAY "Bad Gateway",
    503 SERVICE_UNAVAILABLE "Service Unavailable",
    504 GATEWAY_TIMEOUT "Gateway Timeout",
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported",
}

impl Status {
    /// Of the answer after which another protocol goes on: for the log.
    pub(crate) const SWITCHING_PROTOCOLS: Self = Self(101);

    /// The status with this code, if it is from 200 to 599.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            200..=599 => Some(Self(code)),
            _ => None,
        }
    }

    /// The code.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Whether an answer with this status has a body (RFC 9110 section 6.4.1).
    pub(crate) const fn has_body(self) -> bool {
        !matches!(self.0, 204 | 205 | 304)
    }

    /// Whether an answer with this status tells the length of its body (RFC 9110 section 8.6).
    /// For 304 it would be the length that a 200 had, which we need not tell.
    pub(crate) const fn has_length(self) -> bool {
        !matches!(self.0, 204 | 304)
    }

    /// Appends the status line up to and without the line end.
    pub(crate) fn write_line(self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(b"HTTP/1.1 ");
        match self.line() {
            Some(line) => buf.extend_from_slice(line.as_bytes()),
            None => {
                // The blank after the code is not optional (RFC 9112 section 4).
                let code = self.0;
                let digit = |d: u16| b'0' + (d % 10) as u8;
                buf.extend_from_slice(&[digit(code / 100), digit(code / 10), digit(code), b' ']);
            }
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line() {
            Some(line) => f.write_str(line),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_codes_are_statuses() {
        assert!(Status::new(199).is_none() && Status::new(600).is_none());
        assert_eq!(Status::new(200), Some(Status::OK));
    }

    #[test]
    fn unregistered_code_keeps_the_blank_of_the_status_line() {
        let mut line = Vec::new();
        Status::new(299)
            .expect("a final code")
            .write_line(&mut line);
        assert_eq!(line, b"HTTP/1.1 299 ");
    }
}
