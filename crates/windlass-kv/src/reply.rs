//! Replies, in the protocol's versions 2 and 3.
//!
//! Reference: the Redis serialization protocol specification.

use windlass::session::Output;

use crate::refusal::Refusal;
use crate::text::Text;

/// Values from so many bytes on are queued by reference.
const SHARE_BYTES: usize = 16 * 1024;

/// The version of the protocol that a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    #[default]
    Resp2,
    Resp3,
}

/// Writes replies of one connection.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    output: &'a mut Output,
    pub(crate) version: Version,
}

impl<'a> Reply<'a> {
    #[inline]
    pub(crate) fn new(output: &'a mut Output, version: Version) -> Self {
        Self { output, version }
    }

    #[inline]
    pub(crate) fn ok(&mut self) {
        self.output.push(b"+OK\r\n");
    }

    /// A short text without line ends.
    pub(crate) fn simple(&mut self, text: &str) {
        self.output.push_with(|bytes| {
            bytes.push(b'+');
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        });
    }

    #[cold]
    pub(crate) fn refusal(&mut self, refusal: &Refusal<'_>) {
        self.output.push_with(|bytes| {
            bytes.push(b'-');
            let start = bytes.len();
            refusal.write(bytes);
            // What the client sent may have line ends in it, which would end the reply.
            while bytes.len() > start && matches!(bytes.last(), Some(b'\r' | b'\n')) {
                bytes.pop();
            }
            for byte in &mut bytes[start..] {
                if matches!(byte, b'\r' | b'\n') {
                    *byte = b' ';
                }
            }
            bytes.extend_from_slice(b"\r\n");
        });
    }

    #[inline]
    pub(crate) fn integer(&mut self, number: i64) {
        self.head(b':', number);
    }

    /// A number of things.
    pub(crate) fn count(&mut self, count: usize) {
        self.head(b':', count as i64);
    }

    #[inline]
    pub(crate) fn bulk(&mut self, text: &[u8]) {
        self.output.push_with(|bytes| {
            let mut digits = itoa::Buffer::new();
            let len = digits.format(text.len()).as_bytes();
            bytes.reserve(len.len() + text.len() + 5);
            bytes.push(b'$');
            bytes.extend_from_slice(len);
            bytes.extend_from_slice(b"\r\n");
            bytes.extend_from_slice(text);
            bytes.extend_from_slice(b"\r\n");
        });
    }

    /// A value of the store; a long one is not copied.
    #[inline]
    pub(crate) fn value(&mut self, text: &Text) {
        if text.len() >= SHARE_BYTES
            && let Some(bytes) = text.share()
        {
            self.head(b'$', bytes.len() as i64);
            self.output.push_shared(bytes);
            self.output.push(b"\r\n");
        } else {
            self.bulk(text);
        }
    }

    /// Text for people, which version 3 says.
    pub(crate) fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.head(b'=', (text.len() + 4) as i64);
                self.output.push(b"txt:");
                self.output.push(text.as_bytes());
                self.output.push(b"\r\n");
            }
        }
    }

    #[inline]
    pub(crate) fn null(&mut self) {
        self.output.push(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// An array; its elements follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.head(b'*', count as i64);
    }

    /// Pairs; version 2 has an array of twice as many elements.
    pub(crate) fn map(&mut self, count: usize) {
        match self.version {
            Version::Resp2 => self.array(count * 2),
            Version::Resp3 => self.head(b'%', count as i64),
        }
    }

    /// A set; version 2 has an array.
    pub(crate) fn set(&mut self, count: usize) {
        match self.version {
            Version::Resp2 => self.array(count),
            Version::Resp3 => self.head(b'~', count as i64),
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, number: i64) {
        self.output.push_with(|bytes| {
            let mut digits = itoa::Buffer::new();
            bytes.push(kind);
            bytes.extend_from_slice(digits.format(number).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        });
    }
}
