//! The output queue of a connection: bytes and file segments, in order, with a high and a low mark.
//!
//! Small pieces are copied into one contiguous buffer, so that the answers of pipelined requests
//! leave in one write; large shared bodies and file segments are queued by reference. The queue
//! has no upper limit of its own: a producer asks [`Output::is_full`] and pauses.

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

/// Queued output: bytes and file segments.
#[derive(Debug, Default)]
pub struct Output {
    /// All copied bytes that are not sent yet; starts at `bytes_sent`.
    bytes: Vec<u8>,
    bytes_sent: usize,
    segments: VecDeque<Segment>,
    /// The copied bytes behind the last segment. Most queues have nothing else.
    tail_len: usize,
    queued_bytes: u64,
    limits: OutputLimits,
}

/// When a producer pauses and resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// At or above this the queue is full. Default 256 KiB.
    pub high_bytes: u64,
    /// At or below this a paused producer is resumed. Default 64 KiB.
    pub low_bytes: u64,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            high_bytes: 256 * 1024,
            low_bytes: 64 * 1024,
        }
    }
}

#[derive(Debug)]
enum Segment {
    /// The next so many of the copied bytes.
    Copied(usize),
    Shared(Bytes),
    File {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
}

/// What is to be sent first.
#[derive(Debug)]
pub enum Front<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// `len` bytes of `file` from `offset` on.
    File {
        /// The open file.
        file: &'a Arc<File>,
        /// Where to go on.
        offset: u64,
        /// How many bytes are still owed; never zero.
        len: u64,
    },
}

/// What was [taken](Output::take_front) from a queue, for an operation that owns it.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Bytes in a buffer of their own.
    Copied(Vec<u8>),
    /// A file segment.
    File {
        file: Arc<File>,
        offset: u64,
        len: u64,
    },
    /// Shared bytes.
    Shared(Bytes),
}

/// A buffer that grew beyond this is not kept when it is empty.
const KEEP_BYTES: usize = 64 * 1024;
/// Sent bytes at the front are dropped from the buffer beyond this.
const COMPACT_BYTES: usize = 64 * 1024;

impl Output {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: OutputLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.count_copied(bytes.len());
    }

    /// Appends what `write` appends to the buffer it is given. `write` must only append.
    ///
    /// # Panics
    ///
    /// If `write` left the buffer shorter than it was.
    #[inline]
    pub fn push_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.bytes.len();
        let result = write(&mut self.bytes);
        let added = self
            .bytes
            .len()
            .checked_sub(before)
            .expect("push_with must only append");
        self.count_copied(added);
        result
    }

    /// Appends `bytes` by reference; worth it from a few KiB up.
    pub fn push_shared(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queued_bytes += bytes.len() as u64;
            self.end_tail();
            self.segments.push_back(Segment::Shared(bytes));
        }
    }

    /// Appends `len` bytes of `file` from `offset` on, to be sent without passing through user
    /// memory where the driver can.
    pub fn push_file(&mut self, file: Arc<File>, offset: u64, len: u64) {
        if len > 0 {
            self.queued_bytes = self.queued_bytes.saturating_add(len);
            self.end_tail();
            self.segments.push_back(Segment::File { file, offset, len });
        }
    }

    /// Moves all that is queued in `other` behind what is queued here; the marks stay. Of bytes that
    /// were copied the buffer moves, if nothing is queued here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
            std::mem::swap(&mut self.limits, &mut other.limits);
            return;
        }
        let mut at = other.bytes_sent;
        for segment in other.segments.drain(..) {
            match segment {
                Segment::Copied(len) => {
                    self.push(&other.bytes[at..at + len]);
                    at += len;
                }
                Segment::Shared(bytes) => self.push_shared(bytes),
                Segment::File { file, offset, len } => self.push_file(file, offset, len),
            }
        }
        self.push(&other.bytes[at..]);
        other.clear();
    }

    /// Its marks.
    #[must_use]
    pub fn limits(&self) -> OutputLimits {
        self.limits
    }

    /// How many bytes are queued, file segments included.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Whether nothing is queued.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// Whether a producer should pause: the high mark is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queued_bytes >= self.limits.high_bytes
    }

    /// Whether a paused producer may resume: the low mark is reached.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.queued_bytes <= self.limits.low_bytes
    }

    /// What is to be sent first, or nothing.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<Front<'_>> {
        let Some(front) = self.segments.front() else {
            let tail = &self.bytes[self.bytes_sent..];
            return (!tail.is_empty()).then_some(Front::Bytes(tail));
        };
        Some(match front {
            Segment::Copied(len) => {
                Front::Bytes(&self.bytes[self.bytes_sent..self.bytes_sent + len])
            }
            Segment::Shared(bytes) => Front::Bytes(bytes),
            Segment::File { file, offset, len } => Front::File {
                file,
                offset: *offset,
                len: *len,
            },
        })
    }

    /// All that is queued, if it is bytes that were copied and nothing else.
    #[must_use]
    #[inline]
    pub fn as_copied(&self) -> Option<&[u8]> {
        let tail = &self.bytes[self.bytes_sent..];
        (self.segments.is_empty() && !tail.is_empty()).then_some(tail)
    }

    /// Whether more is queued behind the front (a driver may then ask the kernel to wait for it).
    #[must_use]
    pub fn has_more_behind_front(&self) -> bool {
        self.segments.len() + usize::from(self.tail_len > 0) > 1
    }

    /// Fills `slices` with the bytes up to the first file segment; answers how many were filled.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.bytes_sent;
        let mut filled = 0;
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            *slot = match segment {
                Segment::Copied(len) => {
                    at += len;
                    IoSlice::new(&self.bytes[at - len..at])
                }
                Segment::Shared(bytes) => IoSlice::new(bytes),
                Segment::File { .. } => break,
            };
            filled += 1;
        }
        if filled == self.segments.len()
            && self.tail_len > 0
            && let Some(slot) = slices.get_mut(filled)
        {
            *slot = IoSlice::new(&self.bytes[at..]);
            filled += 1;
        }
        filled
    }

    /// Drops the first `count` bytes: they were sent.
    ///
    /// # Panics
    ///
    /// If fewer are queued.
    #[inline]
    pub fn advance(&mut self, mut count: u64) {
        self.queued_bytes = self
            .queued_bytes
            .checked_sub(count)
            .expect("advance beyond the queued output");
        while count > 0 {
            let Some(front) = self.segments.front_mut() else {
                // All that is left, and so in memory: it fits.
                self.tail_len -= count as usize;
                self.bytes_sent += count as usize;
                break;
            };
            let step = match front {
                Segment::Copied(len) => {
                    // Bounded by a length in memory, so it fits.
                    let step = (*len as u64).min(count) as usize;
                    *len -= step;
                    self.bytes_sent += step;
                    if *len == 0 {
                        self.segments.pop_front();
                    }
                    step as u64
                }
                Segment::Shared(bytes) => {
                    let step = (bytes.len() as u64).min(count);
                    bytes::Buf::advance(bytes, step as usize);
                    if bytes.is_empty() {
                        self.segments.pop_front();
                    }
                    step
                }
                Segment::File { offset, len, .. } => {
                    let step = (*len).min(count);
                    *offset += step;
                    *len -= step;
                    if *len == 0 {
                        self.segments.pop_front();
                    }
                    step
                }
            };
            count -= step;
        }
        self.reclaim();
    }

    /// Takes what is to be sent first out of the queue, at most `file_bytes_max` of a file. `spare` is
    /// an empty buffer in exchange: if nothing but copied bytes are queued they leave without being
    /// copied again; it comes back in `spare` if it was not used.
    pub(crate) fn take_front(&mut self, spare: &mut Vec<u8>, file_bytes_max: u64) -> Option<Taken> {
        if self.segments.is_empty() && self.bytes_sent == 0 {
            if self.bytes.is_empty() {
                return None;
            }
            self.tail_len = 0;
            self.queued_bytes = 0;
            let taken = std::mem::replace(&mut self.bytes, std::mem::take(spare));
            return Some(Taken::Copied(taken));
        }
        let (taken, len) = match (self.segments.front(), self.front()?) {
            (Some(Segment::Shared(bytes)), _) => (Taken::Shared(bytes.clone()), bytes.len() as u64),
            (_, Front::Bytes(bytes)) => {
                let mut taken = std::mem::take(spare);
                taken.extend_from_slice(bytes);
                (Taken::Copied(taken), bytes.len() as u64)
            }
            (_, Front::File { file, offset, len }) => {
                let (file, len) = (Arc::clone(file), len.min(file_bytes_max));
                (Taken::File { file, offset, len }, len)
            }
        };
        self.advance(len);
        Some(taken)
    }

    /// Drops all that is queued; keeps a modest buffer for the next use.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.tail_len = 0;
        self.queued_bytes = 0;
        self.bytes_sent = self.bytes.len();
        self.reclaim();
    }

    /// Keeps the copied bytes small: empties the buffer when all were sent, else drops a long
    /// sent part at its front.
    fn reclaim(&mut self) {
        if self.bytes_sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes_sent = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes.shrink_to(KEEP_BYTES);
            }
        } else if self.bytes_sent >= COMPACT_BYTES {
            self.bytes.drain(..self.bytes_sent);
            self.bytes_sent = 0;
        }
    }

    #[inline]
    fn count_copied(&mut self, added: usize) {
        self.queued_bytes += added as u64;
        self.tail_len += added;
    }

    /// Something else follows the copied bytes at the end.
    fn end_tail(&mut self) {
        if self.tail_len > 0 {
            self.segments.push_back(Segment::Copied(self.tail_len));
            self.tail_len = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_pieces_merge_into_one_front() {
        let mut output = Output::default();
        output.push(b"one ");
        output.push(b"two");
        let Some(Front::Bytes(bytes)) = output.front() else {
            panic!("no bytes")
        };
        assert_eq!(bytes, b"one two");
        output.advance(4);
        let Some(Front::Bytes(bytes)) = output.front() else {
            panic!("no bytes")
        };
        assert_eq!(bytes, b"two");
        output.advance(3);
        assert!(output.is_empty() && output.front().is_none());
    }

    #[test]
    fn order_of_copied_shared_and_copied_is_kept() {
        let mut output = Output::default();
        output.push(b"ab");
        output.push_shared(Bytes::from_static(b"cd"));
        output.push(b"ef");
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = output.io_slices(&mut slices);
        let joined: Vec<u8> = slices[..filled]
            .iter()
            .flat_map(|s| s.iter().copied())
            .collect();
        assert_eq!(joined, b"abcdef");
        output.advance(3);
        assert_eq!(output.queued_bytes(), 3);
        let Some(Front::Bytes(bytes)) = output.front() else {
            panic!("no bytes")
        };
        assert_eq!(bytes, b"d");
    }

    #[test]
    fn any_mix_leaves_in_order_whatever_the_steps() {
        for step in 1..20_u64 {
            let mut output = Output::default();
            let mut expected = Vec::new();
            let mut sent = Vec::new();
            for round in 0..50_u8 {
                let piece = [round; 7];
                match round % 4 {
                    0 | 1 => output.push(&piece),
                    2 => output.push_shared(Bytes::copy_from_slice(&piece)),
                    _ => output.push_with(|bytes| bytes.extend_from_slice(&piece)),
                }
                expected.extend_from_slice(&piece);
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = output.io_slices(&mut slices);
                let gathered: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                let Some(Front::Bytes(front)) = output.front() else {
                    panic!("no front")
                };
                assert!(gathered.starts_with(front));
                let count = (step as usize).min(gathered.len());
                sent.extend_from_slice(&gathered[..count]);
                output.advance(count as u64);
            }
            while let Some(Front::Bytes(front)) = output.front() {
                let count = front.len().min(step as usize);
                sent.extend_from_slice(&front[..count]);
                output.advance(count as u64);
            }
            assert_eq!(sent, expected);
            assert!(output.is_empty() && output.queued_bytes() == 0);
        }
    }

    #[test]
    fn what_is_taken_is_what_would_have_been_sent() {
        let mut output = Output::default();
        let mut spare = Vec::new();
        assert!(output.take_front(&mut spare, 1).is_none());
        output.push(b"alone");
        let Some(Taken::Copied(bytes)) = output.take_front(&mut spare, 1) else {
            panic!("no bytes")
        };
        assert_eq!(bytes, b"alone");
        assert!(output.is_empty());
        let file = Arc::new(File::open("/dev/null").expect("open"));
        output.push(b"ab");
        output.push_shared(Bytes::from_static(b"cd"));
        output.push_file(file, 7, 5);
        output.push(b"ef");
        output.advance(1);
        let mut sent = Vec::new();
        while let Some(taken) = output.take_front(&mut spare, 3) {
            match taken {
                Taken::Copied(bytes) => sent.extend(bytes),
                Taken::Shared(bytes) => sent.extend(bytes),
                Taken::File { offset, len, .. } => {
                    sent.extend(format!("[{offset}+{len}]").into_bytes());
                }
            }
        }
        assert_eq!(sent, b"bcd[7+3][10+2]ef");
        assert!(output.is_empty());
        output.push(b"again");
        assert_eq!(output.queued_bytes(), 5);
    }

    #[test]
    fn a_queue_moves_behind_another() {
        let fill = |output: &mut Output, letter: u8| {
            output.push(&[letter; 3]);
            output.push_shared(Bytes::from(vec![letter + 1; 2]));
            output.push(&[letter + 2; 4]);
        };
        let mut other = Output::default();
        let mut output = Output::new(OutputLimits {
            high_bytes: 10,
            low_bytes: 4,
        });
        for (round, letter) in [(1, b'a'), (2, b'd')] {
            fill(&mut other, letter);
            output.append(&mut other);
            assert!(other.is_empty() && other.front().is_none());
            assert_eq!(output.queued_bytes(), 9 * round - (round - 1));
            if round == 1 {
                output.advance(1);
            }
        }
        assert_eq!(output.limits().high_bytes, 10);
        let mut sent = Vec::new();
        while let Some(Front::Bytes(bytes)) = output.front() {
            sent.extend_from_slice(bytes);
            let count = bytes.len() as u64;
            output.advance(count);
        }
        assert_eq!(sent, b"aabbccccdddeeffff");
        assert!(output.is_empty());
    }

    #[test]
    fn marks_have_hysteresis() {
        let mut output = Output::new(OutputLimits {
            high_bytes: 10,
            low_bytes: 4,
        });
        output.push(&[0; 10]);
        assert!(output.is_full() && !output.is_low());
        output.advance(5);
        assert!(!output.is_full() && !output.is_low());
        output.advance(1);
        assert!(output.is_low());
    }

    #[test]
    #[should_panic(expected = "beyond the queued output")]
    fn advancing_beyond_the_queue_panics() {
        Output::default().advance(1);
    }
}
