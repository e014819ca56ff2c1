//! A server that speaks TLS.

use std::process::{Command, Output};

use tower_quota::{ChargeError, OnStoreFailure, RedisStore};

use super::Items;
use crate::support::{Server, free_port};

/// A folder with a certificate for this machine, and its key; it goes with this.
struct Certificate(std::path::PathBuf);

impl Certificate {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("tower-quota-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let certificate = Self(folder);
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
        openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
        openssl.args(["-keyout", &certificate.file("key.pem"), "-out", &certificate.file("cert.pem")]);
        let made = openssl.output().expect("the package openssl is installed");
        assert!(made.status.success(), "{made:?}");
        certificate
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_server_is_reached_over_tls_if_its_certificate_is_trusted() {
    let certificate = Certificate::new();
    let tls_port = free_port().to_string();
    let (cert, key) = (certificate.file("cert.pem"), certificate.file("key.pem"));
    let server = Server::with(&[
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &cert,
        "--tls-auth-clients",
        "no",
    ]);
    // What is trusted is told by the environment, so it takes a process of its own.
    let charge = |trusted: &str| -> Output {
        let mut charger = Command::new(env!("CARGO_BIN_EXE_charger"));
        charger.args([&*format!("rediss://127.0.0.1:{tls_port}/"), "1", "10"]).env("SSL_CERT_FILE", trusted);
        charger.output().unwrap()
    };
    let charged = charge(&cert);
    assert_eq!(String::from_utf8_lossy(&charged.stdout), "10\n", "{charged:?}");
    assert!(server.calls("evalsha") + server.calls("eval") >= 10);
    assert!(!charge("/no/such/file").status.success(), "a certificate that nobody knows");
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_a_failure_within_the_deadline() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start();
    let store = RedisStore::connect(&format!("rediss://127.0.0.1:{}/", server.port)).unwrap();
    let items = Items::with_policy(store, 1, 1, OnStoreFailure::Closed);
    let started = std::time::Instant::now();
    assert!(matches!(items.charge("alice").await, Err(ChargeError::Store(_))));
    assert!(started.elapsed().as_millis() < 550);
}
