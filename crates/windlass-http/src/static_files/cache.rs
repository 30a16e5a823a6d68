//! The open-file cache of one driver thread: what was laid out for the files used last.
//!
//! It knows nothing of the file system: whoever takes something out compares it with what the
//! path leads to now. Bounded by count and by memory; the file that was not used for the longest
//! time goes first. A look-up allocates nothing.

use std::sync::Arc;

use lru::LruCache;
use windlass::Instant;

use super::options::FileCache;
use super::representation::Representation;
use crate::content_coding::Coding;

#[derive(Debug)]
pub(super) struct OpenFileCache {
    paths: LruCache<Box<[u8]>, Entry>,
    limits: FileCache,
    files_count: usize,
    bytes: usize,
}

/// What is known of one path.
#[derive(Debug, Default)]
struct Entry {
    codings: [Option<Cached>; Coding::ALL.len()],
}

/// A representation, until when it is believed that its path stays within the root, and when it was
/// last seen to be what the path leads to.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub(super) representation: Arc<Representation>,
    pub(super) contained_until: Instant,
    pub(super) checked_at: Instant,
}

impl OpenFileCache {
    pub(super) fn new(limits: FileCache) -> Self {
        Self {
            paths: LruCache::unbounded(),
            limits,
            files_count: 0,
            bytes: 0,
        }
    }

    /// What is kept for `path` in `coding`.
    pub(super) fn get(&mut self, path: &[u8], coding: Coding) -> Option<&mut Cached> {
        if self.files_count == 0 {
            return None;
        }
        self.paths.get_mut(path)?.codings[coding as usize].as_mut()
    }

    /// Keeps `cached` if there is room for it at all.
    pub(super) fn insert(&mut self, path: &[u8], coding: Coding, cached: Cached) {
        self.remove(path, coding);
        let bytes = cost(path, &cached);
        if self.limits.files_max == 0 || bytes > self.limits.bytes_max {
            return;
        }
        while self.files_count >= self.limits.files_max
            || self.bytes + bytes > self.limits.bytes_max
        {
            let Some((path, entry)) = self.paths.pop_lru() else {
                break;
            };
            self.forget(&path, entry);
        }
        let entry = match self.paths.get_mut(path) {
            Some(entry) => entry,
            None => self.paths.get_or_insert_mut(path.into(), Entry::default),
        };
        entry.codings[coding as usize] = Some(cached);
        self.files_count += 1;
        self.bytes += bytes;
    }

    /// Drops what is kept for `path` in `coding`.
    pub(super) fn remove(&mut self, path: &[u8], coding: Coding) {
        let Some(entry) = self.paths.peek_mut(path) else {
            return;
        };
        if let Some(cached) = entry.codings[coding as usize].take() {
            self.files_count -= 1;
            self.bytes -= cost(path, &cached);
        }
        if entry.codings.iter().all(Option::is_none) {
            self.paths.pop(path);
        }
    }

    /// Drops everything, and with it all descriptors that nothing is sent from.
    pub(super) fn clear(&mut self) {
        self.paths.clear();
        self.files_count = 0;
        self.bytes = 0;
    }

    fn forget(&mut self, path: &[u8], entry: Entry) {
        for cached in entry.codings.into_iter().flatten() {
            self.files_count -= 1;
            self.bytes -= cost(path, &cached);
        }
    }
}

fn cost(path: &[u8], cached: &Cached) -> usize {
    size_of::<Entry>() + path.len() + cached.representation.memory_bytes()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use windlass::files::{Links, Root};

    use super::*;
    use crate::static_files::content_type::ContentType;
    use crate::static_files::representation::Dress;

    fn cached(len: usize) -> Cached {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("windlass-cache-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("create");
        fs::write(dir.join("f"), vec![b'x'; len]).expect("write");
        let root = Root::open(&dir).expect("open");
        let open = root.open_file(c"f", Links::Refuse).expect("open");
        fs::remove_dir_all(&dir).expect("remove");
        let dress = Dress {
            content_type: ContentType::of_path(b"f"),
            coding: Coding::Identity,
            cache_control: None,
            vary: "",
        };
        Cached {
            representation: Arc::new(Representation::new(open, dress, 0)),
            contained_until: Instant::FAR,
            checked_at: Instant::ZERO,
        }
    }

    fn limits(files_max: usize, bytes_max: usize) -> FileCache {
        FileCache {
            files_max,
            bytes_max,
        }
    }

    #[test]
    fn the_file_not_used_for_the_longest_time_goes_first() {
        let mut cache = OpenFileCache::new(limits(2, 1 << 20));
        let file = cached(10);
        cache.insert(b"a", Coding::Identity, file.clone());
        cache.insert(b"b", Coding::Identity, file.clone());
        assert!(cache.get(b"a", Coding::Identity).is_some());
        cache.insert(b"c", Coding::Identity, file);
        assert!(cache.get(b"a", Coding::Identity).is_some());
        assert!(cache.get(b"b", Coding::Identity).is_none());
        assert!(cache.get(b"c", Coding::Identity).is_some());
        assert!(cache.get(b"c", Coding::Gzip).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_too_long_is_not_kept() {
        let small = cached(100);
        let room = cost(b"a", &small) * 2;
        let mut cache = OpenFileCache::new(limits(100, room));
        for path in [b"a", b"b", b"c"] {
            cache.insert(path, Coding::Identity, small.clone());
            assert!(cache.bytes <= room);
        }
        assert_eq!(cache.files_count, 2);
        cache.insert(b"c", Coding::Identity, cached(16_000));
        assert!(cache.get(b"c", Coding::Identity).is_none());
        assert_eq!(cache.files_count, 1);
    }

    #[test]
    fn counts_are_right_after_any_replacement() {
        let mut cache = OpenFileCache::new(limits(3, 1 << 20));
        let files = [cached(1), cached(5000), cached(20_000)];
        for round in 0..200_usize {
            let path = [b'a' + (round * 7 % 5) as u8];
            let coding = Coding::ALL[round * 3 % 4];
            match round % 6 {
                5 => cache.remove(&path, coding),
                _ => cache.insert(&path, coding, files[round % 3].clone()),
            }
            let kept = cache.paths.iter().flat_map(|(path, entry)| {
                let codings = entry.codings.iter().flatten();
                codings.map(|cached| cost(path, cached))
            });
            let (count, bytes) = kept.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
            assert_eq!((cache.files_count, cache.bytes), (count, bytes));
            assert!(count <= 3);
        }
        cache.clear();
        assert_eq!(
            (cache.files_count, cache.bytes, cache.paths.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn nothing_is_kept_when_it_is_off() {
        let mut cache = OpenFileCache::new(FileCache::OFF);
        cache.insert(b"a", Coding::Identity, cached(1));
        assert!(cache.get(b"a", Coding::Identity).is_none());
    }
}
