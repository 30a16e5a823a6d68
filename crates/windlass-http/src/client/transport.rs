//! What carries the bytes of a connection: a socket, or TLS over one.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use windlass::session::Output;
use windlass_sys::net::{self, More};

#[cfg(feature = "client-tls")]
mod tls;

#[cfg(feature = "client-tls")]
use self::tls::TlsLayer;
#[cfg(feature = "client-tls")]
pub(super) use self::tls::TlsSettings;
use crate::client::origin::Origin;

/// Without TLS there is nothing to set.
#[cfg(not(feature = "client-tls"))]
#[derive(Debug)]
pub(super) struct TlsSettings;

/// A connected, or connecting, byte stream.
#[derive(Debug)]
pub(super) struct Transport {
    socket: Rc<OwnedFd>,
    #[cfg(feature = "client-tls")]
    tls: Option<Box<TlsLayer>>,
}

/// Why a transport failed.
#[derive(Debug)]
pub(super) enum TransportError {
    Socket(io::Error),
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(dead_code, reason = "no TLS, no failure of it")
    )]
    Tls(io::Error),
}

/// Slices handed to one call.
const SLICES: usize = 16;

impl Transport {
    /// Over a socket that connects to `origin`.
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(
            unused_variables,
            clippy::unnecessary_wraps,
            reason = "only TLS looks at them"
        )
    )]
    pub(super) fn new(
        socket: OwnedFd,
        origin: &Origin,
        settings: &TlsSettings,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            socket: Rc::new(socket),
            #[cfg(feature = "client-tls")]
            tls: TlsLayer::for_origin(origin, settings)?,
        })
    }

    /// The socket, also for whoever closes the connection from outside.
    pub(super) fn socket(&self) -> &Rc<OwnedFd> {
        &self.socket
    }

    /// Goes on with the handshake, if there is one, on a socket that is connected; answers whether
    /// it is done.
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(
            clippy::unnecessary_wraps,
            clippy::needless_pass_by_ref_mut,
            clippy::unused_self,
            reason = "only TLS shakes hands"
        )
    )]
    pub(super) fn handshake(&mut self) -> Result<bool, TransportError> {
        #[cfg(feature = "client-tls")]
        if let Some(tls) = &mut self.tls {
            return tls.handshake(self.socket.as_fd());
        }
        Ok(true)
    }

    /// Whether bytes of its own wait to be written.
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(clippy::unused_self, reason = "only TLS has bytes of its own")
    )]
    pub(super) fn wants_write(&self) -> bool {
        #[cfg(feature = "client-tls")]
        if let Some(tls) = &self.tls {
            return tls.wants_write();
        }
        false
    }

    /// Reads. `None`: nothing is there; zero: the peer is done sending, and said so.
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(clippy::needless_pass_by_ref_mut, reason = "only TLS has a state")
    )]
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, TransportError> {
        #[cfg(feature = "client-tls")]
        if let Some(tls) = &mut self.tls {
            return tls.read(self.socket.as_fd(), buf);
        }
        net::recv(self.socket.as_fd(), buf).map_err(TransportError::Socket)
    }

    /// Writes as much of `output` as is taken; answers how many bytes.
    #[cfg_attr(
        not(feature = "client-tls"),
        expect(clippy::needless_pass_by_ref_mut, reason = "only TLS has a state")
    )]
    pub(super) fn write(&mut self, output: &mut Output) -> Result<u64, TransportError> {
        #[cfg(feature = "client-tls")]
        if let Some(tls) = &mut self.tls {
            return tls.write(self.socket.as_fd(), output);
        }
        let mut written = 0;
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = output.io_slices(&mut slices);
            debug_assert!(filled > 0, "a client queues no files");
            let sent = net::send_slices(self.socket.as_fd(), &slices[..filled], More::Flush);
            let Some(sent) = sent.map_err(TransportError::Socket)? else {
                break;
            };
            output.advance(sent as u64);
            written += sent as u64;
        }
        Ok(written)
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
