//! Files below a directory, opened so that no name leads out of it.
//!
//! The kernel itself keeps each look-up within the directory (openat2(2) with `RESOLVE_BENEATH`),
//! so neither `..` nor a link nor a rename at the wrong moment opens anything else. A named pipe
//! or a device does not hold the caller up; disk access may.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use windlass_sys::file;

/// A directory to open files from. Stays the same directory if it is renamed.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// None: a path with a link in it is refused.
    Refuse,
    /// Those that stay within the root.
    #[default]
    WithinRoot,
}

/// An open file and what it was when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The file, open for reading.
    pub file: File,
    /// Its length in bytes.
    pub len: u64,
    /// When its content changed last.
    pub modified: Modified,
    /// What it is.
    pub kind: FileKind,
    /// Its number within the device.
    pub inode: u64,
    /// The device.
    pub device: u64,
}

/// The time of a file's last change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Modified {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// Nanoseconds within that second.
    pub nanos: u32,
}

/// What a path led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A pipe, a socket, a device.
    Other,
}

impl Root {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    ///
    /// What open(2) gives: it is missing, not a directory, not permitted.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self {
            directory: file::open_directory(path.as_ref())?,
        })
    }

    /// Opens the file or directory at `relative` for reading, openat2(2), and describes it.
    ///
    /// # Errors
    ///
    /// What openat2(2) gives; `EXDEV` for a path that leads out of the root, `ELOOP` for a link
    /// that `links` refuses.
    pub fn open_file(&self, relative: &Path, links: Links) -> io::Result<OpenFile> {
        let links = match links {
            Links::Refuse => file::Links::None,
            Links::WithinRoot => file::Links::NoMagic,
        };
        let fd = file::open_beneath(self.directory.as_fd(), relative, links)?;
        let status = file::status(fd.as_fd())?;
        Ok(OpenFile {
            file: File::from(fd),
            len: status.size_bytes,
            modified: Modified {
                secs: status.modified_s,
                nanos: status.modified_ns,
            },
            kind: match status.kind {
                file::FileKind::Directory => FileKind::Directory,
                file::FileKind::Regular => FileKind::File,
                file::FileKind::Special => FileKind::Other,
            },
            inode: status.inode,
            device: status.device,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn file_is_described_and_links_are_refused_on_request() {
        let dir = std::env::temp_dir().join(format!("windlass-files-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).expect("create");
        fs::write(dir.join("sub/a"), b"hello").expect("write");
        symlink("sub/a", dir.join("link")).expect("link");
        let root = Root::open(&dir).expect("open");

        let file = root
            .open_file(Path::new("link"), Links::WithinRoot)
            .expect("open");
        assert_eq!((file.len, file.kind), (5, FileKind::File));
        let sub = root
            .open_file(Path::new("sub"), Links::Refuse)
            .expect("open");
        assert_eq!(sub.kind, FileKind::Directory);
        assert!(root.open_file(Path::new("link"), Links::Refuse).is_err());
        assert!(
            root.open_file(Path::new("../etc"), Links::WithinRoot)
                .is_err()
        );
        fs::remove_dir_all(&dir).expect("remove");
    }
}
