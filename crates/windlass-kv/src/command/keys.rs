//! Commands on keys, whatever their values.

use std::str;

use super::{Answer, Call};
use crate::glob;
use crate::integer;
use crate::refusal::Refusal;
use crate::text::Text;

pub(super) fn del<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let keys = call.args.from(1);
    call.access.lock_all_of(keys.clone());
    let mut count = 0;
    for key in keys {
        let (shard, key) = call.access.shard(key);
        if let Some(place) = shard.find(key, call.now_ms) {
            shard.remove(place);
            count += 1;
        }
    }
    call.reply.count(count);
    Ok(())
}

pub(super) fn exists<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let keys = call.args.from(1);
    call.access.lock_all_of(keys.clone());
    let mut count = 0;
    for key in keys {
        let (shard, key) = call.access.shard(key);
        count += usize::from(shard.find(key, call.now_ms).is_some());
    }
    call.reply.count(count);
    Ok(())
}

pub(super) fn kind<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    let is_there = shard.find(key, call.now_ms).is_some();
    call.reply.simple(if is_there { "string" } else { "none" });
    Ok(())
}

pub(super) fn dbsize<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let count = call.access.all().map(|shard| shard.len()).sum();
    call.reply.count(count);
    Ok(())
}

pub(super) fn flush<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    match call.args.get(1) {
        None => {}
        Some(how) if call.args.len() == 2 && is_flush_mode(how) => {}
        Some(_) => return Err(Refusal::Syntax),
    }
    let removed: Vec<_> = call.access.all().map(|shard| shard.take_all()).collect();
    // Dropping takes long; nobody has to wait for it.
    call.access.release();
    drop(removed);
    call.reply.ok();
    Ok(())
}

fn is_flush_mode(how: &[u8]) -> bool {
    how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async")
}

pub(super) fn keys<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (pattern, now_ms) = (call.args.at(1), call.now_ms);
    let mut found = Vec::new();
    for shard in call.access.all() {
        shard.walk(usize::MAX, usize::MAX, now_ms, |key| {
            if glob::matches(pattern, key) {
                found.push(key.clone());
            }
        });
    }
    call.access.release();
    answer_keys(call, &found);
    Ok(())
}

/// Where a scan goes on. Starts at 0 and ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    shard: usize,
    /// What is still to be met of it is below.
    end: usize,
}

impl Cursor {
    const END_BITS: u32 = 48;
    const END_MAX: usize = (1 << Self::END_BITS) - 1;

    fn parse(text: &[u8]) -> Option<Self> {
        let number: u64 = str::from_utf8(text).ok()?.parse().ok()?;
        let shard = (number >> Self::END_BITS) as usize;
        Some(match number {
            0 => Self::start_of(0),
            _ => Self {
                shard,
                end: number as usize & Self::END_MAX,
            },
        })
    }

    fn start_of(shard: usize) -> Self {
        let end = Self::END_MAX;
        Self { shard, end }
    }

    fn number(self) -> u64 {
        (self.shard as u64) << Self::END_BITS | self.end as u64
    }
}

/// What a scan gives.
#[derive(Debug)]
struct ScanOptions<'c> {
    /// How many entries are looked at.
    count: usize,
    pattern: Option<&'c [u8]>,
    /// Whether it asks for strings, or for all kinds; there is no other.
    takes_strings: bool,
}

impl<'c> ScanOptions<'c> {
    fn parse(mut args: impl Iterator<Item = &'c [u8]>) -> Result<Self, Refusal<'c>> {
        let mut options = Self {
            count: 10,
            pattern: None,
            takes_strings: true,
        };
        while let Some(name) = args.next() {
            let value = args.next().ok_or(Refusal::Syntax)?;
            match &name.to_ascii_lowercase()[..] {
                b"count" => {
                    let count = integer::parse(value).ok_or(Refusal::NotAnInteger)?;
                    options.count = match usize::try_from(count) {
                        Ok(count @ 1..) => count,
                        _ => return Err(Refusal::Syntax),
                    };
                }
                b"match" => options.pattern = Some(value),
                b"type" => options.takes_strings = value.eq_ignore_ascii_case(b"string"),
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }

    fn take(&self, key: &Text) -> bool {
        self.takes_strings
            && self
                .pattern
                .is_none_or(|pattern| glob::matches(pattern, key))
    }
}

pub(super) fn scan<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let mut cursor = Cursor::parse(call.args.at(1)).ok_or(Refusal::BadCursor)?;
    let options = ScanOptions::parse(call.args.from(2))?;
    let (mut found, mut left) = (Vec::new(), options.count);
    let next = loop {
        let Some(shard) = call.access.nth(cursor.shard) else {
            break 0;
        };
        let end = cursor.end.min(shard.len());
        cursor.end = shard.walk(end, left, call.now_ms, |key| {
            if options.take(key) {
                found.push(key.clone());
            }
        });
        left -= end - cursor.end;
        if cursor.end == 0 {
            cursor = Cursor::start_of(cursor.shard + 1);
        } else {
            break cursor.number();
        }
    };
    call.access.release();
    call.reply.array(2);
    call.reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    answer_keys(call, &found);
    Ok(())
}

fn answer_keys(call: &mut Call<'_, '_>, keys: &[Text]) {
    call.reply.array(keys.len());
    for key in keys {
        call.reply.bulk(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_only_the_start_is_zero() {
        for shard in [0, 1, 15] {
            for end in [1, 77, Cursor::END_MAX] {
                let cursor = Cursor { shard, end };
                let text = cursor.number().to_string();
                assert_ne!(text, "0");
                assert_eq!(Cursor::parse(text.as_bytes()), Some(cursor));
            }
        }
        assert_eq!(Cursor::parse(b"0"), Some(Cursor::start_of(0)));
        for text in ["", "x", "-1", " 1", "99999999999999999999"] {
            assert_eq!(Cursor::parse(text.as_bytes()), None);
        }
    }
}
