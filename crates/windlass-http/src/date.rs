//! The current date as HTTP writes it (RFC 9110 section 5.6.7), formatted once per second.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// Length of an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) const DATE_BYTES: usize = 29;

/// The last second that `httpdate` can write: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// A formatted date and the second it is valid for.
#[derive(Debug)]
pub(crate) struct CachedDate {
    text: [u8; DATE_BYTES],
    /// The second's first millisecond.
    from_ms: u64,
}

impl CachedDate {
    pub(crate) fn new(unix_ms: u64) -> Self {
        let second = (unix_ms / 1000).min(LAST_SECOND);
        Self {
            text: format_date(second),
            from_ms: second * 1000,
        }
    }

    /// Formats anew if `unix_ms` is in another second.
    #[inline]
    pub(crate) fn update(&mut self, unix_ms: u64) {
        if unix_ms.wrapping_sub(self.from_ms) >= 1000 {
            *self = Self::new(unix_ms);
        }
    }

    pub(crate) fn text(&self) -> &[u8; DATE_BYTES] {
        &self.text
    }
}

/// `unix_seconds` as an IMF-fixdate; later than the year 9999 is its end.
pub(crate) fn format_date(unix_seconds: u64) -> [u8; DATE_BYTES] {
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(LAST_SECOND));
    let mut text = [0; DATE_BYTES];
    write!(&mut text[..], "{}", HttpDate::from(time)).expect("an IMF-fixdate has 29 bytes");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_changes_with_the_second_and_follows_jumps_back() {
        let mut date = CachedDate::new(784_111_777_000);
        assert_eq!(date.text(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        date.update(784_111_777_999);
        assert_eq!(date.text(), b"Sun, 06 Nov 1994 08:49:37 GMT");
        date.update(784_111_778_000);
        assert_eq!(date.text(), b"Sun, 06 Nov 1994 08:49:38 GMT");
        date.update(0);
        assert_eq!(date.text(), b"Thu, 01 Jan 1970 00:00:00 GMT");
        date.update(u64::MAX);
        assert_eq!(date.text(), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
