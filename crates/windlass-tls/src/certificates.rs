//! The choice of a certificate: by the name that the client asks for, and by what it can verify.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, SignatureScheme};
use webpki::EndEntityCert;

use crate::error::TlsConfigError;

/// The certificates of a server, by name.
///
/// A name is looked up as it is, then as a wildcard for its first label (RFC 6125 section 6.4.3),
/// then any certificate will do, the first first. Of several for one name (RSA and ECDSA) the
/// first is taken whose signature the client can verify.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    all: Vec<Arc<CertifiedKey>>,
    /// By names in lower case.
    exact: HashMap<String, Vec<usize>>,
    /// By what follows `*.`, in lower case.
    wildcard: HashMap<String, Vec<usize>>,
}

impl Certificates {
    /// Adds a certificate under all names that it is valid for; `file` is where it came from.
    pub(crate) fn add(
        &mut self,
        certified: Arc<CertifiedKey>,
        file: PathBuf,
    ) -> Result<(), TlsConfigError> {
        let at = self.all.len();
        let names =
            names(&certified).map_err(|source| TlsConfigError::BadCertificate { file, source })?;
        for name in names {
            let (map, name) = match name.strip_prefix("*.") {
                Some(suffix) => (&mut self.wildcard, suffix.to_owned()),
                None => (&mut self.exact, name),
            };
            map.entry(name).or_default().push(at);
        }
        self.all.push(certified);
        Ok(())
    }

    /// The certificate for a client that asks for `name` and can verify `schemes`.
    fn choose(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<&Arc<CertifiedKey>> {
        let named = name.map(str::to_ascii_lowercase);
        let named = named.as_deref().map(|name| name.trim_end_matches('.'));
        let exact = named.and_then(|name| self.exact.get(name));
        let parent = named.and_then(|name| name.split_once('.'));
        let wildcard = parent.and_then(|(_, parent)| self.wildcard.get(parent));
        exact
            .into_iter()
            .chain(wildcard)
            .flatten()
            .map(|&at| &self.all[at])
            .chain(&self.all)
            .find(|certified| certified.key.choose_scheme(schemes).is_some())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
            .cloned()
    }
}

/// The DNS names in the first certificate of a chain, in lower case.
fn names(certified: &CertifiedKey) -> Result<Vec<String>, Error> {
    let certificate = certified.end_entity_cert()?;
    let certificate = EndEntityCert::try_from(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(certificate
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
    use rustls::crypto::aws_lc_rs;

    use super::*;
    use crate::pem::{PemPair, PemSource};

    const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
    const ED25519: &[SignatureScheme] = &[SignatureScheme::ED25519];

    fn add(set: &mut Certificates, names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm) {
        let names = names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>();
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = CertificateParams::new(names)
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let pair = PemPair {
            chain: PemSource::Memory(certificate.pem().into_bytes().into()),
            key: PemSource::Memory(key.serialize_pem().into_bytes().into()),
        };
        let certified = pair.load(&aws_lc_rs::default_provider()).unwrap();
        set.add(certified, PathBuf::new()).unwrap();
    }

    fn chosen(set: &Certificates, name: Option<&str>, schemes: &[SignatureScheme]) -> usize {
        let chosen = set.choose(name, schemes).unwrap();
        set.all
            .iter()
            .position(|one| Arc::ptr_eq(one, chosen))
            .unwrap()
    }

    #[test]
    fn the_name_chooses_and_the_first_is_the_default() {
        let mut set = Certificates::default();
        add(&mut set, &["first.test"], &PKCS_ECDSA_P256_SHA256);
        add(
            &mut set,
            &["Second.test", "*.wild.test"],
            &PKCS_ECDSA_P256_SHA256,
        );
        add(&mut set, &["exact.wild.test"], &PKCS_ECDSA_P256_SHA256);
        for (name, expected) in [
            (None, 0),
            (Some("first.test"), 0),
            (Some("SECOND.test"), 1),
            (Some("second.test."), 1),
            (Some("any.wild.test"), 1),
            (Some("exact.wild.test"), 2),
            // A wildcard stands for one label, and not for none.
            (Some("a.b.wild.test"), 0),
            (Some("wild.test"), 0),
            (Some("unknown.test"), 0),
        ] {
            assert_eq!(chosen(&set, name, ECDSA), expected, "{name:?}");
        }
    }

    #[test]
    fn of_several_the_first_is_taken_that_the_client_can_verify() {
        let mut set = Certificates::default();
        add(&mut set, &["a.test"], &PKCS_ED25519);
        add(&mut set, &["b.test"], &PKCS_ED25519);
        add(&mut set, &["b.test"], &PKCS_ECDSA_P256_SHA256);
        assert_eq!(chosen(&set, Some("b.test"), ED25519), 1);
        assert_eq!(chosen(&set, Some("b.test"), ECDSA), 2);
        assert_eq!(chosen(&set, None, ED25519), 0);
        assert!(
            set.choose(None, &[SignatureScheme::RSA_PSS_SHA256])
                .is_none()
        );
    }
}
