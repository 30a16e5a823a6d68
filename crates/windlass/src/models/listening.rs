//! Listening: what a server is told to listen on, and the sockets of each of its loops.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use windlass_sys::fd::{self, Blocking};
use windlass_sys::net::{self, ListenOptions, SocketFile, UnixOptions};

use crate::event_loop::OpenError;

/// What is to be listened on.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) paths: Vec<(PathBuf, UnixOptions)>,
    pub(super) listeners: Vec<OwnedFd>,
}

/// A socket that one loop accepts from.
#[derive(Debug)]
pub(super) struct ListenSocket {
    pub(super) fd: OwnedFd,
    pub(super) label: String,
    pub(super) sharing: Sharing,
    /// Removed when the last loop closes its socket.
    pub(super) _file: Option<Arc<SocketFile>>,
}

/// Whether other loops accept from the same socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Own,
    Shared,
}

/// All that is listened on.
#[derive(Debug)]
pub(super) struct Opened {
    /// The sockets of each loop.
    pub(super) loops: Vec<Vec<ListenSocket>>,
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) files: Vec<Arc<SocketFile>>,
}

impl Listening {
    /// Opens sockets for so many loops: of an address each its own, of anything else duplicates of
    /// one.
    pub(super) fn open(self, loops: usize) -> Result<Opened, BindError> {
        let mut opened = Opened {
            loops: (0..loops).map(|_| Vec::new()).collect(),
            addrs: Vec::new(),
            files: Vec::new(),
        };
        for listener in self.listeners {
            opened.adopt(listener).map_err(BindError::Register)?;
        }
        for addr in self.addrs {
            let group = net::listen_group(&addr, loops, ListenOptions::default())
                .map_err(|source| BindError::Listen { addr, source })?;
            opened.addrs.extend(addr_of(&group[0]));
            for (sockets, fd) in opened.loops.iter_mut().zip(group) {
                sockets.push(ListenSocket {
                    label: label_of(&fd),
                    fd,
                    sharing: Sharing::Own,
                    _file: None,
                });
            }
        }
        for (path, options) in self.paths {
            let bound = net::listen_unix(&path, options).and_then(|(fd, file)| {
                let file = file.map(Arc::new);
                opened.files.extend(file.clone());
                let label = format!("listener {}", path.display());
                opened.share(fd, &label, file.as_ref())
            });
            bound.map_err(|source| BindError::ListenUnix { path, source })?;
        }
        Ok(opened)
    }
}

impl Opened {
    /// Takes a socket that listens already.
    fn adopt(&mut self, listener: OwnedFd) -> io::Result<()> {
        fd::set_blocking(listener.as_fd(), Blocking::Nonblocking)?;
        self.addrs.extend(addr_of(&listener));
        let label = label_of(&listener);
        self.share(listener, &label, None)
    }

    /// Gives each loop a descriptor of one socket.
    fn share(
        &mut self,
        fd: OwnedFd,
        label: &str,
        file: Option<&Arc<SocketFile>>,
    ) -> io::Result<()> {
        let sharing = if self.loops.len() > 1 {
            Sharing::Shared
        } else {
            Sharing::Own
        };
        let socket = |fd| ListenSocket {
            fd,
            sharing,
            label: label.to_owned(),
            _file: file.cloned(),
        };
        for sockets in self.loops.iter_mut().skip(1) {
            sockets.push(socket(fd.try_clone()?));
        }
        self.loops[0].push(socket(fd));
        Ok(())
    }
}

/// The Internet address of a listener; a socket of another family has none.
fn addr_of(fd: &OwnedFd) -> Option<SocketAddr> {
    net::local_addr(fd.as_fd()).ok().flatten()
}

fn label_of(fd: &OwnedFd) -> String {
    addr_of(fd).map_or_else(|| "listener".into(), |addr| format!("listener {addr}"))
}

/// A server that could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// An address can't be listened on.
    Listen {
        /// Which one.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A Unix socket can't be listened on.
    ListenUnix {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The loop can't be opened.
    Loop(OpenError),
    /// The worker pool can't be started.
    Pool(io::Error),
    /// A listener can't be watched.
    Register(io::Error),
    /// A loop's thread can't be started.
    Thread(io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { addr, .. } => write!(f, "listen on {addr}"),
            Self::ListenUnix { path, .. } => write!(f, "listen on {}", path.display()),
            Self::Loop(_) => f.write_str("open the server's event loop"),
            Self::Pool(_) => f.write_str("start the server's worker pool"),
            Self::Register(_) => f.write_str("watch a listener"),
            Self::Thread(_) => f.write_str("start a loop's thread"),
        }
    }
}

impl Error for BindError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Listen { source, .. }
            | Self::ListenUnix { source, .. }
            | Self::Pool(source)
            | Self::Register(source)
            | Self::Thread(source) => source,
            Self::Loop(source) => source,
        })
    }
}
