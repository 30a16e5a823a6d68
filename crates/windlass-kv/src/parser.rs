//! Parser of requests: arrays of bulk strings, and inline commands, read in place.
//!
//! It remembers how far it came, so that input that comes in pieces is looked at once. Bytes of one
//! command are given from its first one on, in one piece; arguments are ranges of them.
//!
//! Says what is wrong in the words of Redis, and takes what it takes: the two bytes behind a bulk
//! string are skipped whatever they are.
//!
//! Reference: the Redis serialization protocol specification, "Sending commands to a Redis server"
//! and "Inline commands".

mod inline;

use std::ops::Range;

use crate::config::Config;
use crate::integer;

/// An inline command, or the line before a bulk string, may be so long.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Reads commands. One that is half read stays in it.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// What was read of the arguments.
    args: Vec<Range<usize>>,
    /// Arguments that are still to come.
    left: usize,
    /// Where it goes on, from the first byte of the command.
    at: usize,
    /// The length of the bulk string that comes next, when its line was read.
    bulk_len: Option<usize>,
    /// The arguments of an inline command, without quotes: they can't be read in place.
    unquoted: Vec<u8>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A command; it is so long.
    Command { consumed: usize, form: Form },
    /// More input is needed: so many bytes at least.
    Incomplete { needed: usize },
    /// An empty line, or an array without elements: nothing to be answered.
    Nothing { consumed: usize },
}

/// How a command was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Array,
    Inline,
}

/// What is wrong with the input; nothing behind it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// This byte is where a dollar should be.
    ExpectedDollar(u8),
    InvalidBulkLength,
    InvalidMultibulkLength,
    TooBigBulkCount,
    TooBigCommand,
    TooBigInline,
    TooBigMultibulkCount,
    UnbalancedQuotes,
}

/// A command's name and arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range<usize>],
}

/// A number's line.
enum Line {
    /// The number, if it is one, and where the next line begins.
    Number(Option<i64>, usize),
    Partial,
    TooLong,
}

impl Parser {
    /// Whether a command was begun.
    pub(crate) fn is_midway(&self) -> bool {
        self.at > 0
    }

    /// Gives the memory for ranges away, or takes some, between two commands.
    #[inline]
    pub(crate) fn swap_spare(&mut self, spare: &mut Vec<Range<usize>>) {
        if !self.is_midway() {
            std::mem::swap(&mut self.args, spare);
        }
    }

    /// Goes on with `bytes`, which start where the command does.
    #[inline]
    pub(crate) fn parse(&mut self, bytes: &[u8], config: &Config) -> Result<Found, ProtocolError> {
        if self.left == 0 {
            match bytes.first() {
                None => return Ok(Found::Incomplete { needed: 1 }),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(bytes),
            }
            if let Some(found) = self.parse_count(bytes, config)? {
                return Ok(found);
            }
        }
        while self.left > 0 {
            let Some(len) = self.bulk_len else {
                if !self.parse_bulk_len(bytes, config)? {
                    return Ok(Found::Incomplete { needed: 1 });
                }
                continue;
            };
            let end = self.at + len;
            if bytes.len() < end + 2 {
                let needed = end + 2 - bytes.len();
                return Ok(Found::Incomplete { needed });
            }
            self.args.push(self.at..end);
            self.at = end + 2;
            self.bulk_len = None;
            self.left -= 1;
        }
        let consumed = std::mem::take(&mut self.at);
        let form = Form::Array;
        Ok(Found::Command { consumed, form })
    }

    /// The arguments of the command that was found in `bytes`.
    #[inline]
    pub(crate) fn args<'a>(&'a self, bytes: &'a [u8], form: Form) -> Args<'a> {
        let bytes = match form {
            Form::Array => bytes,
            Form::Inline => &self.unquoted,
        };
        let ranges = &self.args;
        Args { bytes, ranges }
    }

    /// Reads how many arguments there are; answers what was found if it is no command.
    #[inline]
    fn parse_count(
        &mut self,
        bytes: &[u8],
        config: &Config,
    ) -> Result<Option<Found>, ProtocolError> {
        let (count, next) = match read_number(bytes, 1) {
            Line::Number(count, next) => (count, next),
            Line::Partial => return Ok(Some(Found::Incomplete { needed: 1 })),
            Line::TooLong => return Err(ProtocolError::TooBigMultibulkCount),
        };
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        // Less than none is none.
        let count = usize::try_from(count).unwrap_or(0);
        if count > config.args_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count == 0 {
            return Ok(Some(Found::Nothing { consumed: next }));
        }
        self.args.clear();
        self.left = count;
        self.at = next;
        Ok(None)
    }

    /// Reads the length of the next bulk string; answers whether all of the line was there.
    #[inline]
    fn parse_bulk_len(&mut self, bytes: &[u8], config: &Config) -> Result<bool, ProtocolError> {
        let (len, next) = match read_number(bytes, self.at + 1) {
            Line::Number(len, next) => (len, next),
            Line::Partial => return Ok(false),
            Line::TooLong => return Err(ProtocolError::TooBigBulkCount),
        };
        if bytes[self.at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(bytes[self.at]));
        }
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len
            .filter(|&len| len <= config.bulk_bytes_max)
            .ok_or(ProtocolError::InvalidBulkLength)?;
        if next + len > config.command_bytes_max {
            return Err(ProtocolError::TooBigCommand);
        }
        self.bulk_len = Some(len);
        self.at = next;
        Ok(true)
    }

    #[cold]
    fn parse_inline(&mut self, bytes: &[u8]) -> Result<Found, ProtocolError> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            if bytes.len() > LINE_BYTES_MAX {
                return Err(ProtocolError::TooBigInline);
            }
            return Ok(Found::Incomplete { needed: 1 });
        };
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let consumed = end + 1;
        self.args.clear();
        self.unquoted.clear();
        inline::split(line, &mut self.unquoted, &mut self.args)
            .ok_or(ProtocolError::UnbalancedQuotes)?;
        Ok(if self.args.is_empty() {
            Found::Nothing { consumed }
        } else {
            let form = Form::Inline;
            Found::Command { consumed, form }
        })
    }
}

/// Reads the number between `from` and the end of its line.
#[inline]
fn read_number(bytes: &[u8], from: usize) -> Line {
    // Nearly all are of one to three digits.
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(from).take(8) {
        if byte.is_ascii_digit() && (value > 0 || at == from) {
            value = value * 10 + i64::from(byte - b'0');
        } else if byte == b'\r' && at > from && at + 1 < bytes.len() {
            return Line::Number(Some(value), at + 2);
        } else {
            break;
        }
    }
    read_any_number(bytes, from)
}

#[cold]
fn read_any_number(bytes: &[u8], from: usize) -> Line {
    // The byte before it belongs to the line.
    let line = bytes.get(from - 1..).unwrap_or_default();
    let Some(len) = memchr::memchr(b'\r', line) else {
        return if line.len() > LINE_BYTES_MAX {
            Line::TooLong
        } else {
            Line::Partial
        };
    };
    if line.len() < len + 2 {
        return Line::Partial;
    }
    let number = line.get(1..len).and_then(integer::parse);
    Line::Number(number, from - 1 + len + 2)
}

impl<'a> Args<'a> {
    /// How many there are, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The name is argument 0.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.ranges[index].clone()]
    }

    /// Argument `index`, if there are so many.
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.len()).then(|| self.at(index))
    }

    /// Those from `index` on.
    pub(crate) fn from(self, index: usize) -> impl Iterator<Item = &'a [u8]> + Clone {
        let Self { bytes, ranges } = self;
        let rest = ranges.get(index..).unwrap_or_default();
        rest.iter().map(move |range| &bytes[range.clone()])
    }
}

#[cfg(test)]
mod tests;
