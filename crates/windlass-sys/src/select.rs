//! pselect6(2): waiting for the descriptors of three bit sets, of any size.
//!
//! The C library's `fd_set` holds 1024 descriptors; the kernel takes as many words as it is told
//! of. [`FdSet`] grows, and the call is made directly.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use crate::errno;
use crate::timespec;

const BITS: usize = c_ulong::BITS as usize;

/// A set of descriptors: one bit each.
#[derive(Clone, Debug, Default)]
pub struct FdSet {
    words: Vec<c_ulong>,
}

impl FdSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `fd` in; the set grows as needed.
    ///
    /// # Panics
    ///
    /// If `fd` is negative.
    pub fn insert(&mut self, fd: RawFd) {
        let (word, bit) = position(fd).expect("a descriptor is not negative");
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Takes `fd` out, if it is in.
    pub fn remove(&mut self, fd: RawFd) {
        if let Some((word, bit)) = position(fd)
            && let Some(word) = self.words.get_mut(word)
        {
            *word &= !bit;
        }
    }

    /// Takes everything out; keeps the memory.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Makes this set equal to `other`, without allocating if it is large enough.
    pub fn copy_from(&mut self, other: &Self) {
        self.words.clone_from(&other.words);
    }

    /// Whether `fd` is in.
    #[must_use]
    pub fn contains(&self, fd: RawFd) -> bool {
        position(fd)
            .is_some_and(|(word, bit)| self.words.get(word).is_some_and(|word| word & bit != 0))
    }

    /// How many descriptors the set spans: one more than the largest in it.
    #[must_use]
    pub fn span(&self) -> usize {
        let Some(last) = self.words.iter().rposition(|&word| word != 0) else {
            return 0;
        };
        (last + 1) * BITS - self.words[last].leading_zeros() as usize
    }

    /// Calls `found` for each descriptor that is in any of `sets`, ascending, with whether it is
    /// in the first, the second and the third; stops when it answers `false`.
    pub fn each_in(sets: [&Self; 3], mut found: impl FnMut(RawFd, [bool; 3]) -> bool) {
        let length = sets.iter().map(|set| set.words.len()).max().unwrap_or(0);
        for index in 0..length {
            let words = sets.map(|set| set.words.get(index).copied().unwrap_or(0));
            let mut any = words[0] | words[1] | words[2];
            while any != 0 {
                let bit = any & any.wrapping_neg();
                any &= !bit;
                let number = index * BITS + bit.trailing_zeros() as usize;
                let Ok(fd) = RawFd::try_from(number) else {
                    return;
                };
                if !found(fd, words.map(|word| word & bit != 0)) {
                    return;
                }
            }
        }
    }

    /// The words, at least as many as `span` needs.
    fn words_for(&mut self, span: usize) -> *mut c_ulong {
        let needed = span.div_ceil(BITS);
        if needed > self.words.len() {
            self.words.resize(needed, 0);
        }
        self.words.as_mut_ptr()
    }
}

/// The three sets of one [`select`]: wanted before the call, found after it.
#[derive(Clone, Debug, Default)]
pub struct FdSets {
    /// A read would not block.
    pub read: FdSet,
    /// A write would not block.
    pub write: FdSet,
    /// An exceptional condition: urgent data.
    pub except: FdSet,
}

impl FdSets {
    /// Makes these sets equal to `other`, without allocating if they are large enough.
    pub fn copy_from(&mut self, other: &Self) {
        self.read.copy_from(&other.read);
        self.write.copy_from(&other.write);
        self.except.copy_from(&other.except);
    }

    /// Takes everything out of all; keeps the memory.
    pub fn clear(&mut self) {
        self.read.clear();
        self.write.clear();
        self.except.clear();
    }

    /// One more than the largest descriptor in any.
    #[must_use]
    pub fn span(&self) -> usize {
        self.read
            .span()
            .max(self.write.span())
            .max(self.except.span())
    }
}

/// Waits until a descriptor below `span` is ready for what its sets say or `timeout` is over
/// (`None`: for ever), and leaves in `sets` only what is ready. Answers how many bits are set;
/// zero after a time-out or an interruption, and then the sets are empty.
///
/// # Errors
///
/// `EBADF` (one of the descriptors is not open; the sets are as before), `EINVAL`, `ENOMEM`.
pub fn select(sets: &mut FdSets, span: usize, timeout: Option<Duration>) -> io::Result<usize> {
    let count = c_int::try_from(span).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let read = sets.read.words_for(span);
    let write = sets.write.words_for(span);
    let except = sets.except.words_for(span);
    let mut ts = timeout.map(timespec::from_duration);
    let ts = ts.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let no_mask = ptr::null::<libc::c_void>();
    // SAFETY: the kernel reads and writes `count` bits of each set; `words_for` made each at least
    // that long and they stay borrowed during the call. `ts` is null or points to a local that the
    // kernel may overwrite. No mask is passed.
    let rc = unsafe { libc::syscall(libc::SYS_pselect6, count, read, write, except, ts, no_mask) };
    match usize::try_from(rc) {
        Ok(0) => {
            sets.clear();
            Ok(0)
        }
        Ok(found) => Ok(found),
        Err(_) if errno::last() == libc::EINTR => {
            sets.clear();
            Ok(0)
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn position(fd: RawFd) -> Option<(usize, c_ulong)> {
    let number = usize::try_from(fd).ok()?;
    Some((number / BITS, 1 << (number % BITS)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    fn members(set: &FdSet) -> Vec<RawFd> {
        let empty = FdSet::new();
        let mut members = Vec::new();
        FdSet::each_in([set, &empty, &empty], |fd, _| {
            members.push(fd);
            true
        });
        members
    }

    #[test]
    fn bits_are_where_they_were_put() {
        let mut set = FdSet::new();
        for fd in [0, 63, 64, 1023, 1024, 100_000] {
            assert!(!set.contains(fd));
            set.insert(fd);
            assert!(set.contains(fd));
            assert_eq!(set.span(), fd as usize + 1);
        }
        assert_eq!(members(&set), [0, 63, 64, 1023, 1024, 100_000]);
        set.remove(100_000);
        set.remove(-1);
        set.remove(200_000);
        assert_eq!(set.span(), 1025);
        set.clear();
        assert_eq!(set.span(), 0);
        assert!(!set.contains(-1));
    }

    #[test]
    fn three_sets_are_walked_together_until_told_to_stop() {
        let mut sets = FdSets::default();
        sets.read.insert(3);
        sets.write.insert(3);
        sets.except.insert(70);
        sets.read.insert(200);
        let mut seen = Vec::new();
        FdSet::each_in([&sets.read, &sets.write, &sets.except], |fd, which| {
            seen.push((fd, which));
            seen.len() < 2
        });
        assert_eq!(seen, [(3, [true, true, false]), (70, [false, false, true])]);
    }

    #[test]
    fn a_ready_pipe_is_found() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        writer.write_all(b"x").expect("write");
        for timeout in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            let mut sets = FdSets::default();
            sets.read.insert(reader.as_raw_fd());
            let span = sets.span();
            assert_eq!(select(&mut sets, span, timeout).expect("select"), 1);
            assert!(sets.read.contains(reader.as_raw_fd()));
        }
    }

    #[test]
    fn a_timeout_leaves_the_sets_empty() {
        let (reader, _writer) = std::io::pipe().expect("pipe");
        let mut sets = FdSets::default();
        sets.read.insert(reader.as_raw_fd());
        let span = sets.span();
        assert_eq!(
            select(&mut sets, span, Some(Duration::ZERO)).expect("select"),
            0
        );
        assert_eq!(sets.span(), 0);
    }
}
