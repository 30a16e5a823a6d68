//! Bytes to be sent or written, owned by the operation that does it.

use bytes::Bytes;

/// Bytes to be sent or written: a vector that comes back, or shared bytes. What was done already
/// is skipped by [`advance`](Self::advance).
#[derive(Clone, Debug)]
pub struct Payload {
    storage: Storage,
    start: usize,
}

#[derive(Clone, Debug)]
enum Storage {
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Payload {
    /// What is left of it.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        let all: &[u8] = match &self.storage {
            Storage::Owned(vec) => vec,
            Storage::Shared(bytes) => bytes,
        };
        &all[self.start..]
    }

    /// Skips `count` bytes; all that there are, if they are fewer.
    pub fn advance(&mut self, count: usize) {
        self.start += count.min(self.as_slice().len());
    }

    /// The vector that it was made from, whole; `None` if it was made from shared bytes.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.storage {
            Storage::Owned(vec) => Some(vec),
            Storage::Shared(_) => None,
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(vec: Vec<u8>) -> Self {
        Self {
            storage: Storage::Owned(vec),
            start: 0,
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self {
            storage: Storage::Shared(bytes),
            start: 0,
        }
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_skipped_and_the_whole_comes_back() {
        let mut payload = Payload::from(b"hello".to_vec());
        payload.advance(2);
        assert_eq!(payload.as_slice(), b"llo");
        payload.advance(9);
        assert_eq!(payload.as_slice(), b"");
        assert_eq!(payload.into_vec().as_deref(), Some(&b"hello"[..]));
        let shared = Payload::from(&b"static"[..]);
        assert_eq!(shared.as_slice(), b"static");
        assert_eq!(shared.into_vec(), None);
    }
}
