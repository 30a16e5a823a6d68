//! Configurations: what is wrong with a file, who is let in, what is agreed on.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::error::Error as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use common::{BOTH, Client, ONLY_12, Script, Server, Waits, carry, certificate, client_config};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{AlertDescription, ClientConfig, Error};
use windlass_tls::{ClientCertificates, TlsConfig, TlsConfigError, TlsService, TlsVersions};

/// A directory of its own, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("windlass-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left is in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Check = fn(&TlsConfigError) -> bool;

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let directory = Directory::new("wrong");
    let (chain, key) = certificate(&["a.test"]);
    let (_, other_key) = certificate(&["b.test"]);
    let chain_file = directory.file("chain.pem", &chain);
    let key_file = directory.file("key.pem", &key);
    let other = directory.file("other.pem", &other_key);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = directory.file("encrypted.pem", encrypted);
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let old = directory.file("old.pem", old);
    let empty = directory.file("empty.pem", "");
    let cut = directory.file("cut.pem", &chain[..chain.len() / 2]);
    let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let junk = directory.file("junk.pem", junk);
    let bad_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let bad_key = directory.file("bad-key.pem", bad_key);
    let missing = directory.0.join("missing.pem");
    let cases: [(&PathBuf, &PathBuf, Check, &PathBuf); 11] = [
        (
            &missing,
            &key_file,
            |e| matches!(e, TlsConfigError::Read { .. }),
            &missing,
        ),
        (
            &chain_file,
            &missing,
            |e| matches!(e, TlsConfigError::Read { .. }),
            &missing,
        ),
        (
            &key_file,
            &key_file,
            |e| matches!(e, TlsConfigError::NoCertificate { .. }),
            &key_file,
        ),
        (
            &empty,
            &key_file,
            |e| matches!(e, TlsConfigError::NoCertificate { .. }),
            &empty,
        ),
        (
            &cut,
            &key_file,
            |e| matches!(e, TlsConfigError::Pem { .. }),
            &cut,
        ),
        (
            &junk,
            &key_file,
            |e| matches!(e, TlsConfigError::BadCertificate { .. }),
            &junk,
        ),
        (
            &chain_file,
            &chain_file,
            |e| matches!(e, TlsConfigError::NoKey { .. }),
            &chain_file,
        ),
        (
            &chain_file,
            &encrypted,
            |e| matches!(e, TlsConfigError::EncryptedKey { .. }),
            &encrypted,
        ),
        (
            &chain_file,
            &old,
            |e| matches!(e, TlsConfigError::EncryptedKey { .. }),
            &old,
        ),
        (
            &chain_file,
            &bad_key,
            |e| matches!(e, TlsConfigError::BadKey { .. }),
            &bad_key,
        ),
        (
            &chain_file,
            &other,
            |e| matches!(e, TlsConfigError::KeyMismatch { .. }),
            &other,
        ),
    ];
    for (chain, key, is_expected, named) in cases {
        let error = TlsConfig::from_pem_files(chain, key).unwrap_err();
        assert!(is_expected(&error), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&named.display().to_string()), "{text}");
    }
    let read = TlsConfig::from_pem_files(&missing, &key_file).unwrap_err();
    assert!(read.source().unwrap().to_string().contains("No such file"));
    TlsConfig::from_pem_files(&chain_file, &key_file).unwrap();
    // Both in one file, and a second pair that is wrong.
    let both = directory.file("both.pem", &format!("{key}{chain}"));
    let config = TlsConfig::from_pem_files(&both, &both).unwrap();
    assert!(config.add(&chain_file, &other).is_err());
}

/// Shakes hands once; the client, and whether the server went on.
fn connect(service: &TlsService<Script>, config: ClientConfig) -> (Client, bool) {
    let (mut client, mut server) = (Client::new(&Arc::new(config)), Server::open(service));
    client.write(b"x");
    carry(&mut client, &mut server, 1000);
    (client, matches!(server.waits, Waits::Read))
}

#[test]
fn protocols_are_agreed_on_and_foreign_ones_refused() {
    let (chain, key) = certificate(&["localhost"]);
    let config = TlsConfig::from_pem(&chain, &key).unwrap();
    let by_default = TlsService::new(Script::echo(), config.clone()).unwrap();
    let own = TlsService::new(Script::echo(), config.clone().alpn(["b", "a"])).unwrap();
    let none = TlsService::new(Script::echo(), config.alpn([""; 0])).unwrap();
    for (service, offered, expected) in [
        (&by_default, &["h2", "http/1.1"][..], Some(&b"http/1.1"[..])),
        (&by_default, &[], None),
        (&own, &["a", "b"], Some(b"b")),
        (&none, &["a"], None),
    ] {
        let mut config = client_config(BOTH);
        config.alpn_protocols = offered
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        let (client, goes_on) = connect(service, config);
        assert!(goes_on && client.received == b"x");
        assert_eq!(client.tls.alpn_protocol(), expected);
    }
    let mut config = client_config(BOTH);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (client, goes_on) = connect(&by_default, config);
    assert!(!goes_on);
    let alert = AlertDescription::NoApplicationProtocol;
    assert_eq!(client.error, Some(Error::AlertReceived(alert)));
}

#[test]
fn old_versions_can_be_switched_off() {
    let (chain, key) = certificate(&["localhost"]);
    let config = TlsConfig::from_pem(&chain, &key)
        .unwrap()
        .versions(TlsVersions::Tls13);
    let service = TlsService::new(Script::echo(), config).unwrap();
    let (client, goes_on) = connect(&service, client_config(ONLY_12));
    assert!(!goes_on && client.error.is_some());
    let (client, goes_on) = connect(&service, client_config(BOTH));
    assert!(goes_on && client.received == b"x");
}

#[test]
fn clients_are_verified() {
    let directory = Directory::new("clients");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let roots = directory.file("roots.pem", &root.pem());
    let client_key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client.test".to_owned()]).unwrap();
    let signed = params.signed_by(&client_key, &root).unwrap();
    let unknown = params.self_signed(&client_key).unwrap();

    let (chain, key) = certificate(&["localhost"]);
    let config = TlsConfig::from_pem(&chain, &key).unwrap();
    let demanding = |demand| {
        let config = config.clone().client_certificates(&roots, demand).unwrap();
        TlsService::new(Script::echo(), config).unwrap()
    };
    let required = demanding(ClientCertificates::Required);
    let optional = demanding(ClientCertificates::Optional);
    let shows = |certificate: Option<&rcgen::Certificate>, versions| {
        let mut config = client_config(versions);
        if let Some(certificate) = certificate {
            let key = PrivateKeyDer::try_from(client_key.serialize_der()).unwrap();
            let chain = vec![certificate.der().clone()];
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            let key = provider.key_provider.load_private_key(key).unwrap();
            let certified = rustls::sign::CertifiedKey::new(chain, key);
            config.client_auth_cert_resolver =
                Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        }
        config
    };
    for versions in [BOTH, ONLY_12] {
        for (service, shown, is_let_in) in [
            (&required, Some(&signed), true),
            (&required, Some(&unknown), false),
            (&required, None, false),
            (&optional, Some(&signed), true),
            (&optional, Some(&unknown), false),
            (&optional, None, true),
        ] {
            let (client, goes_on) = connect(service, shows(shown, versions));
            assert_eq!(goes_on, is_let_in);
            assert_eq!(client.received == b"x", is_let_in);
            assert_eq!(client.error.is_none(), is_let_in);
        }
    }
    // A session that was let in is not resumed under a configuration that was read again.
    let config = Arc::new(shows(Some(&signed), BOTH));
    for (reloads, resumed) in [(false, 0), (false, 1), (true, 1), (false, 2)] {
        if reloads {
            required.handle().reload().unwrap();
        }
        let before = required.handle().report();
        let (mut client, mut server) = (Client::new(&config), Server::open(&required));
        client.write(b"x");
        carry(&mut client, &mut server, 1000);
        assert_eq!(client.received, b"x");
        assert!(before.resumed <= resumed);
        assert_eq!(required.handle().report().resumed, resumed);
    }
    let error = config_error(&directory, &chain, &key);
    assert!(
        matches!(error, TlsConfigError::NoCertificate { .. }),
        "{error:?}"
    );
}

fn config_error(directory: &Directory, chain: &str, key: &str) -> TlsConfigError {
    let empty = directory.file("empty.pem", "");
    let config = TlsConfig::from_pem(chain, key).unwrap();
    config
        .client_certificates(empty, ClientCertificates::Required)
        .unwrap_err()
}

#[test]
fn debugging_a_configuration_shows_no_key() {
    let (chain, key) = certificate(&["a.test"]);
    let shown = format!("{:?}", TlsConfig::from_pem(&chain, &key).unwrap());
    let as_numbers = |text: &str| format!("{:?}", &text.as_bytes()[..60]);
    let begin = as_numbers(&key);
    assert!(!shown.contains(begin.trim_matches(['[', ']'])), "{shown}");
    assert!(!shown.contains("PRIVATE"));
}
