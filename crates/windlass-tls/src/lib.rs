//! TLS as a layer between any driver and any session.
//!
//! [`TlsService`] wraps a [`Service`](windlass::session::Service): its sessions decrypt what the
//! driver reads, let the wrapped session go on, and encrypt what that answers. They hold no socket
//! and read no clock, as any session, so that every concurrency model serves TLS without knowing
//! of it. The protocol itself is rustls; the cryptography is AWS-LC.
//!
//! ```no_run
//! use std::sync::Arc;
//! use windlass::models::SingleLoop;
//! use windlass_tls::{TlsConfig, TlsService};
//! # use windlass::session::Service;
//! # fn serve(service: impl Service) -> Result<(), Box<dyn std::error::Error>> {
//!
//! let config = TlsConfig::from_pem_files("chain.pem", "key.pem")?;
//! let service = TlsService::new(service, config)?;
//! let handle = service.handle(); // to reload the files later
//! let mut server = SingleLoop::builder(Arc::new(service)).listen("[::1]:8443".parse()?).build()?;
//! server.run()?;
//! # drop(handle);
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs
//!
//! A full handshake is computed in the loop's thread: about 0.2 ms with an ECDSA key on P-256, and
//! up to a millisecond more with RSA of 2,048 bits, whose signature is that much dearer. Prefer
//! ECDSA certificates. Resumption, on by default, spares returning clients the signature.
//!
//! An idle connection holds the state of the TLS protocol and no buffers: what is read and written
//! passes through memory that the connections of one thread share.

#![forbid(unsafe_code)]

mod certificates;
mod channel;
mod config;
mod error;
mod pem;
mod plain_http;
mod report;
mod service;
mod session;

pub use self::config::{ClientCertificates, TlsConfig, TlsVersions};
pub use self::error::TlsConfigError;
pub use self::report::TlsReport;
pub use self::service::{TlsHandle, TlsLocal, TlsService};
pub use self::session::TlsSession;
