//! How sockets end: codes of close frames (RFC 6455 section 7.4), and what a handler is told.

use std::fmt;

use super::message::Text;

/// The code of a close frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the page is left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The protocol was broken.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// Messages of that kind are not taken.
    pub const UNSUPPORTED: Self = Self(1003);
    /// The data does not fit its kind: text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// A rule of the application was broken.
    pub const POLICY: Self = Self(1008);
    /// The message is too long.
    pub const TOO_LARGE: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);

    /// The code with this number, if it may be sent: one that the RFC or its registry defines for
    /// that (1000 to 1003, 1007 to 1014), or one of 3000 to 4999.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// One that came from a client, and was checked.
    pub(super) const fn received(code: u16) -> Self {
        Self(code)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloseCode({})", self.0)
    }
}

/// Why a socket is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The client closed it in order.
    ByPeer {
        /// Nothing if the client gave none.
        code: Option<CloseCode>,
        /// May be empty.
        reason: Text,
    },
    /// The server closed it: its handler, a sender, or a graceful stop.
    ByUs {
        /// As it was sent.
        code: CloseCode,
        /// Whether the client answered in time.
        acknowledged: bool,
    },
    /// The client broke the protocol or a limit, and was sent this code.
    Failed(CloseCode),
    /// The connection ended without a close frame.
    Lost,
    /// The client did not answer a ping.
    TimedOut,
}

/// The most bytes of a reason: a control frame has 125, two of which are the code (RFC 6455 section
/// 5.5).
const REASON_BYTES_MAX: usize = 123;

/// As much of `reason` as fits into a close frame.
pub(super) fn cut_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_may_be_sent_are_made() {
        for code in [1000, 1003, 1007, 1011, 1014, 3000, 4999] {
            assert_eq!(CloseCode::new(code).map(CloseCode::code), Some(code));
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535] {
            assert_eq!(CloseCode::new(code), None, "{code}");
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(cut_reason("short"), "short");
        assert_eq!(cut_reason(&"a".repeat(200)).len(), 123);
        assert_eq!(cut_reason(&"ä".repeat(100)).len(), 122);
    }
}
