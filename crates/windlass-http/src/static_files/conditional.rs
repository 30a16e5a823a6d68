//! Conditional requests (RFC 9110 section 13): is the client's copy still good?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass::files::OpenFile;

use crate::date::format_date;
use crate::request::Request;
use crate::responder::ResponseHead;
use crate::response::ResponseError;
use crate::syntax::trim_blanks;

/// What identifies the content of a file.
///
/// The entity tag is strong: it is of the file's number, length and time of change to the
/// nanosecond, so that it changes with the content even within one second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators {
    inode: u64,
    len: u64,
    modified_secs: i64,
    modified_nanos: u32,
}

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// 412.
    Failed,
    /// 304.
    NotModified,
    Send,
}

/// Room for four numbers in hexadecimal, dashes and quotes.
const TAG_BYTES_MAX: usize = 64;

impl Validators {
    pub(super) fn of(file: &OpenFile) -> Self {
        Self {
            inode: file.inode,
            len: file.len,
            modified_secs: file.modified.secs,
            modified_nanos: file.modified.nanos,
        }
    }

    /// Adds `ETag` and `Last-Modified`.
    pub(super) fn write<'a>(
        &self,
        head: ResponseHead<'a>,
    ) -> Result<ResponseHead<'a>, ResponseError> {
        let head = head.header("ETag", self.tag().as_bytes())?;
        match self.last_modified() {
            Some(date) => head.header("Last-Modified", date),
            None => Ok(head),
        }
    }

    /// Evaluates the conditions in the order of RFC 9110 section 13.2.2.
    pub(super) fn judge(&self, request: &Request<'_>) -> Outcome {
        if let Some(mut matches) = self.match_list(request, "if-match", Compare::Strong) {
            if !matches.any(|matches| matches) {
                return Outcome::Failed;
            }
        } else if let Some(date) = request.header("if-unmodified-since").and_then(parse_date)
            && self.is_newer_than(date)
        {
            return Outcome::Failed;
        }
        if let Some(mut matches) = self.match_list(request, "if-none-match", Compare::Weak) {
            return if matches.any(|matches| matches) {
                Outcome::NotModified
            } else {
                Outcome::Send
            };
        }
        match request.header("if-modified-since").and_then(parse_date) {
            Some(date) if !self.is_newer_than(date) => Outcome::NotModified,
            _ => Outcome::Send,
        }
    }

    /// Whether a `Range` counts: there is no `If-Range`, or it names this content (RFC 9110
    /// section 13.1.5). A date does only if it cannot have stood for two contents.
    pub(super) fn judge_range(&self, request: &Request<'_>) -> bool {
        let Some(value) = request.header("if-range") else {
            return true;
        };
        if value.starts_with(b"\"") {
            return value == self.tag().as_bytes();
        }
        let now_secs = request.now().unix_ms / 1000;
        self.last_modified().is_some_and(|date| value == date)
            && u64::try_from(self.modified_secs)
                .is_ok_and(|secs| secs.saturating_add(2) <= now_secs)
    }

    /// Whether each tag of a header matches, if there is that header. Members of the list are
    /// split at commas: none of our tags has one, so a tag that has one matches nothing either way.
    fn match_list<'a>(
        &self,
        request: &'a Request<'_>,
        name: &'static str,
        compare: Compare,
    ) -> Option<impl Iterator<Item = bool> + use<'a>> {
        request.header(name)?;
        let tag = self.tag();
        let members = request
            .header_values(name)
            .flat_map(|value| value.split(|b| *b == b','));
        Some(members.map(trim_blanks).map(move |member| {
            let member = match member.strip_prefix(b"W/") {
                Some(member) if compare == Compare::Weak => member,
                _ => member,
            };
            member == b"*" || member == tag.as_bytes()
        }))
    }

    /// Compares whole seconds, as dates in headers have no more.
    fn is_newer_than(&self, date: SystemTime) -> bool {
        let secs = date
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs();
        u64::try_from(self.modified_secs).is_ok_and(|modified| modified > secs)
    }

    /// None before 1970.
    fn last_modified(&self) -> Option<[u8; 29]> {
        u64::try_from(self.modified_secs).ok().map(format_date)
    }

    fn tag(&self) -> Tag {
        use std::io::Write;
        let mut tag = Tag {
            text: [0; TAG_BYTES_MAX],
            len: 0,
        };
        let mut rest = &mut tag.text[..];
        let Self {
            inode,
            len,
            modified_secs,
            modified_nanos,
        } = self;
        write!(
            rest,
            "\"{inode:x}-{len:x}-{modified_secs:x}.{modified_nanos:x}\""
        )
        .expect("three 64-bit and one 32-bit number in hexadecimal fit");
        let unused = rest.len();
        tag.len = TAG_BYTES_MAX - unused;
        tag
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    /// Weak tags match nothing.
    Strong,
    /// The mark of a weak tag is ignored.
    Weak,
}

/// An entity tag, quotes included.
#[derive(Clone, Copy, Debug)]
struct Tag {
    text: [u8; TAG_BYTES_MAX],
    len: usize,
}

impl Tag {
    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

fn parse_date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}
