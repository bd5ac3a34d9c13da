//! TLS: the certificate and its key, from files that may be replaced while perdiem runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use host::secret_file::check_secret;

/// The pause between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where the certificate and its key are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate and those of the authorities between it and the root, as PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, as PEM.
    pub key: PathBuf,
}

/// A file of TLS that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {path}: {reason}")]
pub struct TlsFault {
    /// The setting that names the file.
    pub setting: &'static str,
    path: String,
    reason: String,
}

/// What the files say.
#[derive(PartialEq, Eq)]
struct PairOfFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// TLS with the newest certificate that could be used.
#[derive(Clone)]
pub struct Tls {
    files: TlsFiles,
    newest: Arc<NewestCertificate>,
    pub acceptor: TlsAcceptor,
}

#[derive(Debug)]
struct NewestCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for NewestCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl TlsFiles {
    fn certificate_fault(&self, reason: impl ToString) -> TlsFault {
        fault("PERDIEM_TLS_CERTIFICATE_FILE", &self.certificate, reason)
    }

    fn key_fault(&self, reason: impl ToString) -> TlsFault {
        fault("PERDIEM_TLS_KEY_FILE", &self.key, reason)
    }

    /// Checks that perdiem can speak TLS with these files.
    ///
    /// # Errors
    /// A file cannot be read or used, or every user of the machine can read the key.
    pub fn check(&self) -> Result<(), TlsFault> {
        let certified = self.certify(&self.read()?, &ring::default_provider());
        certified.map(|_| ())
    }

    fn read(&self) -> Result<PairOfFiles, TlsFault> {
        let certificate = read_file(&self.certificate);
        let key = check_secret(&self.key).and_then(|()| read_file(&self.key));
        Ok(PairOfFiles {
            certificate: certificate.map_err(|error| self.certificate_fault(error))?,
            key: key.map_err(|error| self.key_fault(error))?,
        })
    }

    /// The certificate with its key.
    fn certify(
        &self,
        texts: &PairOfFiles,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsFault> {
        let chain =
            CertificateDer::pem_slice_iter(&texts.certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| self.certificate_fault(error))?;
        if chain.is_empty() {
            return Err(self.certificate_fault("the file has no certificate: write it as PEM"));
        }
        let key = PrivateKeyDer::from_pem_slice(&texts.key);
        let key =
            key.map_err(|_| self.key_fault("the file has no private key: write it as PEM"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.key_fault(format!(
                "the key is not that of the certificate in {}",
                self.certificate.display()
            )),
            rustls::Error::InvalidCertificate(_) => self.certificate_fault(error),
            _ => self.key_fault(error),
        })
    }
}

/// Reads a file. What is no file could keep its reader waiting.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    std::fs::read(path)
}

fn fault(setting: &'static str, path: &Path, reason: impl ToString) -> TlsFault {
    TlsFault {
        setting,
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

impl Tls {
    /// TLS 1.2 and 1.3 with the certificate in the files.
    ///
    /// # Errors
    /// A file cannot be read or used, or every user of the machine can read the key.
    pub fn load(files: TlsFiles) -> Result<Self, TlsFault> {
        let provider = Arc::new(ring::default_provider());
        let certified = files.certify(&files.read()?, &provider)?;
        let newest = Arc::new(NewestCertificate(ArcSwap::from_pointee(certified)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| files.certificate_fault(error))?
            .with_no_client_auth()
            .with_cert_resolver(newest.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        Ok(Self {
            files,
            newest,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Takes each new certificate for the connections that begin afterwards. Never ends. While the files
    /// cannot be used, the certificate before stays: one of them may be replaced before the other.
    pub async fn follow_files(&self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        let mut untold = None;
        loop {
            looks.tick().await;
            let files = self.files.clone();
            // A folder on the network can hold up a thread.
            let read = tokio::task::spawn_blocking(move || files.read()).await;
            let Ok(read) = read else { continue };
            let found = read.map_err(|fault| fault.to_string());
            if last.as_ref() == Some(&found) {
                if let Some(fault) = untold.take() {
                    tracing::warn!(
                        fault,
                        "the new certificate cannot be used: the one before stays"
                    );
                }
                continue;
            }
            untold = self.take(&found).err();
            if untold.is_none() && last.is_some() {
                tracing::info!("new connections get the new certificate");
            }
            last = Some(found);
        }
    }

    fn take(&self, found: &Result<PairOfFiles, String>) -> Result<(), String> {
        let texts = found.as_ref().map_err(String::clone)?;
        let certified = self
            .files
            .certify(texts, self.acceptor.config().crypto_provider());
        let certified = certified.map_err(|fault| fault.to_string())?;
        self.newest.0.store(Arc::new(certified));
        Ok(())
    }
}
