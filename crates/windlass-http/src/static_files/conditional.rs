//! Conditional requests (RFC 9110 section 13): is the client's copy still good?

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass::files::{FileStatus, FileTime};

use crate::content_coding::Coding;
use crate::date::{DATE_BYTES, format_date};
use crate::request::Request;
use crate::syntax::trim_blanks;

/// What identifies the content of a file.
///
/// The entity tag is strong: it is of the file's number, its length and the times of its change,
/// to the nanosecond and with the one that nobody can set. Each change of the content changes it,
/// but one within the same tick of the kernel's clock. So a file is given no tag while its last
/// tick lasts ([`is_young`]), and no `Last-Modified` until that second is over: what a client was
/// given always names one content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validators {
    tag: Option<Tag>,
    last_modified: Option<[u8; DATE_BYTES]>,
    modified_secs: u64,
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

/// Room for 5 numbers of 64 bits and 2 of 32 in hexadecimal, the coding and what stands between.
const TAG_BYTES_MAX: usize = 128;

impl Validators {
    /// Those of a file in `coding` at `now_ms` since 1970.
    pub(super) fn new(status: &FileStatus, coding: Coding, now_ms: u64) -> Self {
        let modified_secs = u64::try_from(status.modified.secs).ok();
        // A date that is still to come must not be sent either (RFC 9110 section 8.8.2.1).
        let is_past = modified_secs.is_some_and(|secs| secs < now_ms / 1000);
        Self {
            tag: (!is_young(status, now_ms)).then(|| Tag::new(status, coding)),
            last_modified: modified_secs.filter(|_| is_past).map(format_date),
            modified_secs: modified_secs.unwrap_or(0),
        }
    }

    /// None at all: of a file that is being changed.
    pub(super) fn none() -> Self {
        Self {
            tag: None,
            last_modified: None,
            modified_secs: 0,
        }
    }

    /// The value of `ETag`.
    pub(super) fn tag(&self) -> Option<&[u8]> {
        self.tag.as_ref().map(Tag::as_bytes)
    }

    /// The value of `Last-Modified`.
    pub(super) fn last_modified(&self) -> Option<&[u8]> {
        self.last_modified.as_ref().map(|date| &date[..])
    }

    /// Evaluates the conditions in the order of RFC 9110 section 13.2.2.
    pub(super) fn judge(&self, request: &Request<'_>) -> Outcome {
        if let Some(mut matches) = self.match_list(request, "if-match", Compare::Strong) {
            if !matches.any(|matches| matches) {
                return Outcome::Failed;
            }
        } else if let Some(date) = request.header("if-unmodified-since").and_then(parse_date)
            && self.is_newer_than(date) == Some(true)
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
            Some(date) if self.is_newer_than(date) == Some(false) => Outcome::NotModified,
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
            return self.tag() == Some(value);
        }
        let now_secs = request.now().unix_ms / 1000;
        self.last_modified() == Some(value) && self.modified_secs.saturating_add(2) <= now_secs
    }

    /// Whether each tag of a header matches, if there is that header. Members of the list are
    /// split at commas: none of our tags has one, so a tag that has one matches nothing either way.
    fn match_list<'a>(
        &'a self,
        request: &'a Request<'_>,
        name: &'static str,
        compare: Compare,
    ) -> Option<impl Iterator<Item = bool>> {
        request.header(name)?;
        let members = request
            .header_values(name)
            .flat_map(|value| value.split(|b| *b == b','));
        Some(members.map(trim_blanks).map(move |member| {
            let member = match member.strip_prefix(b"W/") {
                Some(member) if compare == Compare::Weak => member,
                _ => member,
            };
            member == b"*" || Some(member) == self.tag()
        }))
    }

    /// Whether the content is newer than `date`, in whole seconds, as dates in headers have no
    /// more. Nothing if that cannot be told.
    fn is_newer_than(&self, date: SystemTime) -> Option<bool> {
        let since_1970 = date.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.last_modified()
            .map(|_| self.modified_secs > since_1970.as_secs())
    }
}

/// Whether `status` may stay the same although the content changes: its last change was a moment
/// ago. The clock of the kernel that stamps files ticks every 10 ms or more often; a time without
/// nanoseconds may be of a file system that has none.
pub(super) fn is_young(status: &FileStatus, now_ms: u64) -> bool {
    const TICKS_MS: u64 = 20;
    const SECONDS_MS: u64 = 2000;
    // Beyond that, the clock was set back, or a program set the time.
    const AHEAD_MS: u64 = 2000;
    let is_recent = |time: FileTime| {
        let Ok(secs) = u64::try_from(time.secs) else {
            return false;
        };
        let time_ms = secs
            .saturating_mul(1000)
            .saturating_add(u64::from(time.nanos / 1_000_000));
        let lasts_ms = if time.nanos == 0 {
            SECONDS_MS
        } else {
            TICKS_MS
        };
        now_ms < time_ms.saturating_add(lasts_ms) && time_ms < now_ms.saturating_add(AHEAD_MS)
    };
    is_recent(status.modified) || is_recent(status.changed)
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
    fn new(status: &FileStatus, coding: Coding) -> Self {
        use std::io::Write;
        let mut tag = Self {
            text: [0; TAG_BYTES_MAX],
            len: 0,
        };
        let mut rest = &mut tag.text[..];
        let FileStatus {
            inode,
            len,
            modified,
            changed,
            ..
        } = status;
        let mut write = || {
            write!(
                rest,
                "\"{inode:x}-{len:x}-{:x}.{:x}",
                modified.secs, modified.nanos
            )?;
            // The two differ once a program has set the first, or the file was renamed.
            if changed != modified {
                write!(rest, "-{:x}.{:x}", changed.secs, changed.nanos)?;
            }
            if coding != Coding::Identity {
                write!(rest, "-{}", coding.name())?;
            }
            write!(rest, "\"")
        };
        write().expect("all numbers at their longest fit");
        let unused = rest.len();
        tag.len = TAG_BYTES_MAX - unused;
        tag
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

fn parse_date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use windlass::files::FileKind;

    use super::*;

    const AT: FileTime = FileTime {
        secs: 1000,
        nanos: 500_000_000,
    };

    fn status() -> FileStatus {
        FileStatus {
            len: 10,
            modified: AT,
            changed: AT,
            kind: FileKind::File,
            inode: 7,
            device: (1, 2),
        }
    }

    #[test]
    fn a_tag_differs_with_all_that_tells_contents_apart() {
        let mut seen = vec![Tag::new(&status(), Coding::Identity).as_bytes().to_vec()];
        let changes: [fn(&mut FileStatus); 6] = [
            |status| status.len = 11,
            |status| status.inode = 8,
            |status| status.modified.nanos += 1,
            |status| status.modified.secs += 1,
            |status| status.changed.nanos += 1,
            |status| status.changed.secs += 1,
        ];
        for change in changes {
            let mut changed = status();
            change(&mut changed);
            seen.push(Tag::new(&changed, Coding::Identity).as_bytes().to_vec());
        }
        seen.push(Tag::new(&status(), Coding::Gzip).as_bytes().to_vec());
        seen.push(Tag::new(&status(), Coding::Brotli).as_bytes().to_vec());
        for (n, tag) in seen.iter().enumerate() {
            assert!(!seen[..n].contains(tag));
            assert!(tag.starts_with(b"\"") && tag.ends_with(b"\""));
        }
    }

    #[test]
    fn the_longest_tag_fits() {
        let time = FileTime {
            secs: -1,
            nanos: u32::MAX,
        };
        let longest = FileStatus {
            len: u64::MAX,
            modified: time,
            changed: FileTime { secs: -2, ..time },
            inode: u64::MAX,
            ..status()
        };
        let tag = Tag::new(&longest, Coding::Identity);
        assert!(tag.as_bytes().ends_with(b"\""));
        let tag = Tag::new(&longest, Coding::Gzip);
        assert!(tag.as_bytes().ends_with(b"-gzip\""));
    }

    #[test]
    fn no_validator_is_given_while_its_time_lasts() {
        let given = |now_ms| {
            let validators = Validators::new(&status(), Coding::Identity, now_ms);
            (
                validators.tag().is_some(),
                validators.last_modified().is_some(),
            )
        };
        assert_eq!(given(1_000_500), (false, false));
        assert_eq!(given(1_000_519), (false, false));
        assert_eq!(given(1_000_520), (true, false));
        assert_eq!(given(1_000_999), (true, false));
        assert_eq!(given(1_001_000), (true, true));
        // The driver's time is a little behind.
        assert_eq!(given(1_000_490), (false, false));
        // The clock was set back by far.
        assert_eq!(given(1000), (true, false));
    }

    #[test]
    fn a_time_in_whole_seconds_lasts_two_of_them() {
        let whole = FileTime {
            secs: 1000,
            nanos: 0,
        };
        let coarse = FileStatus {
            modified: whole,
            changed: whole,
            ..status()
        };
        assert!(is_young(&coarse, 1_001_999));
        assert!(!is_young(&coarse, 1_002_000));
    }
}
