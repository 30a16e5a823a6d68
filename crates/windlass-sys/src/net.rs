//! Sockets: listening, accepting, connecting, and moving bytes, none of which blocks.
//!
//! Every socket made here is non-blocking and closed on exec. `EINTR` is retried and "would
//! block" is `None`. Sending never raises `SIGPIPE` (`MSG_NOSIGNAL`).

mod unix;

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    sockopt,
};

pub use self::unix::{SocketFile, UnixOptions, listen_unix};

use crate::errno::retry_or_none;

/// The most slices that one sendmsg(2) takes (`IOV_MAX`).
pub const SLICES_MAX: usize = 1024;

/// How a listener is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// How many connections may wait to be accepted; the kernel caps it at
    /// `net.core.somaxconn`. Default 4096, as that is.
    pub backlog: u32,
    /// Several listeners on one address share its connections (`SO_REUSEPORT`). Default no.
    pub reuse_port: bool,
    /// An IPv6 listener: whether it refuses IPv4 (`IPV6_V6ONLY`). Default: the system's choice.
    pub only_v6: Option<bool>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            reuse_port: false,
            only_v6: None,
        }
    }
}

/// Opens a TCP listener on `addr`: socket(2) with `SO_REUSEADDR`, bind(2), listen(2).
///
/// # Errors
///
/// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES` (a privileged port), `EAFNOSUPPORT`, `EMFILE`, ….
pub fn listen(addr: &SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    let fd = bound_socket(addr, options)?;
    start_listening(&fd, options)?;
    Ok(fd)
}

/// Opens `count` TCP listeners on `addr` among which the kernel divides the connections
/// (`SO_REUSEPORT`), for as many threads to accept from. Of port 0 the first one's is taken for
/// all.
///
/// Others are kept out: `EADDRINUSE` if anything listens there already, though it be a group like
/// this one. (That is, unless it is started at the very same moment.)
///
/// # Errors
///
/// As [`listen`].
pub fn listen_group(
    addr: &SocketAddr,
    count: usize,
    options: ListenOptions,
) -> io::Result<Vec<OwnedFd>> {
    let mut group = Vec::with_capacity(count);
    let mut addr = *addr;
    for at in 0..count {
        let reuse_port = at > 0;
        let options = ListenOptions {
            reuse_port,
            ..options
        };
        let fd = bound_socket(&addr, options)?;
        if at == 0 {
            // Only now: binding without it has shown that nobody else is there.
            sockopt::set_socket_reuseport(&fd, count > 1)?;
            addr = local_addr(fd.as_fd())?.unwrap_or(addr);
        }
        group.push(fd);
    }
    for fd in &group {
        start_listening(fd, options)?;
    }
    Ok(group)
}

fn bound_socket(addr: &SocketAddr, options: ListenOptions) -> io::Result<OwnedFd> {
    let fd = stream_socket(addr)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if let Some(only_v6) = options.only_v6
        && addr.is_ipv6()
    {
        sockopt::set_ipv6_v6only(&fd, only_v6)?;
    }
    rustix::net::bind(&fd, addr)?;
    Ok(fd)
}

fn start_listening(fd: &OwnedFd, options: ListenOptions) -> io::Result<()> {
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    Ok(rustix::net::listen(fd, backlog)?)
}

/// The address that a socket is bound to, getsockname(2); `None` if it is no Internet address.
///
/// # Errors
///
/// `ENOTSOCK`, `ENOBUFS`.
pub fn local_addr(fd: BorrowedFd<'_>) -> io::Result<Option<SocketAddr>> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?).ok())
}

/// The Internet address of a socket's peer, getpeername(2), if it has one and is still connected.
#[must_use]
pub fn peer_addr(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    let address = rustix::net::getpeername(fd).ok()??;
    SocketAddr::try_from(address).ok()
}

/// A connection as accepted: the socket, and the peer's Internet address if it has one.
pub type Accepted = (OwnedFd, Option<SocketAddr>);

/// Takes one connection, accept4(2). `None`: none is waiting.
///
/// # Errors
///
/// Sorted by what the caller has to do, see [`AcceptError`].
#[inline]
pub fn accept(listener: BorrowedFd<'_>) -> Result<Option<Accepted>, AcceptError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((fd, addr)) => {
                return Ok(Some((
                    fd,
                    addr.and_then(|addr| SocketAddr::try_from(addr).ok()),
                )));
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(AcceptError::from_errno(error)),
        }
    }
}

/// Why accept4(2) gave no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError {
    /// That one connection failed before it was accepted, or the network or a firewall refused
    /// it: try the next.
    Connection(io::Error),
    /// The process or the system is out of descriptors or memory: the connection still waits, so
    /// pause accepting rather than spin.
    Exhausted(io::Error),
    /// The listener does not work.
    Listener(io::Error),
}

impl AcceptError {
    pub(crate) fn from_errno(error: Errno) -> Self {
        match error {
            // accept(2): "pending network errors … should be treated like EAGAIN".
            Errno::CONNABORTED
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::PERM
            | Errno::PROTO
            | Errno::TIMEDOUT => Self::Connection(error.into()),
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                Self::Exhausted(error.into())
            }
            _ => Self::Listener(error.into()),
        }
    }

    /// The system's error.
    #[must_use]
    pub fn as_io_error(&self) -> &io::Error {
        match self {
            Self::Connection(error) | Self::Exhausted(error) | Self::Listener(error) => error,
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection(_) => "accept a connection that failed",
            Self::Exhausted(_) => "accept a connection with no descriptor or memory left",
            Self::Listener(_) => "accept from a listener that does not work",
        })
    }
}

impl Error for AcceptError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.as_io_error())
    }
}

/// Whether [`connect`] is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProgress {
    /// The socket is connected.
    Connected,
    /// Wait until it is writable, then look with [`take_socket_error`].
    InProgress,
}

/// Starts to connect a new TCP socket to `addr`, connect(2).
///
/// # Errors
///
/// `EADDRNOTAVAIL` (no free port), `ECONNREFUSED`, `ENETUNREACH`, `EMFILE`, ….
pub fn connect(addr: &SocketAddr) -> io::Result<(OwnedFd, ConnectProgress)> {
    let fd = stream_socket(addr)?;
    match rustix::net::connect(&fd, addr) {
        Ok(()) => Ok((fd, ConnectProgress::Connected)),
        // After an interruption the connection goes on being made, connect(2).
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((fd, ConnectProgress::InProgress)),
        Err(error) => Err(error.into()),
    }
}

/// Receives into `buf`, recv(2). `None`: it would block; zero: the peer is done sending.
///
/// # Errors
///
/// `ECONNRESET`, `ETIMEDOUT`, `ENOTSOCK`, ….
#[inline]
pub fn recv(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    retry_or_none(|| rustix::net::recv(fd, &mut *buf, RecvFlags::empty()).map(|(_, count)| count))
}

/// Whether more output follows at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum More {
    /// Send what there is.
    #[default]
    Flush,
    /// A partial segment may wait for the next send (`MSG_MORE`).
    Follows,
}

impl More {
    #[inline]
    fn flags(self) -> SendFlags {
        match self {
            Self::Flush => SendFlags::NOSIGNAL,
            Self::Follows => SendFlags::NOSIGNAL | SendFlags::MORE,
        }
    }
}

/// Sends from `buf`, send(2); answers how many bytes were taken. `None`: it would block.
///
/// # Errors
///
/// `EPIPE`, `ECONNRESET`, `ENOBUFS`, `ENOTSOCK`, ….
#[inline]
pub fn send(fd: BorrowedFd<'_>, buf: &[u8], more: More) -> io::Result<Option<usize>> {
    retry_or_none(|| rustix::net::send(fd, buf, more.flags()))
}

/// Sends from `slices`, sendmsg(2); answers how many bytes were taken. `None`: it would block.
/// Slices from [`SLICES_MAX`] on are left for the next call.
///
/// # Errors
///
/// As [`send`].
#[inline]
pub fn send_slices(
    fd: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    more: More,
) -> io::Result<Option<usize>> {
    let slices = &slices[..slices.len().min(SLICES_MAX)];
    retry_or_none(|| {
        rustix::net::sendmsg(
            fd,
            slices,
            &mut SendAncillaryBuffer::default(),
            more.flags(),
        )
    })
}

/// Says that nothing more will be sent, shutdown(2) `SHUT_WR`.
///
/// # Errors
///
/// `ENOTCONN`, `ENOTSOCK`.
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// Ends both directions, shutdown(2): whoever waits for the socket is woken, and the peer sees the
/// end, though another thread has the descriptor open.
///
/// # Errors
///
/// `ENOTCONN`: the connection is gone.
pub fn shutdown_both(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Both)?)
}

/// Sends small segments at once, tcp(7) `TCP_NODELAY`.
///
/// # Errors
///
/// `EOPNOTSUPP` or `ENOPROTOOPT` (not TCP), `ENOTSOCK`.
#[inline]
pub fn set_nodelay(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, true)?)
}

/// Makes the coming close a reset that drops unsent output, socket(7) `SO_LINGER` of zero.
///
/// # Errors
///
/// `ENOTSOCK`.
pub fn set_linger_zero(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// Takes the error that is pending on a socket, socket(7) `SO_ERROR`: `Ok(None)` if there is none.
///
/// # Errors
///
/// `ENOTSOCK`.
pub fn take_socket_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

fn stream_socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

#[cfg(test)]
mod tests;
