//! Byte string of the store: short ones lie in the entry itself, long ones are shared.
//!
//! Most keys and many values are short, and then a look-up touches no memory but the entry. Long
//! ones are counted references, so that an answer can go on being sent while the value is replaced:
//! then a writer makes a copy, else it writes in place.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Bytes that lie in the string itself.
const INLINE_BYTES: usize = 22;

/// A byte string of 24 bytes, with up to 22 in place.
#[derive(Clone)]
pub(crate) enum Text {
    /// The first `len` bytes.
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    /// The others.
    Shared(Arc<Vec<u8>>),
}

impl Text {
    /// A copy of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_BYTES {
            return Self::Shared(Arc::new(bytes.to_vec()));
        }
        let mut place = [0; INLINE_BYTES];
        place[..bytes.len()].copy_from_slice(bytes);
        Self::Inline {
            // At most 22.
            len: bytes.len() as u8,
            bytes: place,
        }
    }

    /// Becomes a copy of `bytes`; keeps its memory if nobody else has it and it fits well.
    #[inline]
    pub(crate) fn assign(&mut self, bytes: &[u8]) {
        if bytes.len() > INLINE_BYTES
            && let Self::Shared(shared) = self
            && let Some(vec) = Arc::get_mut(shared)
            && vec.capacity() >= bytes.len()
            && vec.capacity() / 2 <= bytes.len()
        {
            vec.clear();
            vec.extend_from_slice(bytes);
            return;
        }
        *self = Self::new(bytes);
    }

    /// Appends `bytes`; copies what is there only if an answer still has it.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if let Self::Shared(shared) = self {
            Arc::make_mut(shared).extend_from_slice(bytes);
            return;
        }
        let mut whole = Vec::with_capacity(self.len() + bytes.len());
        whole.extend_from_slice(self);
        whole.extend_from_slice(bytes);
        self.assign(&whole);
    }

    /// The same bytes without a copy, if they are counted.
    pub(crate) fn share(&self) -> Option<Bytes> {
        match self {
            Self::Inline { .. } => None,
            Self::Shared(shared) => Some(Bytes::from_owner(Owner(Arc::clone(shared)))),
        }
    }
}

/// What keeps shared bytes alive.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::Deref for Text {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Shared(shared) => shared,
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

const _: () = assert!(size_of::<Text>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_kept_by_every_way_of_writing() {
        let all: Vec<u8> = (0..100).collect();
        for len in 0..all.len() {
            let (front, back) = all[..len].split_at(len / 3);
            assert_eq!(&*Text::new(&all[..len]), &all[..len]);
            let mut text = Text::new(front);
            text.append(back);
            assert_eq!(&*text, &all[..len]);
            for before in 0..all.len() {
                let mut text = Text::new(&all[..before]);
                text.assign(&all[..len]);
                assert_eq!(&*text, &all[..len]);
            }
        }
    }

    #[test]
    fn a_shared_answer_keeps_its_bytes_when_the_value_changes() {
        let long = [b'a'; 100];
        let mut text = Text::new(&long);
        let answer = text.share().expect("counted");
        text.append(b"b");
        assert_eq!((&answer[..], text.len()), (&long[..], 101));
        let answer = text.share().expect("counted");
        text.assign(&[b'c'; 101]);
        assert_eq!((answer[100], text[100]), (b'b', b'c'));
    }
}
