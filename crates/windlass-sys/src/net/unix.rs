//! Unix-domain listeners, unix(7): by a path, or by an abstract name (`@name`).
//!
//! The file of a path outlives the process that bound it, if that dies. A file to which nobody
//! listens any more is therefore removed before the path is bound; one with a listener is not.
//! Servers that start at one time exclude each other by a lock on the directory, flock(2).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How a Unix listener is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixOptions {
    /// As for TCP, [`ListenOptions::backlog`](super::ListenOptions::backlog). Default 4096.
    pub backlog: u32,
    /// The permissions of the socket's file: whoever may write it may connect. Default: what the
    /// process's umask leaves of `0o777`. An abstract name has none.
    pub mode: Option<u32>,
}

impl Default for UnixOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            mode: None,
        }
    }
}

/// The file of a Unix listener that this process bound. Dropping it removes the file, unless that
/// was replaced by another meanwhile.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
    keep: AtomicBool,
}

/// Which file it is, whatever its name.
type Identity = (u64, u64);

/// How often, and after which pauses, the directory's lock is tried: its holders are quick.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Opens a Unix listener at `path`, or at the abstract name behind an `@` (unix(7); a path that
/// begins so is written `./@…`). Beside the listener, the file that was made.
///
/// # Errors
///
/// `EADDRINUSE` (a live server listens there, or the file is no socket), `EACCES`, `ENOENT` (no such
/// directory), `ENAMETOOLONG` (107 bytes are the most), `EMFILE`, ….
pub fn listen_unix(path: &Path, options: UnixOptions) -> io::Result<(OwnedFd, Option<SocketFile>)> {
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    if let Some(name) = path.as_os_str().as_bytes().strip_prefix(b"@") {
        let fd = stream_socket()?;
        rustix::net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        rustix::net::listen(&fd, backlog)?;
        return Ok((fd, None));
    }
    let addr = SocketAddrUnix::new(path)?;
    let fd = stream_socket()?;
    // Held until it listens: before that it looks like the socket of a dead server.
    let _lock = lock_directory_of(path);
    match rustix::net::bind(&fd, &addr) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, &addr)?;
            rustix::net::bind(&fd, &addr)?;
        }
        other => other?,
    }
    let file = SocketFile {
        path: std::path::absolute(path)?,
        identity: identity(&rustix::fs::lstat(path)?),
        keep: AtomicBool::new(false),
    };
    if let Some(mode) = options.mode {
        // Nobody can connect yet.
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
    }
    rustix::net::listen(&fd, backlog)?;
    Ok((fd, Some(file)))
}

impl SocketFile {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file where it is: another process goes on listening there.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if *self.keep.get_mut() {
            return;
        }
        if rustix::fs::lstat(&self.path).is_ok_and(|stat| identity(&stat) == self.identity) {
            // Whoever may not remove it leaves it, as a server that is killed does.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Removes the socket at `path` if nobody listens to it.
fn remove_stale(path: &Path, addr: &SocketAddrUnix) -> io::Result<()> {
    let found = rustix::fs::lstat(path)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Errno::ADDRINUSE.into());
    }
    match rustix::net::connect(&stream_socket()?, addr) {
        Err(Errno::CONNREFUSED) => {}
        // EAGAIN: its backlog is full. Anything else does not show that it is dead.
        _ => return Err(Errno::ADDRINUSE.into()),
    }
    if identity(&rustix::fs::lstat(path)?) != identity(&found) {
        return Err(Errno::ADDRINUSE.into());
    }
    Ok(rustix::fs::unlink(path)?)
}

/// Locks the directory of `path`, if that is possible: without, two servers that start at the
/// same moment might take each other for dead.
fn lock_directory_of(path: &Path) -> Option<OwnedFd> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(directory.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(LOCK_PAUSE),
            Err(_) => return None,
        }
    }
    None
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

fn stream_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A directory of a test's own.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("windlass-unix-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("make a directory");
            Self(path)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn listen(path: &Path) -> io::Result<(OwnedFd, Option<SocketFile>)> {
        listen_unix(path, UnixOptions::default())
    }

    #[test]
    fn the_file_has_its_mode_and_goes_with_its_owner() {
        let scratch = Scratch::new();
        let path = scratch.at("s");
        let options = UnixOptions {
            mode: Some(0o600),
            ..UnixOptions::default()
        };
        let (fd, file) = listen_unix(&path, options).expect("listen");
        let file = file.expect("a file");
        assert_eq!(file.path(), path);
        let mode = fs::metadata(&path).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).expect("connect");
        assert!(super::super::accept(fd.as_fd()).expect("accept").is_some());
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_servers_file_is_replaced_and_a_live_ones_is_not() {
        let scratch = Scratch::new();
        let path = scratch.at("s");
        // Std's listener leaves its file behind, as a server that is killed does.
        drop(UnixListener::bind(&path).expect("bind"));
        assert!(path.exists());
        let (_fd, _file) = listen(&path).expect("listen");
        UnixStream::connect(&path).expect("connect");
        let error = listen(&path).expect_err("a live server is there");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("the first goes on");
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let scratch = Scratch::new();
        let path = scratch.at("s");
        fs::write(&path, "text").expect("write");
        let error = listen(&path).expect_err("it is a file");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).expect("read"), b"text");
    }

    #[test]
    fn a_replaced_or_kept_file_is_not_removed() {
        let scratch = Scratch::new();
        let path = scratch.at("s");
        let (_fd, file) = listen(&path).expect("listen");
        // The new one first, so that it can't be given the old one's number.
        let other = UnixListener::bind(scratch.at("t")).expect("bind");
        fs::rename(scratch.at("t"), &path).expect("rename");
        drop(file);
        UnixStream::connect(&path).expect("the other's file is there");
        drop(other);
        let (_fd, file) = listen(&path).expect("listen");
        file.as_ref().expect("a file").keep();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn of_many_that_start_at_one_time_one_listens() {
        let scratch = Scratch::new();
        let path = scratch.at("s");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).expect("bind"));
            let listeners: Vec<_> = thread::scope(|scope| {
                let tries: Vec<_> = (0..8).map(|_| scope.spawn(|| listen(&path))).collect();
                tries
                    .into_iter()
                    .filter_map(|one| one.join().expect("no panic").ok())
                    .collect()
            });
            assert_eq!(listeners.len(), 1);
            UnixStream::connect(&path).expect("it is the one at the path");
            drop(listeners);
            assert!(!path.exists());
        }
    }

    #[test]
    fn an_abstract_name_needs_no_file() {
        let name = format!("windlass-test-{}", std::process::id());
        let path = PathBuf::from(format!("@{name}"));
        let (fd, file) = listen(&path).expect("listen");
        assert!(file.is_none() && !path.exists());
        let addr = SocketAddr::from_abstract_name(&name).expect("name");
        UnixStream::connect_addr(&addr).expect("connect");
        assert!(super::super::accept(fd.as_fd()).expect("accept").is_some());
        let error = listen(&path).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn what_cannot_be_bound_is_an_error() {
        let scratch = Scratch::new();
        let long = scratch.at(&"x".repeat(200));
        assert!(listen(&long).is_err());
        let error = listen(&scratch.at("none/s")).expect_err("no such directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
