//! Why a configuration can't be used: which file, and what is wrong with it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem;

/// A configuration that can't be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A certificate can't be parsed or used.
    BadCertificate {
        /// Where it is.
        file: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// A private key is of no kind that is supported.
    BadKey {
        /// Where it is.
        file: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The certificates by which clients are verified can't be used.
    ClientRoots {
        /// Where they are.
        file: PathBuf,
        /// Why.
        source: rustls::server::VerifierBuilderError,
    },
    /// The private key is encrypted; there is nobody to ask for the password.
    EncryptedKey {
        /// Where it is.
        file: PathBuf,
    },
    /// The private key does not belong to the first certificate of the chain.
    KeyMismatch {
        /// Where the certificates are.
        chain: PathBuf,
        /// Where the key is.
        key: PathBuf,
    },
    /// There is no certificate in a file.
    NoCertificate {
        /// Which one.
        file: PathBuf,
    },
    /// There is no private key in a file.
    NoKey {
        /// Which one.
        file: PathBuf,
    },
    /// A file is not well-formed PEM (RFC 7468).
    Pem {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// No secret for session tickets could be made.
    Random(rustls::Error),
    /// A file can't be read.
    Read {
        /// Which one.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for TlsConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |file: &Path| file.display().to_string();
        match self {
            Self::BadCertificate { file, .. } => {
                write!(f, "use the certificate in {}", name(file))
            }
            Self::BadKey { file, .. } => write!(f, "use the private key in {}", name(file)),
            Self::ClientRoots { file, .. } => {
                write!(f, "verify clients by the certificates in {}", name(file))
            }
            Self::EncryptedKey { file } => write!(
                f,
                "the private key in {} is encrypted: store it without a password",
                name(file)
            ),
            Self::KeyMismatch { chain, key } => write!(
                f,
                "the private key in {} does not belong to the first certificate in {}",
                name(key),
                name(chain)
            ),
            Self::NoCertificate { file } => write!(f, "no certificate in {}", name(file)),
            Self::NoKey { file } => write!(f, "no private key in {}", name(file)),
            Self::Pem { file, .. } => write!(f, "parse {} as PEM", name(file)),
            Self::Random(_) => f.write_str("make a secret for session tickets"),
            Self::Read { file, .. } => write!(f, "read {}", name(file)),
        }
    }
}

impl Error for TlsConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::BadCertificate { source, .. }
            | Self::BadKey { source, .. }
            | Self::Random(source) => Some(source),
            Self::ClientRoots { source, .. } => Some(source),
            Self::Pem { source, .. } => Some(source),
            Self::Read { source, .. } => Some(source),
            Self::EncryptedKey { .. }
            | Self::KeyMismatch { .. }
            | Self::NoCertificate { .. }
            | Self::NoKey { .. } => None,
        }
    }
}
