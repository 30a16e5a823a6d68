//! The configuration: certificates, protocol versions, who is let in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};

use crate::certificates::Certificates;
use crate::error::TlsConfigError;
use crate::pem::{PemPair, PemSource, read_certificates};

/// How connections are encrypted, and for whom.
///
/// Files are read and checked by the calls that name them, so that a mistake is found at the start,
/// and read again by [`TlsHandle::reload`](crate::TlsHandle::reload).
#[derive(Clone, Debug)]
pub struct TlsConfig {
    provider: Arc<CryptoProvider>,
    certificates: Vec<(PemPair, Arc<CertifiedKey>)>,
    clients: Option<Clients>,
    alpn: Vec<Vec<u8>>,
    versions: TlsVersions,
    pub(crate) handshake_timeout: Duration,
    pub(crate) plain_http_answer: Option<Bytes>,
    pub(crate) input_bytes_max: usize,
}

/// How clients are verified.
#[derive(Clone, Debug)]
struct Clients {
    source: PemSource,
    roots: Arc<RootCertStore>,
    demand: ClientCertificates,
}

/// Which versions of TLS are spoken. Older ones have no secure mode (RFC 8996).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    #[default]
    Tls12AndTls13,
    /// 1.3 only.
    Tls13,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// It may; if it does, the certificate must be valid.
    Optional,
    /// It must.
    Required,
}

impl TlsConfig {
    /// Uses the certificate chain (the server's own first, PEM) and the private key (PEM: PKCS #8,
    /// PKCS #1 or SEC 1, not encrypted) in these files. Both may be in one.
    ///
    /// # Errors
    ///
    /// If a file can't be read, has not what is looked for, or the two don't belong together.
    pub fn from_pem_files(
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsConfigError> {
        Self::empty().with_pair(files(chain.as_ref(), key.as_ref()))
    }

    /// The same from text in memory, which a reload takes again.
    ///
    /// # Errors
    ///
    /// As [`from_pem_files`](Self::from_pem_files).
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, TlsConfigError> {
        Self::empty().with_pair(memory(chain, key))
    }

    /// Adds a certificate for the names in it (its DNS names, with wildcards for one label). The
    /// first certificate of all is the one for clients that name no server, or one that none is
    /// for. Of several for one name the first is taken whose signature the client can verify.
    ///
    /// # Errors
    ///
    /// As [`from_pem_files`](Self::from_pem_files).
    pub fn add(
        self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsConfigError> {
        self.with_pair(files(chain.as_ref(), key.as_ref()))
    }

    /// The same from text in memory.
    ///
    /// # Errors
    ///
    /// As [`from_pem_files`](Self::from_pem_files).
    pub fn add_pem(self, chain: &str, key: &str) -> Result<Self, TlsConfigError> {
        self.with_pair(memory(chain, key))
    }

    /// Verifies clients: their certificates must be signed by one of those in `roots` (PEM).
    ///
    /// # Errors
    ///
    /// If the file can't be read or has no usable certificate.
    pub fn client_certificates(
        mut self,
        roots: impl AsRef<Path>,
        demand: ClientCertificates,
    ) -> Result<Self, TlsConfigError> {
        let source = PemSource::File(roots.as_ref().to_path_buf());
        self.clients = Some(Clients::load(source, demand, &self.provider)?);
        Ok(self)
    }

    /// Sets the application protocols to be agreed on (RFC 7301), the most wanted first (default
    /// `http/1.1`). A client that offers protocols, but none of these, is refused. With none there
    /// is no agreement.
    #[must_use]
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the versions that are spoken (default 1.2 and 1.3).
    #[must_use]
    pub fn versions(mut self, versions: TlsVersions) -> Self {
        self.versions = versions;
        self
    }

    /// Sets how long a handshake may take, from the accept on (default 10 s).
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Answers clear-text HTTP with `answer`, sent as it is, and closes; the default is the alert
    /// that anything else than TLS gets.
    #[must_use]
    pub fn plain_http_answer(mut self, answer: impl Into<Bytes>) -> Self {
        self.plain_http_answer = Some(answer.into());
        self
    }

    /// Sets how much decrypted input the wrapped session may leave unconsumed (default 64 KiB);
    /// with more the connection ends.
    #[must_use]
    pub fn input_bytes_max(mut self, bytes: usize) -> Self {
        self.input_bytes_max = bytes;
        self
    }

    fn empty() -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            certificates: Vec::new(),
            clients: None,
            alpn: vec![b"http/1.1".to_vec()],
            versions: TlsVersions::default(),
            handshake_timeout: Duration::from_secs(10),
            plain_http_answer: None,
            input_bytes_max: 64 * 1024,
        }
    }

    fn with_pair(mut self, pair: PemPair) -> Result<Self, TlsConfigError> {
        let certified = pair.load(&self.provider)?;
        // Of use later; checked now, where the mistake is.
        Certificates::default().add(Arc::clone(&certified), pair.chain.name())?;
        self.certificates.push((pair, certified));
        Ok(self)
    }

    /// The same configuration with all files read again.
    pub(crate) fn read_again(&self) -> Result<Self, TlsConfigError> {
        let mut fresh = Self {
            certificates: Vec::with_capacity(self.certificates.len()),
            clients: None,
            ..self.clone()
        };
        for (pair, _) in &self.certificates {
            fresh = fresh.with_pair(pair.clone())?;
        }
        if let Some(clients) = &self.clients {
            let source = clients.source.clone();
            fresh.clients = Some(Clients::load(source, clients.demand, &fresh.provider)?);
        }
        Ok(fresh)
    }

    /// Whether clients are verified. Then what one configuration let in must not be resumed under
    /// the next.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// What rustls is run with.
    pub(crate) fn to_rustls(
        &self,
        ticketer: Arc<dyn ProducesTickets>,
    ) -> Result<Arc<ServerConfig>, TlsConfigError> {
        let mut certificates = Certificates::default();
        for (pair, certified) in &self.certificates {
            certificates.add(Arc::clone(certified), pair.chain.name())?;
        }
        let versions: &[_] = match self.versions {
            TlsVersions::Tls12AndTls13 => &[&version::TLS13, &version::TLS12],
            TlsVersions::Tls13 => &[&version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .expect("the provider has cipher suites for both versions");
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients.verifier(&self.provider)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols.clone_from(&self.alpn);
        config.ticketer = ticketer;
        Ok(Arc::new(config))
    }
}

impl Clients {
    fn load(
        source: PemSource,
        demand: ClientCertificates,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsConfigError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&source)? {
            roots
                .add(certificate)
                .map_err(|error| TlsConfigError::BadCertificate {
                    file: source.name(),
                    source: error,
                })?;
        }
        let clients = Self {
            source,
            roots: Arc::new(roots),
            demand,
        };
        clients.verifier(provider)?;
        Ok(clients)
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsConfigError> {
        let roots = Arc::clone(&self.roots);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
        let builder = match self.demand {
            ClientCertificates::Optional => builder.allow_unauthenticated(),
            ClientCertificates::Required => builder,
        };
        builder
            .build()
            .map_err(|error| TlsConfigError::ClientRoots {
                file: self.source.name(),
                source: error,
            })
    }
}

/// A fresh secret for session tickets, which replaces itself from time to time.
pub(crate) fn ticketer() -> Result<Arc<dyn ProducesTickets>, TlsConfigError> {
    aws_lc_rs::Ticketer::new().map_err(TlsConfigError::Random)
}

fn files(chain: &Path, key: &Path) -> PemPair {
    PemPair {
        chain: PemSource::File(chain.to_path_buf()),
        key: PemSource::File(key.to_path_buf()),
    }
}

fn memory(chain: &str, key: &str) -> PemPair {
    PemPair {
        chain: PemSource::Memory(chain.as_bytes().into()),
        key: PemSource::Memory(key.as_bytes().into()),
    }
}
