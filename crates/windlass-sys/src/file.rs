//! Files to be sent: opened beneath a directory, described, and copied to a socket by the kernel.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::errno::retry_or_none;

/// How often a path look-up is repeated that a concurrent rename disturbed.
const LOOKUP_ATTEMPTS_MAX: usize = 16;

/// Which links a path look-up follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Symbolic links that stay beneath the directory.
    #[default]
    Beneath,
    /// As `Beneath`, but no links of `/proc` that jump (`RESOLVE_NO_MAGICLINKS`).
    NoMagic,
    /// None at all (`RESOLVE_NO_SYMLINKS`).
    None,
}

/// Opens the directory at `path` as a place to look up from (`O_PATH`), open(2), and makes sure
/// that this process may do so, faccessat2(2).
///
/// # Errors
///
/// `EACCES` (also if the directory itself may not be searched), `EMFILE`, `ENFILE`, `ENOENT`, `ENOTDIR`.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    rustix::fs::accessat(&fd, c".", Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(fd)
}

/// Opens the file at `path` beneath `directory` for reading, openat2(2) with `RESOLVE_BENEATH`:
/// whatever `..`, absolute path or link is in it, the file is in that tree.
///
/// `O_NONBLOCK`, so that a named pipe does not hold the caller up, and `O_NOCTTY`.
///
/// # Errors
///
/// `EXDEV` (the path leads out of the directory), `ELOOP` (a link that `links` forbids),
/// `EACCES`, `ENOENT`, `ENOTDIR`, `EINVAL` (a NUL byte), `EMFILE`, `ENFILE`, `ENOSYS` (Linux
/// before 5.6). `EAGAIN` only if renames disturbed every one of 16 attempts.
pub fn open_beneath(directory: BorrowedFd<'_>, path: &Path, links: Links) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH
        | match links {
            Links::Beneath => ResolveFlags::empty(),
            Links::NoMagic => ResolveFlags::NO_MAGICLINKS,
            Links::None => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        };
    let mut attempts = 1;
    loop {
        match rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve) {
            Ok(fd) => return Ok(fd),
            Err(Errno::AGAIN | Errno::INTR) if attempts < LOOKUP_ATTEMPTS_MAX => attempts += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A pipe, a socket, a device.
    Special,
}

/// What fstat(2) says of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub size_bytes: u64,
    /// When its content changed last: seconds since 1970.
    pub modified_s: i64,
    /// And nanoseconds within that second.
    pub modified_ns: u32,
    /// Its number within the device.
    pub inode: u64,
    /// The device.
    pub device: u64,
}

impl FileStatus {
    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// Describes the open file `fd`, fstat(2).
///
/// # Errors
///
/// `EOVERFLOW`; none else for an open descriptor.
pub fn status(fd: BorrowedFd<'_>) -> io::Result<FileStatus> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::Regular,
        _ => FileKind::Special,
    };
    Ok(FileStatus {
        kind,
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified_s: stat.st_mtime,
        modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        inode: stat.st_ino,
        device: stat.st_dev,
    })
}

/// Copies up to `count` bytes of `file` from `offset` on to `out` within the kernel, sendfile(2),
/// and moves `offset` on. `None`: it would block; zero: the file ends at `offset`.
///
/// The kernel copies at most 2 GiB at once. A peer that is gone raises `SIGPIPE`, unless it is
/// ignored: sendfile has no `MSG_NOSIGNAL`.
///
/// # Errors
///
/// `EINVAL` (`file` cannot be mapped), `EIO`, `ENOMEM`, `EPIPE`, `ECONNRESET`; `EINTR` is retried.
#[inline]
pub fn send_file(
    out: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    count: usize,
) -> io::Result<Option<usize>> {
    retry_or_none(|| rustix::fs::sendfile(out, file, Some(&mut *offset), count))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use super::*;
    use crate::errno;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("root/sub")).expect("create");
            fs::write(path.join("root/a.txt"), b"hello").expect("write");
            fs::write(path.join("secret"), b"no").expect("write");
            symlink("../secret", path.join("root/out")).expect("link");
            symlink("a.txt", path.join("root/in")).expect("link");
            Self(path)
        }

        fn open(&self, path: &str, links: Links) -> Result<OwnedFd, i32> {
            let root = open_directory(&self.0.join("root")).expect("open");
            open_beneath(root.as_fd(), Path::new(path), links)
                .map_err(|error| error.raw_os_error().expect("a system error"))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("remove");
        }
    }

    #[test]
    fn nothing_outside_of_the_directory_is_opened() {
        let tree = Tree::new("beneath");
        assert_eq!(
            tree.open("../secret", Links::Beneath).err(),
            Some(errno::EXDEV)
        );
        assert_eq!(
            tree.open("sub/../../secret", Links::Beneath).err(),
            Some(errno::EXDEV)
        );
        assert_eq!(tree.open("out", Links::Beneath).err(), Some(errno::EXDEV));
        assert_eq!(
            tree.open("/etc/passwd", Links::Beneath).err(),
            Some(errno::EXDEV)
        );
        assert_eq!(tree.open("a\0b", Links::Beneath).err(), Some(errno::EINVAL));
        assert_eq!(
            tree.open("missing", Links::Beneath).err(),
            Some(errno::ENOENT)
        );
        assert!(tree.open("sub/../a.txt", Links::Beneath).is_ok());
    }

    #[test]
    fn links_are_followed_as_told() {
        let tree = Tree::new("links");
        assert!(tree.open("in", Links::Beneath).is_ok());
        assert!(tree.open("in", Links::NoMagic).is_ok());
        assert_eq!(tree.open("in", Links::None).err(), Some(errno::ELOOP));
    }

    #[test]
    fn a_file_is_described_and_sent() {
        let tree = Tree::new("send");
        let file = tree.open("a.txt", Links::Beneath).expect("open");
        let described = status(file.as_fd()).expect("status");
        assert!(described.is_file() && !described.is_directory());
        assert_eq!(described.size_bytes, 5);
        assert!(described.modified_s > 0);
        let sub = tree.open("sub", Links::Beneath).expect("open");
        assert!(status(sub.as_fd()).expect("status").is_directory());

        let (out, mut peer) = UnixStream::pair().expect("pair");
        let mut offset = 1;
        let sent = send_file(out.as_fd(), file.as_fd(), &mut offset, 100).expect("send");
        assert_eq!((sent, offset), (Some(4), 5));
        let sent = send_file(out.as_fd(), file.as_fd(), &mut offset, 100).expect("send");
        assert_eq!(sent, Some(0));
        drop(out);
        let mut got = String::new();
        peer.read_to_string(&mut got).expect("read");
        assert_eq!(got, "ello");
    }
}
