//! The head of a response (RFC 9112 sections 4 to 6): what it says, judged strictly.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig};

use crate::body::Framing;
use crate::client::error::ResponseFault;
use crate::head::has_strict_line_ends;
use crate::method::Method;
use crate::request::Version;
use crate::status::Status;
use crate::syntax::{list_members, parse_decimal};

/// The head of a final response: it keeps to the grammar, its framing is understood.
///
/// Copy out what must live longer than the call.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    pub(super) status: Status,
    pub(super) version: Version,
    pub(super) headers: &'a [Header<'a>],
    pub(super) body_bytes: Option<u64>,
}

impl<'a> ResponseHead<'a> {
    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The version that the server speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The value of the first header of this name, in any case, if there is one.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// All headers in their order: names as they came, values without blanks at their ends.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.headers
            .iter()
            .map(|header| (header.name, header.value))
    }

    /// The length of the body that follows, if it was announced; zero if there is none.
    #[must_use]
    pub fn body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }
}

/// Where the body of a response ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Decoded(Framing),
    /// There is none: what follows is a tunnel's.
    Tunnel,
    UntilClose,
}

/// What the connection must know of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// 100 to 599.
    pub(super) code: u16,
    pub(super) version: Version,
    pub(super) framing: ResponseFraming,
    /// Whether the server lets the connection go on.
    pub(super) persistent: bool,
}

/// A complete head: its length, what it says, and its headers.
pub(super) type Complete<'h, 'b> = (usize, Judged, &'h [Header<'b>]);

/// Judges `lines`, which end in a line end, as the head of a response to `method`. Answers nothing
/// if it is not complete yet.
pub(super) fn parse<'h, 'b>(
    lines: &'b [u8],
    headers: &'h mut [MaybeUninit<Header<'b>>],
    method: Method,
) -> Result<Option<Complete<'h, 'b>>, ResponseFault> {
    let mut raw = httparse::Response::new(&mut []);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut raw, lines, headers);
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(syntax_fault(error)),
    };
    if !has_strict_line_ends(&lines[..len], raw.headers) {
        return Err(ResponseFault::LineEnd);
    }
    let (Some(code), Some(minor)) = (raw.code, raw.version) else {
        return Err(ResponseFault::NotHttp);
    };
    if !(100..=599).contains(&code) {
        return Err(ResponseFault::Status);
    }
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let fields = Fields::read(raw.headers)?;
    let judged = Judged {
        code,
        version,
        framing: fields.framing(code, version, method)?,
        persistent: match version {
            Version::Http10 => fields.keep_alive && !fields.close,
            Version::Http11 => !fields.close,
        },
    };
    Ok(Some((len, judged, raw.headers)))
}

fn syntax_fault(error: httparse::Error) -> ResponseFault {
    use httparse::Error;
    match error {
        Error::HeaderName => ResponseFault::HeaderName,
        Error::HeaderValue => ResponseFault::HeaderValue,
        Error::NewLine => ResponseFault::LineEnd,
        Error::Status => ResponseFault::Status,
        Error::TooManyHeaders => ResponseFault::TooManyHeaders,
        Error::Token | Error::Version => ResponseFault::NotHttp,
    }
}

/// The headers that rule framing and connection, as found.
#[derive(Default)]
struct Fields<'a> {
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
}

impl<'a> Fields<'a> {
    fn read(headers: &[Header<'a>]) -> Result<Self, ResponseFault> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            match name.len() {
                10 if name.eq_ignore_ascii_case("connection") => {
                    for option in list_members(value) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let twice = ResponseFault::ContentLength;
                    set_once(&mut fields.content_length, value, twice)?;
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    let twice = ResponseFault::TransferEncoding;
                    set_once(&mut fields.transfer_encoding, value, twice)?;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// RFC 9112 section 6.3, with an error wherever it leaves a choice, also where the length is
    /// not used (HEAD, 304): a server that can't tell it is not one to go on with.
    fn framing(
        &self,
        code: u16,
        version: Version,
        method: Method,
    ) -> Result<ResponseFraming, ResponseFault> {
        let told = match (self.transfer_encoding, self.content_length) {
            (Some(_), Some(_)) => return Err(ResponseFault::ConflictingLengths),
            (Some(coding), None)
                if version == Version::Http11 && coding.eq_ignore_ascii_case(b"chunked") =>
            {
                Some(Framing::Chunked)
            }
            (Some(_), None) => return Err(ResponseFault::TransferEncoding),
            (None, Some(length)) => {
                let length = parse_decimal(length).ok_or(ResponseFault::ContentLength)?;
                Some(Framing::Length(length))
            }
            (None, None) => None,
        };
        if method == Method::Connect && (200..300).contains(&code) {
            return Ok(ResponseFraming::Tunnel);
        }
        if method == Method::Head || matches!(code, 100..=199 | 204 | 304) {
            return Ok(ResponseFraming::Decoded(Framing::Length(0)));
        }
        Ok(told.map_or(ResponseFraming::UntilClose, ResponseFraming::Decoded))
    }
}

fn set_once<'a>(
    slot: &mut Option<&'a [u8]>,
    value: &'a [u8],
    twice: ResponseFault,
) -> Result<(), ResponseFault> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice),
    }
}
