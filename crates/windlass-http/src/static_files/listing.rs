//! The content of a directory without an index, as a page or as JSON.
//!
//! Read in the worker pool: a directory may be long. Only what would be served is listed: no
//! hidden names, no pipes, no links that are not followed, no names that no path can express.

mod json;
mod page;

use std::cmp::Ordering;
use std::ffi::{CStr, CString};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use windlass::files::{FileKind, FileStatus, FileTime, Links, OpenFile, Root};

use super::StaticFiles;
use super::missing::Missing;
use super::options::Dotfiles;
use super::path::is_hidden;
use crate::date::format_date;
use crate::negotiation::media_wish;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// The most names of one directory that are read.
const ENTRIES_MAX: usize = 10_000;

/// Answers with the content of `directory`, whose path below the root is `path`.
pub(super) fn answer(
    site: &StaticFiles,
    directory: OpenFile,
    path: &[u8],
    request: &Request<'_>,
    response: Responder<'_>,
) -> Answered {
    let reader = Reader {
        root: Arc::clone(&site.root),
        links: site.links,
        dotfiles: site.dotfiles,
        path: path.to_vec(),
        entries_max: ENTRIES_MAX,
    };
    let order = Order::of_query(request.query().unwrap_or_default());
    let json = media_wish(request, "application", "json").weight;
    let form = if json > media_wish(request, "text", "html").weight {
        Form::Json
    } else {
        Form::Page
    };
    response.job(move || match reader.read(&directory) {
        Ok(listing) => respond(listing, order, form).unwrap_or_else(|_| Missing::Failed.answer()),
        Err(error) => Missing::from(error).answer(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Page,
}

fn respond(mut listing: Listing, order: Order, form: Form) -> Result<Response, ResponseError> {
    listing.entries.sort_unstable_by(|a, b| order.compare(a, b));
    let response = Response::new(Status::OK)
        .header("Cache-Control", "no-cache")?
        .header("Vary", "Accept")?;
    Ok(match form {
        Form::Json => response
            .header("Content-Type", "application/json")?
            .body(json::write(&listing)),
        Form::Page => response
            .header("Content-Type", "text/html; charset=utf-8")?
            .header("Content-Security-Policy", page::CONTENT_SECURITY_POLICY)?
            .body(page::write(&listing, order)),
    })
}

/// What a directory holds.
#[derive(Debug, Default)]
struct Listing {
    /// The directory's path below the root; that of the root is empty.
    path: Vec<u8>,
    entries: Vec<Entry>,
    /// There are more entries than were read.
    is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: Vec<u8>,
    is_directory: bool,
    len: u64,
    modified: FileTime,
}

impl Entry {
    /// What to follow from the directory to get there. A colon in it is encoded as well: no name
    /// is taken for a scheme.
    fn href(&self) -> String {
        let mut href = percent_encode(&self.name);
        if self.is_directory {
            href.push('/');
        }
        href
    }
}

/// Reads a directory.
#[derive(Debug)]
struct Reader {
    root: Arc<Root>,
    links: Links,
    dotfiles: Dotfiles,
    path: Vec<u8>,
    entries_max: usize,
}

impl Reader {
    fn read(self, directory: &OpenFile) -> io::Result<Listing> {
        let mut entries = Vec::new();
        let mut is_cut = false;
        let mut visited_count = 0;
        directory.visit_entries(|name, status| {
            visited_count += 1;
            if visited_count > self.entries_max {
                is_cut = true;
                return ControlFlow::Break(());
            }
            entries.extend(self.entry(name, status));
            ControlFlow::Continue(())
        })?;
        Ok(Listing {
            path: self.path,
            entries,
            is_cut,
        })
    }

    /// The entry called `name`, if it is served; `status` is nothing for a link.
    fn entry(&self, name: &CStr, status: Option<FileStatus>) -> Option<Entry> {
        let bytes = name.to_bytes();
        if is_hidden(bytes, self.dotfiles, self.path.is_empty()) || bytes.contains(&b'\\') {
            return None;
        }
        let status = match status {
            Some(status) => status,
            None => {
                let path = [&self.path[..], b"/", bytes].concat();
                let path = path.strip_prefix(b"/").unwrap_or(&path);
                self.root
                    .describe(&CString::new(path).ok()?, self.links)
                    .ok()?
            }
        };
        let is_directory = match status.kind {
            FileKind::Directory => true,
            FileKind::File => false,
            FileKind::Other => return None,
        };
        Some(Entry {
            name: bytes.to_vec(),
            is_directory,
            len: if is_directory { 0 } else { status.len },
            modified: status.modified,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Modified,
    Name,
    Size,
}

impl Column {
    const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Modified];

    /// As in a query.
    fn name(self) -> &'static str {
        match self {
            Self::Modified => "modified",
            Self::Name => "name",
            Self::Size => "size",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ascending,
    Descending,
}

/// How entries are sorted. Directories come first in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    column: Column,
    direction: Direction,
}

impl Order {
    /// `sort=size&order=desc`; what is not understood is as if it were not there.
    fn of_query(query: &str) -> Self {
        let mut order = Self {
            column: Column::Name,
            direction: Direction::Ascending,
        };
        for part in query.split('&') {
            match part.split_once('=') {
                Some(("sort", name)) => {
                    let mut columns = Column::ALL.into_iter();
                    if let Some(column) = columns.find(|column| column.name() == name) {
                        order.column = column;
                    }
                }
                Some(("order", "asc")) => order.direction = Direction::Ascending,
                Some(("order", "desc")) => order.direction = Direction::Descending,
                _ => {}
            }
        }
        order
    }

    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let by_name = || {
            let [lower_a, lower_b] =
                [a, b].map(|entry| entry.name.iter().map(u8::to_ascii_lowercase));
            lower_a.cmp(lower_b).then_with(|| a.name.cmp(&b.name))
        };
        let ordering = match self.column {
            Column::Modified => a.modified.cmp(&b.modified).then_with(by_name),
            Column::Name => by_name(),
            Column::Size => a.len.cmp(&b.len).then_with(by_name),
        };
        let ordering = match self.direction {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        };
        b.is_directory.cmp(&a.is_directory).then(ordering)
    }
}

/// All but the unreserved characters of RFC 3986 section 2.3 encoded.
fn percent_encode(name: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(name.len());
    for byte in name {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(*byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
            encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    encoded
}

/// `1994-11-06T08:49:37Z`; what was before 1970 or will be after 9999 is cut to that.
fn iso_date(time: FileTime) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let text = format_date(u64::try_from(time.secs).unwrap_or(0));
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let text = str::from_utf8(&text).expect("an IMF-fixdate is ASCII");
    let (day, month, year, clock) = (&text[5..7], &text[8..11], &text[12..16], &text[17..25]);
    let month = MONTHS.find(month).expect("the name of a month") / 3 + 1;
    format!("{year}-{month:02}-{day}T{clock}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: FileKind, len: u64, secs: i64) -> Entry {
        Entry {
            name: name.into(),
            is_directory: kind == FileKind::Directory,
            len,
            modified: FileTime { secs, nanos: 0 },
        }
    }

    #[test]
    fn directories_come_first_whatever_the_order() {
        let mut entries = [
            entry("b", FileKind::File, 1, 30),
            entry("A", FileKind::File, 3, 20),
            entry("c", FileKind::File, 2, 10),
            entry("z", FileKind::Directory, 0, 5),
            entry("Y", FileKind::Directory, 0, 6),
        ];
        for (query, expected) in [
            ("", "YzAbc"),
            ("sort=name&order=desc", "zYcbA"),
            ("sort=size", "YzbcA"),
            ("order=desc&sort=size", "zYAcb"),
            ("sort=modified", "zYcAb"),
            ("sort=modified&order=desc", "YzbAc"),
            ("sort=<script>&order=up&x", "YzAbc"),
        ] {
            let order = Order::of_query(query);
            entries.sort_unstable_by(|a, b| order.compare(a, b));
            let names: Vec<u8> = entries
                .iter()
                .flat_map(|entry| entry.name.clone())
                .collect();
            assert_eq!(String::from_utf8_lossy(&names), expected, "{query}");
        }
    }

    #[test]
    fn hrefs_are_encoded_and_never_a_scheme() {
        for (name, expected) in [
            ("a b", "a%20b"),
            ("javascript:alert(1)", "javascript%3Aalert%281%29"),
            ("<&>\"'%?#", "%3C%26%3E%22%27%25%3F%23"),
            ("ä\n", "%C3%A4%0A"),
            ("-._~", "-._~"),
        ] {
            assert_eq!(percent_encode(name.as_bytes()), expected);
        }
        assert_eq!(entry("d:", FileKind::Directory, 0, 0).href(), "d%3A/");
    }

    #[test]
    fn dates_are_written_the_way_machines_sort_them() {
        let date = |secs| iso_date(FileTime { secs, nanos: 0 });
        assert_eq!(date(784_111_777), "1994-11-06T08:49:37Z");
        assert_eq!(date(-1), "1970-01-01T00:00:00Z");
        assert_eq!(date(i64::MAX), "9999-12-31T23:59:59Z");
    }
}
