//! Files below a directory, opened so that no name leads out of it.
//!
//! The kernel itself keeps each look-up within the directory (openat2(2) with `RESOLVE_BENEATH`),
//! so neither `..` nor a link nor a rename at the wrong moment opens anything else. A named pipe
//! or a device does not hold the caller up; disk access may.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use windlass_sys::file;
pub use windlass_sys::file::FileTime;

/// A directory to open files from. Stays the same directory if it is renamed.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Links {
    /// All, also those that leave the root: whoever can make a link in it decides what is served.
    /// The links in `/proc` that jump to open files are still refused.
    Anywhere,
    /// None: a path with a link in it is refused.
    Refuse,
    /// Those that stay within the root. A link to an absolute path leaves it, wherever it leads.
    #[default]
    WithinRoot,
}

/// An open file and what it was when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    /// The file, open for reading.
    pub file: File,
    /// What it is.
    pub status: FileStatus,
}

/// What a file is, and in which state.
///
/// Two that are equal are of the same file in the same state, as far as the kernel's clock tells:
/// a change within the tick of the one before it (up to 10 ms; Linux 6.13 is finer) leaves no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its length in bytes.
    pub len: u64,
    /// When its content changed last. Programs can set it.
    pub modified: FileTime,
    /// When its content, name or permissions changed last. Nobody can set it.
    pub changed: FileTime,
    /// What it is.
    pub kind: FileKind,
    /// Its number within the device.
    pub inode: u64,
    /// The device: major and minor number.
    pub device: (u32, u32),
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
    pub fn open_file(&self, relative: &CStr, links: Links) -> io::Result<OpenFile> {
        let purpose = file::Purpose::Read;
        let fd = file::open_beneath(self.directory.as_fd(), relative, links.into(), purpose)?;
        let status = file::status(fd.as_fd())?.into();
        Ok(OpenFile {
            file: File::from(fd),
            status,
        })
    }

    /// Describes what [`open_file`](Self::open_file) would open, without permission to read it.
    ///
    /// # Errors
    ///
    /// As [`open_file`](Self::open_file), but `EACCES` for the file itself.
    pub fn describe(&self, relative: &CStr, links: Links) -> io::Result<FileStatus> {
        let purpose = file::Purpose::Describe;
        let fd = file::open_beneath(self.directory.as_fd(), relative, links.into(), purpose)?;
        Ok(file::status(fd.as_fd())?.into())
    }

    /// Describes what `relative` leads to now, statx(2), also if that is out of the root: good for
    /// finding out whether a file that was opened before is still there and the same.
    ///
    /// # Errors
    ///
    /// What statx(2) gives.
    #[inline]
    pub fn glance(&self, relative: &CStr) -> io::Result<FileStatus> {
        Ok(file::status_at(self.directory.as_fd(), relative)?.into())
    }
}

impl OpenFile {
    /// Describes the file anew.
    ///
    /// # Errors
    ///
    /// What statx(2) gives for an open file: trouble with a network file system.
    pub fn status_now(&self) -> io::Result<FileStatus> {
        Ok(file::status(self.file.as_fd())?.into())
    }

    /// Calls `visit` with the name of each entry of a directory, in no order, and what the entry
    /// is (`None`: a symbolic link), until it answers [`ControlFlow::Break`]. Entries that vanish
    /// meanwhile are left out.
    ///
    /// # Errors
    ///
    /// What getdents64(2) gives: it is not a directory, it was removed.
    pub fn visit_entries(
        &self,
        mut visit: impl FnMut(&CStr, Option<FileStatus>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let directory = self.file.as_fd();
        file::visit_names(directory, |name| {
            match file::entry_status(directory, name) {
                Ok(status) => visit(name, status.map(FileStatus::from)),
                Err(_) => ControlFlow::Continue(()),
            }
        })
    }
}

impl From<Links> for file::Links {
    fn from(links: Links) -> Self {
        match links {
            Links::Anywhere => Self::Anywhere,
            Links::Refuse => Self::None,
            Links::WithinRoot => Self::NoMagic,
        }
    }
}

impl From<file::FileStatus> for FileStatus {
    #[inline]
    fn from(status: file::FileStatus) -> Self {
        Self {
            len: status.size_bytes,
            modified: status.modified,
            changed: status.changed,
            kind: match status.kind {
                file::FileKind::Directory => FileKind::Directory,
                file::FileKind::Regular => FileKind::File,
                file::FileKind::Special => FileKind::Other,
            },
            inode: status.inode,
            device: status.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let name = format!("windlass-files-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(dir.join("root/sub")).expect("create");
            fs::write(dir.join("root/sub/a"), b"hello").expect("write");
            fs::write(dir.join("secret"), b"no").expect("write");
            symlink("sub/a", dir.join("root/link")).expect("link");
            symlink("../secret", dir.join("root/out")).expect("link");
            Self(dir)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("remove");
        }
    }

    #[test]
    fn file_is_described_and_links_are_followed_as_told() {
        let tree = Tree::new("open");
        let root = Root::open(tree.0.join("root")).expect("open");
        let file = root.open_file(c"link", Links::WithinRoot).expect("open");
        assert_eq!((file.status.len, file.status.kind), (5, FileKind::File));
        assert_eq!(file.status_now().expect("status"), file.status);
        assert_eq!(root.glance(c"link").expect("status"), file.status);
        let described = root.describe(c"link", Links::WithinRoot).expect("status");
        assert_eq!(described, file.status);
        let sub = root.open_file(c"sub", Links::Refuse).expect("open");
        assert_eq!(sub.status.kind, FileKind::Directory);
        assert!(root.open_file(c"link", Links::Refuse).is_err());
        assert!(root.open_file(c"../etc", Links::WithinRoot).is_err());
        assert!(root.open_file(c"out", Links::WithinRoot).is_err());
        assert!(root.describe(c"out", Links::WithinRoot).is_err());
        assert!(root.open_file(c"out", Links::Anywhere).is_ok());
    }

    #[test]
    fn entries_of_a_directory_are_visited_with_what_they_are() {
        let tree = Tree::new("entries");
        let root = Root::open(tree.0.join("root")).expect("open");
        let directory = root.open_file(c".", Links::Refuse).expect("open");
        let mut found = Vec::new();
        directory
            .visit_entries(|name, status| {
                found.push((name.to_owned(), status.map(|status| status.kind)));
                ControlFlow::Continue(())
            })
            .expect("read");
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            (c"link".to_owned(), None),
            (c"out".to_owned(), None),
            (c"sub".to_owned(), Some(FileKind::Directory)),
        ];
        assert_eq!(found, expected);
    }
}
