//! Listening sockets: those that this process was started with, and those that it opens.
//!
//! A service manager's sockets (socket activation) take the place of what the configuration says.
//! Those of the process that this one takes over from serve the addresses that are still
//! configured; the others are closed.

use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;
use windlass::models::{BindError, ServerBuilder, UnixOptions};
use windlass::session::Service;
use windlass_sys::activation::{ActivationError, inherited_listeners, listen_fds};
use windlass_sys::net::{self, ListenOptions};

use super::config::Config;
use crate::say;

/// Names the listeners of a predecessor's own.
pub(super) const OWN: &str = "WINDLASS_LISTEN_FDS";
/// Names the listeners that a service manager gave a predecessor.
pub(super) const ACTIVATED: &str = "WINDLASS_ACTIVATED_FDS";
/// Names the listener for metrics.
pub(super) const METRICS: &str = "WINDLASS_METRICS_FDS";

/// What this process was started with.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    activated: Vec<OwnedFd>,
    own: Vec<OwnedFd>,
    metrics: Vec<OwnedFd>,
}

impl Inherited {
    /// Takes the descriptors that the environment names; to be called before any are opened.
    pub(super) fn take() -> Result<Self, ActivationError> {
        let mut activated = inherited_listeners(ACTIVATED)?;
        activated.extend(listen_fds()?.into_iter().map(|(fd, _)| fd));
        Ok(Self {
            activated,
            own: inherited_listeners(OWN)?,
            metrics: inherited_listeners(METRICS)?,
        })
    }

    /// Under which name this process's listeners go to a successor.
    pub(super) fn pass_as(&self) -> &'static str {
        if self.activated.is_empty() {
            OWN
        } else {
            ACTIVATED
        }
    }

    /// A listener at `addr` for the metrics.
    pub(super) fn metrics_listener(&mut self, addr: SocketAddr) -> Result<OwnedFd, Box<dyn Error>> {
        let inherited = self.metrics.drain(..).find(|fd| is_at(fd.as_fd(), addr));
        match inherited {
            Some(fd) => Ok(fd),
            None => net::listen(&addr, ListenOptions::default())
                .map_err(|source| explain_bind(BindError::Listen { addr, source }, "--metrics")),
        }
    }

    /// Has `builder` listen where `config` says, or where the service manager said; answers the
    /// paths of Unix sockets that a predecessor has bound.
    pub(super) fn listen<V: Service, M>(
        self,
        config: &Config,
        mut builder: ServerBuilder<V, M>,
    ) -> (ServerBuilder<V, M>, SocketFiles) {
        let mut files = SocketFiles::default();
        if !self.activated.is_empty() {
            if !config.listen.is_empty() || !config.unix.is_empty() {
                say(format_args!(
                    "--listen and --unix give way to the sockets passed by the service manager"
                ));
            }
            for fd in self.activated {
                builder = builder.listener(fd);
            }
            return (builder, files);
        }
        let mut own = self.own;
        for &addr in config.tcp_listeners() {
            let (mine, others): (Vec<_>, _) =
                own.into_iter().partition(|fd| is_at(fd.as_fd(), addr));
            own = others;
            if mine.is_empty() {
                builder = builder.listen(addr);
            }
            for fd in mine {
                builder = builder.listener(fd);
            }
        }
        for path in &config.unix {
            let (mine, others): (Vec<_>, _) = own
                .into_iter()
                .partition(|fd| is_bound_to(fd.as_fd(), path));
            own = others;
            if mine.is_empty() {
                let options = UnixOptions {
                    mode: Some(config.unix_mode.0),
                    ..UnixOptions::default()
                };
                builder = builder.listen_unix(path, options);
            } else {
                files.0.push(path.clone());
            }
            for fd in mine {
                builder = builder.listener(fd);
            }
        }
        (builder, files)
    }
}

/// Whether `fd` listens at `addr`; if its port is free to choose, at any of its ports.
fn is_at(fd: BorrowedFd<'_>, addr: SocketAddr) -> bool {
    let found = net::local_addr(fd).ok().flatten();
    found.is_some_and(|found| {
        found.ip() == addr.ip() && (found.port() == addr.port() || addr.port() == 0)
    })
}

fn is_bound_to(fd: BorrowedFd<'_>, path: &Path) -> bool {
    let Ok(addr) = rustix::net::getsockname(fd) else {
        return false;
    };
    let Ok(addr) = SocketAddrUnix::try_from(addr) else {
        return false;
    };
    let wanted = path.as_os_str().as_bytes();
    match (
        wanted.strip_prefix(b"@"),
        addr.abstract_name(),
        addr.path_bytes(),
    ) {
        (Some(name), Some(found), _) => name == found,
        (None, _, Some(found)) => found == wanted,
        _ => false,
    }
}

/// The files of Unix sockets that a predecessor has bound. This process is to remove them.
#[derive(Debug, Default)]
pub(super) struct SocketFiles(Vec<PathBuf>);

impl SocketFiles {
    /// Removes those to which nobody listens any more: there is no successor.
    pub(super) fn remove(&self) {
        for path in self.0.iter().filter(|path| !path.starts_with("@")) {
            let refused = UnixStream::connect(path)
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if refused {
                // Somebody was quicker.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// What to do about an address that can't be listened on; `flag` says where.
pub(super) fn explain_bind(error: BindError, flag: &str) -> Box<dyn Error> {
    let (place, source) = match &error {
        BindError::Listen { addr, source } => (addr.to_string(), source),
        BindError::ListenUnix { path, source } => (path.display().to_string(), source),
        _ => return error.into(),
    };
    let is_path = matches!(error, BindError::ListenUnix { .. });
    let hint = match source.kind() {
        ErrorKind::AddrInUse if is_path => {
            "a server listens there, or the file is no socket; choose another path".to_owned()
        }
        ErrorKind::NotFound if is_path => "there is no such directory".to_owned(),
        ErrorKind::PermissionDenied if is_path => {
            "this user may not make files in that directory".to_owned()
        }
        ErrorKind::AddrInUse => {
            format!("another program listens there; choose another port with {flag}")
        }
        ErrorKind::AddrNotAvailable => {
            "no network interface of this machine has that address".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges; choose a higher one, let systemd pass the socket, or \
             grant CAP_NET_BIND_SERVICE"
                .to_owned()
        }
        _ => return error.into(),
    };
    format!("listen on {place}: {hint}").into()
}
