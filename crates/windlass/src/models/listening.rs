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
    /// From a duplicate of another loop's.
    Duplicate,
    /// None does.
    Own,
    /// Others have duplicates of this one.
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
    /// Opens sockets for so many loops that accept: of an address each its own, of anything else
    /// duplicates of one.
    pub(super) fn open(self, loops: usize) -> Result<Opened, BindError> {
        let mut opened = Opened {
            loops: (0..loops).map(|_| Vec::new()).collect(),
            addrs: Vec::new(),
            files: Vec::new(),
        };
        opened.adopt(self.listeners).map_err(BindError::Register)?;
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
    /// Takes sockets that listen already. Those of one address are a group that was opened for
    /// several loops, and divided again.
    fn adopt(&mut self, listeners: Vec<OwnedFd>) -> io::Result<()> {
        let mut groups: Vec<(Option<SocketAddr>, Vec<OwnedFd>)> = Vec::new();
        for listener in listeners {
            fd::set_blocking(listener.as_fd(), Blocking::Nonblocking)?;
            let addr = addr_of(&listener);
            match groups.iter_mut().find(|group| group.0 == addr) {
                Some(group) if addr.is_some() => group.1.push(listener),
                _ => groups.push((addr, vec![listener])),
            }
        }
        for (addr, group) in groups {
            self.addrs.extend(addr);
            self.divide(group)?;
        }
        Ok(())
    }

    /// Gives each loop its part of the sockets of one address. Those that are too few are shared.
    fn divide(&mut self, group: Vec<OwnedFd>) -> io::Result<()> {
        let (count, loops) = (group.len(), self.loops.len());
        let mut takers: Vec<Vec<usize>> = vec![Vec::new(); count];
        for at in 0..count.max(loops) {
            takers[at % count].push(at % loops);
        }
        for (fd, takers) in group.into_iter().zip(takers) {
            let label = label_of(&fd);
            self.give(fd, &label, None, &takers)?;
        }
        Ok(())
    }

    /// Gives each loop a descriptor of one socket.
    fn share(
        &mut self,
        fd: OwnedFd,
        label: &str,
        file: Option<&Arc<SocketFile>>,
    ) -> io::Result<()> {
        let all: Vec<usize> = (0..self.loops.len()).collect();
        self.give(fd, label, file, &all)
    }

    /// Gives a socket to the first of `takers`, and duplicates to the others.
    fn give(
        &mut self,
        fd: OwnedFd,
        label: &str,
        file: Option<&Arc<SocketFile>>,
        takers: &[usize],
    ) -> io::Result<()> {
        let others = takers.get(1..).unwrap_or_default();
        let socket = |fd, sharing| ListenSocket {
            fd,
            label: label.to_owned(),
            sharing,
            _file: file.cloned(),
        };
        for &taker in others {
            let duplicate = socket(fd.try_clone()?, Sharing::Duplicate);
            self.loops[taker].push(duplicate);
        }
        let sharing = if others.is_empty() {
            Sharing::Own
        } else {
            Sharing::Shared
        };
        if let Some(&first) = takers.first() {
            self.loops[first].push(socket(fd, sharing));
        }
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
    /// There is no memory for the buffers that connections receive into.
    Buffers(io::Error),
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
            Self::Buffers(_) => f.write_str("provide the buffers that connections receive into"),
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
            | Self::Buffers(source)
            | Self::Pool(source)
            | Self::Register(source)
            | Self::Thread(source) => source,
            Self::Loop(source) => source,
        })
    }
}
