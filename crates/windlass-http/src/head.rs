//! The head of a request (RFC 9112 sections 2 to 6): what it says, judged strictly.
//!
//! [`httparse`] splits lines and names; here is refused what it lets pass, and the few headers that
//! rule the connection are read.

use httparse::Header;

use crate::body::Framing;
use crate::known_heads::{KnownHeads, KnownSection, LastSection};
use crate::method::Method;
use crate::refusal::Refusal;
use crate::request::{Target, Version};
use crate::status::Status;
use crate::syntax::{
    is_authority, is_authority_with_port, list_members, parse_decimal, scan_origin_form,
    scan_target,
};

/// The most header lines that can be configured: the size of the scratch on the stack.
pub(crate) const HEADER_COUNT_MAX: usize = 128;

/// What the session must know of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) target: Target<'a>,
    /// The target as it came.
    pub(crate) raw_target: &'a str,
    pub(crate) framing: Framing,
    /// Whether the client lets the connection go on after the answer.
    pub(crate) persistent: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// Whether the client offers another protocol to go on in (RFC 9110 section 7.8).
    pub(crate) upgrades: bool,
    /// The `Host` header.
    pub(crate) host: Option<&'a [u8]>,
}

impl<'a> Head<'a> {
    /// Judges a complete head of `head_bytes.len()` bytes that `httparse` has accepted.
    pub(crate) fn new(
        head_bytes: &[u8],
        raw: &httparse::Request<'_, 'a>,
        target_bytes_max: usize,
        known_host: &mut KnownHost,
    ) -> Result<Self, Refusal> {
        let (Some(method_name), Some(raw_target), Some(minor)) =
            (raw.method, raw.path, raw.version)
        else {
            return Err(Refusal::bad("the request line is incomplete"));
        };
        if !has_strict_line_ends(head_bytes, raw.headers) {
            return Err(Refusal::bad("a line ends in LF without CR"));
        }
        let version = if minor == 0 {
            Version::Http10
        } else {
            Version::Http11
        };
        let fields = Fields::read(raw.headers)?;
        let host = fields.host(version, known_host)?;
        let framing = fields.framing(version)?;
        if raw_target.len() > target_bytes_max {
            return Err(Refusal::new(
                Status::URI_TOO_LONG,
                "the request target is too long",
            ));
        }
        let method = Method::from_name(method_name).ok_or(Refusal::new(
            Status::NOT_IMPLEMENTED,
            "the method is not known",
        ))?;
        let target = parse_target(method, raw_target, host)?;
        // A client that speaks HTTP/1.0 cannot wait for 100 (RFC 9110 section 10.1.1).
        let expect = if version == Version::Http10 {
            Expect::Nothing
        } else {
            fields.expect
        };
        if expect == Expect::Other {
            return Err(Refusal::new(
                Status::EXPECTATION_FAILED,
                "the only expectation that can be met is 100-continue",
            ));
        }
        let persistent = match version {
            // After CONNECT a client may have sent bytes of its tunnel already.
            Version::Http11 => !fields.close && method != Method::Connect,
            Version::Http10 => fields.keep_alive && !fields.close,
        };
        Ok(Self {
            method,
            version,
            target,
            raw_target,
            framing,
            persistent,
            expects_continue: expect == Expect::Continue && !framing.is_none(),
            upgrades: fields.upgrade
                && fields.has_upgrade
                && version == Version::Http11
                && framing.is_none(),
            host,
        })
    }
}

impl<'a> Head<'a> {
    /// The head of a request whose `section` is known, if the line before it in `input` is as
    /// request lines are nearly always. Answers the length of the head as well.
    #[inline]
    pub(crate) fn of_known(
        input: &'a [u8],
        known: &KnownHeads,
        last: LastSection,
        target_bytes_max: usize,
    ) -> Option<(Self, KnownSection)> {
        let (method, name_len) = Method::at_start_of(input)?;
        let from_target = &input[name_len + 1..];
        let (target_len, query_at) = scan_origin_form(from_target)?;
        let section_at = name_len + 1 + target_len + VERSION_LINE_END.len();
        if !from_target[target_len..].starts_with(VERSION_LINE_END) || target_len > target_bytes_max
        {
            return None;
        }
        let from_section = &input[section_at..];
        let section = known.find(last, from_section)?;
        let raw_target = str::from_utf8(&from_target[..target_len]).ok()?;
        let host = &from_section[usize::from(section.host.0)..usize::from(section.host.1)];
        let target = Target {
            path: &raw_target[..query_at],
            query: raw_target.get(query_at + 1..),
            authority: Some(host),
        };
        let head = Self {
            method,
            version: Version::Http11,
            target,
            raw_target,
            framing: Framing::Length(0),
            persistent: section.persistent,
            expects_continue: false,
            upgrades: false,
            host: Some(host),
        };
        Some((head, section))
    }
}

/// What follows the target in the request line of a head that may be known.
pub(crate) const VERSION_LINE_END: &[u8] = b" HTTP/1.1\r\n";

/// Whether each line ends in CR LF. httparse takes LF alone as well, but nothing else.
///
/// A line ends where the next one begins, and all but the first and the last, empty one begin with
/// the name of a header: no need to scan.
pub(crate) fn has_strict_line_ends(head_bytes: &[u8], headers: &[Header<'_>]) -> bool {
    let start = head_bytes.as_ptr().addr();
    head_bytes.ends_with(b"\r\n\r\n")
        && headers.iter().all(|header| {
            let line_start = header.name.as_ptr().addr() - start;
            head_bytes[..line_start].ends_with(b"\r\n")
        })
}

/// The headers that rule framing and connection, as found.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    expect: Expect,
    close: bool,
    keep_alive: bool,
    /// As an option of the connection.
    upgrade: bool,
    has_upgrade: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    Continue,
    #[default]
    Nothing,
    Other,
}

impl<'a> Fields<'a> {
    fn read(headers: &[Header<'a>]) -> Result<Self, Refusal> {
        let mut fields = Self::default();
        for Header { name, value } in headers {
            // Length and first letter: nearly all other headers are out after two comparisons.
            match (
                name.len(),
                name.as_bytes().first().map_or(0, |first| first | 0x20),
            ) {
                (4, b'h') if name.eq_ignore_ascii_case("host") => {
                    set_once(&mut fields.host, value, "Host is given twice")?;
                }
                (6, b'e') if name.eq_ignore_ascii_case("expect") => {
                    let is_continue = value.eq_ignore_ascii_case(b"100-continue");
                    fields.expect = match fields.expect {
                        Expect::Nothing if is_continue => Expect::Continue,
                        _ => Expect::Other,
                    };
                }
                (7, b'u') if name.eq_ignore_ascii_case("upgrade") => fields.has_upgrade = true,
                (10, b'c') if name.eq_ignore_ascii_case("connection") => {
                    for option in list_members(value) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                        fields.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                    }
                }
                (14, b'c') if name.eq_ignore_ascii_case("content-length") => set_once(
                    &mut fields.content_length,
                    value,
                    "Content-Length is given twice",
                )?,
                (17, b't') if name.eq_ignore_ascii_case("transfer-encoding") => set_once(
                    &mut fields.transfer_encoding,
                    value,
                    "Transfer-Encoding is given twice",
                )?,
                _ => {}
            }
        }
        Ok(fields)
    }

    /// RFC 9112 section 3.2: one valid `Host`, which only HTTP/1.0 may leave out.
    fn host(&self, version: Version, known: &mut KnownHost) -> Result<Option<&'a [u8]>, Refusal> {
        match self.host {
            Some(host) if known.is_valid(host) => Ok(Some(host)),
            Some(_) => Err(Refusal::bad("Host is not a host with an optional port")),
            None if version == Version::Http10 => Ok(None),
            None => Err(Refusal::bad("Host is missing")),
        }
    }

    /// RFC 9112 section 6.3, with 400 wherever it leaves a choice. Never depends on the method.
    fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        match (self.transfer_encoding, self.content_length) {
            (None, None) => Ok(Framing::Length(0)),
            (None, Some(length)) => parse_decimal(length)
                .map(Framing::Length)
                .ok_or(Refusal::bad("Content-Length is not one decimal number")),
            (Some(_), Some(_)) => Err(Refusal::bad(
                "Content-Length and Transfer-Encoding exclude each other",
            )),
            (Some(_), None) if version == Version::Http10 => {
                Err(Refusal::bad("HTTP/1.0 has no Transfer-Encoding"))
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (Some(codings), None) => Err(refuse_codings(codings)),
        }
    }
}

/// The last `Host` that was found valid. Nearly all requests of a thread are for the same, so most
/// checks are one comparison.
#[derive(Debug, Default)]
pub(crate) struct KnownHost(Vec<u8>);

impl KnownHost {
    /// A longer one is not kept.
    const BYTES_MAX: usize = 256;

    fn is_valid(&mut self, host: &[u8]) -> bool {
        // An empty one would match before any was found.
        if !host.is_empty() && *self.0 == *host {
            return true;
        }
        let is_valid = is_authority(host);
        if is_valid && host.len() <= Self::BYTES_MAX {
            self.0.clear();
            self.0.extend_from_slice(host);
        }
        is_valid
    }
}

/// Of the codings other than plain `chunked`: those that at least end in it are unknown to us (501,
/// RFC 9112 section 6.1), in all others the body has no end that can be trusted.
fn refuse_codings(codings: &[u8]) -> Refusal {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let last = list_members(codings).last();
    if last.is_some_and(is_chunked) && list_members(codings).filter(|c| is_chunked(c)).count() == 1
    {
        Refusal::new(
            Status::NOT_IMPLEMENTED,
            "the only transfer coding known is chunked",
        )
    } else {
        Refusal::bad("Transfer-Encoding must be chunked, once and last")
    }
}

fn set_once<'a>(
    slot: &mut Option<&'a [u8]>,
    value: &'a [u8],
    twice: &'static str,
) -> Result<(), Refusal> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::bad(twice)),
    }
}

/// RFC 9112 section 3.2: the four forms of a target.
#[inline]
fn parse_target<'a>(
    method: Method,
    raw: &'a str,
    host: Option<&'a [u8]>,
) -> Result<Target<'a>, Refusal> {
    let Some(query_at) = scan_target(raw.as_bytes()) else {
        return Err(BAD_TARGET);
    };
    if raw.starts_with('/') && method != Method::Connect {
        let path = &raw[..query_at];
        return Ok(Target {
            path,
            query: raw.get(query_at + 1..),
            authority: host,
        });
    }
    parse_other_target(method, raw, host)
}

const BAD_TARGET: Refusal = Refusal::bad("the request target is not valid");

/// The forms other than the usual one.
#[cold]
fn parse_other_target<'a>(
    method: Method,
    raw: &'a str,
    host: Option<&'a [u8]>,
) -> Result<Target<'a>, Refusal> {
    if method == Method::Connect {
        return if is_authority_with_port(raw.as_bytes()) {
            Ok(Target {
                path: "",
                query: None,
                authority: Some(raw.as_bytes()),
            })
        } else {
            Err(BAD_TARGET)
        };
    }
    if raw == "*" {
        return if method == Method::Options {
            Ok(Target {
                path: raw,
                query: None,
                authority: host,
            })
        } else {
            Err(BAD_TARGET)
        };
    }
    // The authority of an absolute target replaces that of Host (RFC 9112 section 3.2.2).
    let (scheme, rest) = raw.split_once("://").ok_or(BAD_TARGET)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(BAD_TARGET);
    }
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(authority_end);
    if !is_authority(authority.as_bytes()) {
        return Err(BAD_TARGET);
    }
    let (path, query) = split_query(rest);
    let path = if path.is_empty() { "/" } else { path };
    Ok(Target {
        path,
        query,
        authority: Some(authority.as_bytes()),
    })
}

fn split_query(target: &str) -> (&str, Option<&str>) {
    target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)))
}

/// The refusal for what `httparse` did not accept; `lines` is what it saw.
pub(crate) fn refuse_syntax(error: httparse::Error, lines: &[u8]) -> Refusal {
    use httparse::Error;
    match error {
        Error::HeaderName => Refusal::bad("a header line has no valid name before a colon"),
        Error::HeaderValue => Refusal::bad("a header value has a forbidden byte"),
        Error::NewLine => Refusal::bad("a line does not end in CR LF"),
        Error::TooManyHeaders => Refusal::new(
            Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "there are too many header lines",
        ),
        Error::Version => refuse_version(lines),
        Error::Token | Error::Status => Refusal::bad("the request line is malformed"),
    }
}

fn refuse_version(lines: &[u8]) -> Refusal {
    const UNSUPPORTED: Status = Status::HTTP_VERSION_NOT_SUPPORTED;
    if lines.starts_with(b"PRI * HTTP/2.0\r\n") {
        return Refusal::new(UNSUPPORTED, "HTTP/2 is not spoken here, HTTP/1.1 is");
    }
    let line = lines.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // With another blank in it, the line ends in a version but has no target.
    let mut parts = line.splitn(3, |b| *b == b' ').skip(2);
    match parts
        .next()
        .and_then(|version| version.strip_prefix(b"HTTP/"))
    {
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Refusal::new(
                UNSUPPORTED,
                "the versions spoken here are HTTP/1.0 and HTTP/1.1",
            )
        }
        _ => Refusal::bad("the request line does not end in a version"),
    }
}

#[cfg(test)]
mod tests;
