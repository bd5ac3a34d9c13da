//! Certificates for servers on this machine.

use std::process::Command;

use tempfile::TempDir;

use super::guardian::path_text;

/// The extensions of an authority's certificate, and of a server's.
const EXTENSIONS: &str = "
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
[server]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1
";

/// A private authority, and a server's certificate that it signed.
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Self { folder };
        std::fs::write(authority.file("openssl.cnf"), EXTENSIONS).expect("a file");
        authority.certify("authority", &[]);
        authority.renew("server");
        authority
    }

    /// Makes a server's key with a certificate of the authority, or both once more.
    pub fn renew(&self, name: &str) {
        let certificate = self.file("authority.pem");
        let key = self.file("authority.key");
        self.certify(name, &["-CA", &certificate, "-CAkey", &key]);
    }

    /// Makes a key and its certificate. The certificate is self-signed, unless `more` says
    /// otherwise.
    fn certify(&self, name: &str, more: &[&str]) {
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let kind = if name == "authority" { name } else { "server" };
        let made = Command::new("openssl")
            .args(words.split(' '))
            .args(["-config", &self.file("openssl.cnf"), "-extensions", kind])
            .args(["-subj", &format!("/CN={name}")])
            .args(["-keyout", &self.file(&format!("{name}.key"))])
            .args(["-out", &self.file(&format!("{name}.pem"))])
            .args(more)
            .output()
            .expect("openssl is missing: run scripts/install-test-tools");
        assert!(made.status.success(), "{made:?}");
    }

    /// The path of a file of this authority.
    pub fn file(&self, name: &str) -> String {
        path_text(&self.folder.path().join(name))
    }
}
