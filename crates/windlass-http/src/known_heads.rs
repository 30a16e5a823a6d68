//! Header sections that were seen before, so that they need not be parsed again.
//!
//! A client that keeps its connection sends the same header lines with most of its requests. A
//! section that came twice on a connection is kept, with what was found in it; from then on it is
//! recognised by comparing bytes. Only sections of HTTP/1.1 requests without a body, an expectation
//! and an upgrade are kept, so that what depends on the request line is judged each time.
//!
//! Invariant: a head that is recognised is read exactly as it would be parsed (tested by running
//! both).

use std::ops::Range;

use httparse::Header;

use crate::head::Head;
use crate::method::Method;
use crate::request::Version;

/// The sections that one driver thread knows.
#[derive(Debug)]
pub(crate) struct KnownHeads {
    entries: [Entry; ENTRIES],
}

/// One section. None is known while it is empty.
#[derive(Debug, Default)]
struct Entry {
    /// From behind the request line to the end of the head, with the empty line.
    section: Vec<u8>,
    fields: Vec<Field>,
    host: Range<u16>,
    persistent: bool,
}

/// Where a header line lies in its section.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    name: Range<u16>,
    value: Range<u16>,
}

/// What was found in a known section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownSection {
    pub(crate) index: u8,
    pub(crate) bytes: usize,
    pub(crate) persistent: bool,
    pub(crate) host: (u16, u16),
}

/// What a connection remembers of its last section.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastSection {
    hash: u32,
    /// Where it is known, if it is.
    index: u8,
}

const ENTRIES: usize = 32;
/// A longer section is not kept.
const SECTION_BYTES_MAX: usize = 2048;

impl Default for KnownHeads {
    fn default() -> Self {
        Self {
            entries: std::array::from_fn(|_| Entry::default()),
        }
    }
}

impl KnownHeads {
    /// Whether `rest`, what follows a request line, begins with the section that came last.
    #[inline]
    pub(crate) fn find(&self, last: LastSection, rest: &[u8]) -> Option<KnownSection> {
        let entry = self.entries.get(usize::from(last.index))?;
        let bytes = entry.section.len();
        if bytes == 0 || rest.get(..bytes)? != entry.section {
            return None;
        }
        Some(KnownSection {
            index: last.index,
            bytes,
            persistent: entry.persistent,
            host: (entry.host.start, entry.host.end),
        })
    }

    /// Takes note of a section that was parsed; keeps it if it came before.
    pub(crate) fn note(
        &mut self,
        last: &mut LastSection,
        section: &[u8],
        head: &Head<'_>,
        headers: &[Header<'_>],
    ) {
        let is_plain = head.version == Version::Http11
            && head.method != Method::Connect
            && head.framing.is_none()
            && !head.expects_continue
            && !head.upgrades;
        if !is_plain || section.len() > SECTION_BYTES_MAX {
            return;
        }
        let hash = hash(section);
        let came_before = last.hash == hash;
        let index = hash as usize % ENTRIES;
        *last = LastSection {
            hash,
            index: index as u8,
        };
        let entry = &mut self.entries[index];
        if came_before && entry.section != section {
            entry.learn(section, head, headers);
        }
    }

    /// The header lines of the known section at `index`.
    #[inline]
    pub(crate) fn fields(&self, index: u8) -> &[Field] {
        &self.entries[usize::from(index)].fields
    }
}

impl Entry {
    fn learn(&mut self, section: &[u8], head: &Head<'_>, headers: &[Header<'_>]) {
        self.section.clear();
        self.fields.clear();
        let Some(host) = head.host else { return };
        self.host = range_of(section, host);
        self.persistent = head.persistent;
        self.fields.extend(headers.iter().map(|header| Field {
            name: range_of(section, header.name.as_bytes()),
            value: range_of(section, header.value),
        }));
        self.section.extend_from_slice(section);
    }
}

impl Field {
    /// The name in `section`.
    pub(crate) fn name<'a>(&self, section: &'a [u8]) -> &'a [u8] {
        &section[usize::from(self.name.start)..usize::from(self.name.end)]
    }

    /// The value in `section`.
    pub(crate) fn value<'a>(&self, section: &'a [u8]) -> &'a [u8] {
        &section[usize::from(self.value.start)..usize::from(self.value.end)]
    }
}

/// Where `part`, a slice of `section`, lies in it.
fn range_of(section: &[u8], part: &[u8]) -> Range<u16> {
    // An empty value may point anywhere.
    let at = part.as_ptr().addr().wrapping_sub(section.as_ptr().addr());
    let at = if part.is_empty() { 0 } else { at };
    // A kept section has at most SECTION_BYTES_MAX bytes.
    at as u16..(at + part.len()) as u16
}

/// Differs for nearly all sections; need not withstand an attacker, who would only slow himself
/// down.
fn hash(section: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut words = section.chunks_exact(8);
    let mut hash = section.len() as u64;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        hash = (hash ^ word).wrapping_mul(FACTOR).rotate_left(23);
    }
    for &byte in words.remainder() {
        hash = (hash ^ u64::from(byte))
            .wrapping_mul(FACTOR)
            .rotate_left(23);
    }
    // Zero is a connection that had none.
    (hash >> 32) as u32 | 1 << 31
}
