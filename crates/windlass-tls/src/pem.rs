//! Certificates and keys as PEM: from files, which can be read again, or from memory.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::error::TlsConfigError;

/// Where a piece of PEM is.
#[derive(Clone)]
pub(crate) enum PemSource {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

/// What is in memory may be a private key.
impl fmt::Debug for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Memory(_) => f.write_str("Memory"),
        }
    }
}

impl PemSource {
    /// The text, read anew if it is in a file.
    fn read(&self) -> Result<Arc<[u8]>, TlsConfigError> {
        match self {
            Self::File(path) => match fs::read(path) {
                Ok(text) => Ok(text.into()),
                Err(source) => Err(TlsConfigError::Read {
                    file: path.clone(),
                    source,
                }),
            },
            Self::Memory(text) => Ok(Arc::clone(text)),
        }
    }

    /// How messages name it.
    pub(crate) fn name(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Memory(_) => Path::new("(memory)").to_path_buf(),
        }
    }
}

/// Where a certificate chain and its key are.
#[derive(Clone, Debug)]
pub(crate) struct PemPair {
    pub(crate) chain: PemSource,
    pub(crate) key: PemSource,
}

impl PemPair {
    /// Reads and checks both.
    pub(crate) fn load(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, TlsConfigError> {
        let chain = read_certificates(&self.chain)?;
        let key = read_key(&self.key)?;
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|source| TlsConfigError::BadKey {
                file: self.key.name(),
                source,
            })?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Unknown: the key does not say what its public part is. A handshake will tell.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Arc::new(certified))
            }
            Err(Error::InconsistentKeys(_)) => Err(TlsConfigError::KeyMismatch {
                chain: self.chain.name(),
                key: self.key.name(),
            }),
            Err(source) => Err(TlsConfigError::BadCertificate {
                file: self.chain.name(),
                source,
            }),
        }
    }
}

/// All certificates of `source`; at least one.
pub(crate) fn read_certificates(
    source: &PemSource,
) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let text = source.read()?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(source, error))?;
    if certificates.is_empty() {
        return Err(TlsConfigError::NoCertificate {
            file: source.name(),
        });
    }
    Ok(certificates)
}

/// The first private key of `source`.
fn read_key(source: &PemSource) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    let text = source.read()?;
    if is_encrypted(&text) {
        return Err(TlsConfigError::EncryptedKey {
            file: source.name(),
        });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsConfigError::NoKey {
            file: source.name(),
        },
        error => malformed(source, error),
    })
}

fn malformed(source: &PemSource, error: pem::Error) -> TlsConfigError {
    TlsConfigError::Pem {
        file: source.name(),
        source: error,
    }
}

/// Whether a key is encrypted: as PKCS #8 by its label, in the older form by a header line
/// (RFC 7468 section 11, RFC 1421 section 4.6.1.1).
fn is_encrypted(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').any(|line| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            || line.starts_with(b"Proc-Type: 4,ENCRYPTED")
    })
}
