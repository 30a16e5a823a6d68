//! TLS by rustls: the handshake, records both ways, and the end that is announced.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use url::Host;
use windlass::session::{Front, Output};
use windlass_sys::net::{self, More};

use super::TransportError;
use crate::client::origin::{Origin, Scheme};

/// What TLS trusts and offers.
#[derive(Clone, Debug)]
pub(in crate::client) struct TlsSettings(Arc<ClientConfig>);

impl TlsSettings {
    /// The caller's, or the default: the roots of Mozilla and no client certificate. What is
    /// offered by ALPN is HTTP/1.1 in any case (RFC 7301), as nothing else is spoken.
    pub(in crate::client) fn new(config: Option<&Arc<ClientConfig>>) -> Self {
        let mut config = config.map_or_else(default_config, |config| (**config).clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }
}

fn default_config() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// One TLS connection, without its socket.
#[derive(Debug)]
pub(super) struct TlsLayer {
    tls: ClientConnection,
}

impl TlsLayer {
    /// For an origin that is secure.
    pub(super) fn for_origin(
        origin: &Origin,
        settings: &TlsSettings,
    ) -> Result<Option<Box<Self>>, TransportError> {
        if origin.scheme() == Scheme::Http {
            return Ok(None);
        }
        let name = match origin.host() {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|error| tls_error(io::ErrorKind::InvalidInput, error))?,
            Host::Ipv4(addr) => ServerName::from(std::net::IpAddr::from(*addr)),
            Host::Ipv6(addr) => ServerName::from(std::net::IpAddr::from(*addr)),
        };
        let tls = ClientConnection::new(Arc::clone(&settings.0), name)
            .map_err(|error| tls_error(io::ErrorKind::InvalidInput, error))?;
        Ok(Some(Box::new(Self { tls })))
    }

    pub(super) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    pub(super) fn handshake(&mut self, socket: BorrowedFd<'_>) -> Result<bool, TransportError> {
        loop {
            self.write_records(socket)?;
            if !self.tls.is_handshaking() {
                return Ok(true);
            }
            match self.read_records(socket)? {
                None => return Ok(false),
                Some(0) => {
                    let closed = "the connection ended in the handshake";
                    return Err(tls_error(io::ErrorKind::UnexpectedEof, closed));
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        buf: &mut [u8],
    ) -> Result<Option<usize>, TransportError> {
        loop {
            match self.tls.reader().read(buf) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end was not announced: somebody may have cut the answer short
                // (RFC 8446 section 6.1).
                Err(error) => return Err(TransportError::Tls(error)),
            }
            if self.read_records(socket)?.is_none() {
                return Ok(None);
            }
        }
    }

    pub(super) fn write(
        &mut self,
        socket: BorrowedFd<'_>,
        output: &mut Output,
    ) -> Result<u64, TransportError> {
        let mut written = 0;
        loop {
            self.write_records(socket)?;
            if self.tls.wants_write() {
                return Ok(written);
            }
            let Some(Front::Bytes(bytes)) = output.front() else {
                return Ok(written);
            };
            let taken = self.tls.writer().write(bytes);
            let taken = taken.map_err(TransportError::Tls)? as u64;
            output.advance(taken);
            written += taken;
        }
    }

    /// Reads what the socket has, and takes it apart. `None`: it has nothing; zero: it has ended.
    fn read_records(&mut self, socket: BorrowedFd<'_>) -> Result<Option<usize>, TransportError> {
        let count = match self.tls.read_tls(&mut Socket(socket)) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(TransportError::Socket(error)),
        };
        if let Err(error) = self.tls.process_new_packets() {
            // The peer is told why; if that fails, the first error is still the one that counts.
            let _ = self.tls.write_tls(&mut Socket(socket));
            return Err(tls_error(io::ErrorKind::InvalidData, error));
        }
        Ok(Some(count))
    }

    fn write_records(&mut self, socket: BorrowedFd<'_>) -> Result<(), TransportError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(TransportError::Socket(error)),
            }
        }
        Ok(())
    }
}

impl Drop for super::Transport {
    /// Announces the end, if the socket takes that at once.
    fn drop(&mut self) {
        if let Some(layer) = &mut self.tls {
            layer.tls.send_close_notify();
            // Whoever closes is not interested in an answer any more.
            let _ = layer.tls.write_tls(&mut Socket(self.socket.as_fd()));
        }
    }
}

fn tls_error<E>(kind: io::ErrorKind, error: E) -> TransportError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    TransportError::Tls(io::Error::new(kind, error))
}

/// A non-blocking socket as rustls reads and writes it.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        net::recv(self.0, buf)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        net::send(self.0, buf, More::Flush)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
