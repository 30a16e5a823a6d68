//! Files to be sent: opened beneath a directory, described, and copied to a socket by the kernel.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags,
};
use rustix::io::Errno;

use crate::errno::retry_or_none;

/// How often a path look-up is repeated that a concurrent rename disturbed.
const LOOKUP_ATTEMPTS_MAX: usize = 16;

/// Which links a path look-up follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Symbolic links wherever they lead, but no links of `/proc` that jump
    /// (`RESOLVE_NO_MAGICLINKS`).
    Anywhere,
    /// Symbolic links that stay beneath the directory.
    #[default]
    Beneath,
    /// As `Beneath`, but no links of `/proc` that jump (`RESOLVE_NO_MAGICLINKS`).
    NoMagic,
    /// None at all (`RESOLVE_NO_SYMLINKS`).
    None,
}

/// What an open descriptor of a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To describe it (`O_PATH`): needs no permission to read.
    Describe,
    /// To read it.
    Read,
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

/// Opens the file at `path` beneath `directory`, openat2(2) with `RESOLVE_BENEATH`: whatever `..`,
/// absolute path or link is in it, the file is in that tree. [`Links::Anywhere`] lifts that.
///
/// `O_NONBLOCK`, so that a named pipe does not hold the caller up, and `O_NOCTTY`.
///
/// # Errors
///
/// `EXDEV` (the path leads out of the directory), `ELOOP` (a link that `links` forbids),
/// `EACCES`, `ENOENT`, `ENOTDIR`, `EMFILE`, `ENFILE`, `ENOSYS` (Linux before 5.6). `EAGAIN` only
/// if renames disturbed every one of 16 attempts.
pub fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &CStr,
    links: Links,
    purpose: Purpose,
) -> io::Result<OwnedFd> {
    let flags = OFlags::CLOEXEC
        | match purpose {
            Purpose::Describe => OFlags::PATH,
            Purpose::Read => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
        };
    let resolve = match links {
        Links::Anywhere => ResolveFlags::NO_MAGICLINKS,
        Links::Beneath => ResolveFlags::BENEATH,
        Links::NoMagic => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Links::None => {
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
        }
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

/// What statx(2) says of a file. Two that are equal are of the same file in the same state, as far
/// as the kernel's clock tells: its times advance in ticks of up to 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub size_bytes: u64,
    /// When its content changed last; programs can set it.
    pub modified: FileTime,
    /// When its content or anything else about it changed last; nobody can set it.
    pub changed: FileTime,
    /// Its number within the device.
    pub inode: u64,
    /// The device: major and minor number.
    pub device: (u32, u32),
}

/// A time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// Nanoseconds within that second.
    pub nanos: u32,
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

/// Describes the open file `fd`, statx(2).
///
/// # Errors
///
/// None is usual for an open descriptor; `EIO` of a network file system.
pub fn status(fd: BorrowedFd<'_>) -> io::Result<FileStatus> {
    describe(fd, c"", AtFlags::EMPTY_PATH)
}

/// Describes what `path` leads to from `directory`, statx(2). Links are followed wherever they
/// lead: nothing says that the file is in the directory.
///
/// # Errors
///
/// `EACCES`, `ELOOP` (too many links), `ENAMETOOLONG`, `ENOENT`, `ENOTDIR`.
#[inline]
pub fn status_at(directory: BorrowedFd<'_>, path: &CStr) -> io::Result<FileStatus> {
    describe(directory, path, AtFlags::empty())
}

/// Describes the entry `name` of `directory` itself, statx(2); `None` if it is a symbolic link.
///
/// # Errors
///
/// As [`status_at`].
pub fn entry_status(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<FileStatus>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(directory, name, flags, WANTED)?;
    let is_link = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Symlink;
    Ok((!is_link).then(|| of_statx(&stat)))
}

pub(crate) const WANTED: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::INO);

#[inline]
pub(crate) fn describe(fd: BorrowedFd<'_>, path: &CStr, flags: AtFlags) -> io::Result<FileStatus> {
    let stat = rustix::io::retry_on_intr(|| rustix::fs::statx(fd, path, flags, WANTED))?;
    Ok(of_statx(&stat))
}

pub(crate) fn of_statx(stat: &Statx) -> FileStatus {
    let kind = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::Regular,
        _ => FileKind::Special,
    };
    FileStatus {
        kind,
        size_bytes: stat.stx_size,
        modified: FileTime {
            secs: stat.stx_mtime.tv_sec,
            nanos: stat.stx_mtime.tv_nsec,
        },
        changed: FileTime {
            secs: stat.stx_ctime.tv_sec,
            nanos: stat.stx_ctime.tv_nsec,
        },
        inode: stat.stx_ino,
        device: (stat.stx_dev_major, stat.stx_dev_minor),
    }
}

/// Calls `visit` with each name in `directory`, getdents64(2), without `.` and `..`, in no order,
/// until it answers [`ControlFlow::Break`].
///
/// `directory` must be open for reading and is read from where it stands.
///
/// # Errors
///
/// `ENOTDIR`, `EBADF` (open with `O_PATH` only), `ENOENT` (it was removed).
pub fn visit_names(
    directory: BorrowedFd<'_>,
    mut visit: impl FnMut(&CStr) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buf = vec![MaybeUninit::uninit(); NAMES_BYTES];
    let mut names = RawDir::new(directory, &mut buf);
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") && visit(name).is_break() {
            break;
        }
    }
    Ok(())
}

/// Room for names in one call of getdents64(2).
const NAMES_BYTES: usize = 32 * 1024;

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
    use std::ffi::CString;
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
            let path = CString::new(path).expect("no NUL");
            open_beneath(root.as_fd(), &path, links, Purpose::Read)
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
        assert!(tree.open("out", Links::Anywhere).is_ok());
    }

    #[test]
    fn a_status_tells_of_each_change_and_a_path_is_described_like_its_descriptor() {
        let tree = Tree::new("status");
        let root = open_directory(&tree.0.join("root")).expect("open");
        let file = tree.open("a.txt", Links::Beneath).expect("open");
        let before = status(file.as_fd()).expect("status");
        assert_eq!(status_at(root.as_fd(), c"a.txt").expect("status"), before);
        assert_eq!(status_at(root.as_fd(), c"in").expect("status"), before);
        assert_eq!(
            entry_status(root.as_fd(), c"a.txt").expect("status"),
            Some(before)
        );
        assert_eq!(entry_status(root.as_fd(), c"in").expect("status"), None);
        fs::write(tree.0.join("root/a.txt"), b"hello, world").expect("write");
        assert_ne!(status_at(root.as_fd(), c"a.txt").expect("status"), before);
        assert!(status_at(root.as_fd(), c"missing").is_err());
        let described = open_beneath(root.as_fd(), c"sub", Links::None, Purpose::Describe);
        let described = described.expect("open");
        assert!(status(described.as_fd()).expect("status").is_directory());
    }

    #[test]
    fn names_of_a_directory_are_visited_until_told_to_stop() {
        let tree = Tree::new("names");
        let directory = tree.open(".", Links::None).expect("open");
        let mut names = Vec::new();
        visit_names(directory.as_fd(), |name| {
            names.push(name.to_str().expect("UTF-8").to_owned());
            ControlFlow::Continue(())
        })
        .expect("read");
        names.sort();
        assert_eq!(names, ["a.txt", "in", "out", "sub"]);
        let directory = tree.open(".", Links::None).expect("open");
        let mut count = 0;
        visit_names(directory.as_fd(), |_| {
            count += 1;
            ControlFlow::Break(())
        })
        .expect("read");
        assert_eq!(count, 1);
        let file = tree.open("a.txt", Links::None).expect("open");
        assert!(visit_names(file.as_fd(), |_| ControlFlow::Continue(())).is_err());
    }

    #[test]
    fn a_file_is_described_and_sent() {
        let tree = Tree::new("send");
        let file = tree.open("a.txt", Links::Beneath).expect("open");
        let described = status(file.as_fd()).expect("status");
        assert!(described.is_file() && !described.is_directory());
        assert_eq!(described.size_bytes, 5);
        assert!(described.modified.secs > 0);
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
