//! The scratch directory: the files that are served, and those that pass between processes.
//!
//! It is removed at the end. What a comparison leaves that was killed, the next one removes: whoever
//! uses a directory holds a lock on it, flock(2), that ends with its process, and is not fooled by a
//! process id that was given to another.
//!
//! # What is not ours
//!
//! Temporary directories belong to all users, who may put anything there under our names. So a
//! directory is made, never adopted; and only what is a directory itself (no link), belongs to this
//! user, was open to nobody else, and is not in use, is taken for one of ours and removed.

use std::error::Error;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{Mode, OFlags};

use super::workload::FILES;

/// How the names of all of them begin; a process id and a number follow.
const PREFIX: &str = "windlass-compare-";
/// So many directories of one process id are tried: others may have left some, or put them there.
const ATTEMPTS_MAX: u32 = 1000;

/// A directory for the files that are served and those that pass, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: PathBuf,
    files: PathBuf,
    /// Holds its lock.
    opened: File,
}

impl Scratch {
    /// Makes one in `parent`, and removes those that others left there.
    pub(super) fn new(parent: &Path) -> Result<Self, Box<dyn Error>> {
        let scratch = Self::make(parent)
            .map_err(|error| format!("write to {}: {error}", parent.display()))?;
        scratch
            .fill()
            .map_err(|error| format!("write to {}: {error}", scratch.dir.display()))?;
        // What can't be read or removed is in nobody's way.
        let _ = scratch.remove_stale(parent);
        Ok(scratch)
    }

    /// The directory itself.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the files are that are served.
    pub(super) fn files(&self) -> &Path {
        &self.files
    }

    fn make(parent: &Path) -> io::Result<Self> {
        for number in 0..ATTEMPTS_MAX {
            let dir = parent.join(format!("{PREFIX}{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Another comparison may have taken it for a stale one before it was locked.
            if let Some(opened) = lock(&dir) {
                return Ok(Self {
                    files: dir.join("files"),
                    dir,
                    opened,
                });
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(&self) -> io::Result<()> {
        fs::create_dir(&self.files)?;
        for (name, len) in FILES {
            // Holes: they are read from the page cache all the same.
            File::create(self.files.join(name))?.set_len(len)?;
        }
        Ok(())
    }

    fn remove_stale(&self, parent: &Path) -> io::Result<()> {
        let own = self.opened.metadata()?;
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            let is_named_so = entry.file_name().to_str().is_some_and(is_name);
            if !is_named_so {
                continue;
            }
            let dir = entry.path();
            // As long as it is open no other comparison takes it for stale too.
            let Some(opened) = lock(&dir) else { continue };
            let metadata = opened.metadata()?;
            if metadata.uid() == own.uid() && metadata.mode() & 0o077 == 0 {
                // It follows no links.
                let _ = fs::remove_dir_all(&dir);
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next comparison removes what is left.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Whether `name` is one that [`Scratch::make`] gives.
fn is_name(name: &str) -> bool {
    let numbers = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Opens and locks the directory at `dir`, unless it is none, is in use, or is there no more.
fn lock(dir: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = File::from(rustix::fs::open(dir, flags, Mode::empty()).ok()?);
    opened.try_lock().ok()?;
    let (locked, named) = (opened.metadata().ok()?, fs::symlink_metadata(dir).ok()?);
    let is_same = (locked.dev(), locked.ino()) == (named.dev(), named.ino());
    is_same.then_some(opened)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A temporary directory of the test's own.
    struct Parent(PathBuf);

    impl Parent {
        fn new(test: &str) -> Self {
            let dir =
                std::env::temp_dir().join(format!("windlass-scratch-{test}-{}", process::id()));
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        /// A directory with a file in it, as a comparison that was killed leaves one.
        fn leave(&self, name: &str, mode: u32) -> PathBuf {
            let dir = self.0.join(name);
            DirBuilder::new().mode(0o700).create(&dir).unwrap();
            fs::write(dir.join("file"), "x").unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            dir
        }
    }

    impl Drop for Parent {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_has_the_files_and_goes_with_them() {
        let parent = Parent::new("files");
        let scratch = Scratch::new(&parent.0).unwrap();
        for (name, len) in FILES {
            let metadata = fs::metadata(scratch.files().join(name)).unwrap();
            assert_eq!(metadata.len(), len);
        }
        drop(scratch);
        assert_eq!(fs::read_dir(&parent.0).unwrap().count(), 0);
    }

    #[test]
    fn what_is_in_use_stays_and_what_was_left_goes() {
        let parent = Parent::new("stale");
        let other = Scratch::new(&parent.0).unwrap();
        let left = parent.leave("windlass-compare-1-0", 0o700);
        let scratch = Scratch::new(&parent.0).unwrap();
        assert!(!left.exists());
        assert!(other.files().exists() && scratch.files().exists());
        assert_ne!(other.dir(), scratch.dir());
    }

    #[test]
    fn what_is_not_ours_is_neither_removed_nor_used() {
        let parent = Parent::new("foreign");
        let elsewhere = parent.leave("elsewhere", 0o700);
        let link = parent.0.join("windlass-compare-1-1");
        symlink(&elsewhere, &link).unwrap();
        let own_name = parent
            .0
            .join(format!("windlass-compare-{}-0", process::id()));
        symlink(&elsewhere, &own_name).unwrap();
        let file = parent.0.join("windlass-compare-1-2");
        fs::write(&file, "x").unwrap();
        let is_open = parent.leave("windlass-compare-1-3", 0o755);
        let is_named_else = parent.leave("windlass-compare-report", 0o700);
        let scratch = Scratch::new(&parent.0).unwrap();
        for path in [&link, &own_name] {
            assert!(path.is_symlink());
        }
        assert!(file.exists());
        for dir in [&elsewhere, &is_open, &is_named_else] {
            assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "{}", dir.display());
        }
        assert_ne!(scratch.dir(), own_name);
    }

    #[test]
    fn a_parent_that_is_missing_is_an_error() {
        let error = Scratch::new(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
