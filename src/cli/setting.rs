//! What settings have in common: secrets in files, and the error of a setting that cannot be used.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use domain::seal::note::SealKey;
use host::secret_file::check_secret;

/// A setting that cannot be used, found after all settings were read.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {reason}")]
pub struct WrongSetting {
    /// The environment variable that has the setting.
    pub setting: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

impl WrongSetting {
    pub fn new(setting: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { setting, reason }
    }
}

/// Reads a secret from a file. A newline at the end of the file is not a part of the secret.
///
/// # Errors
/// The file cannot be read, or it is empty.
pub fn read_secret(path: &str) -> Result<String, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("the file cannot be read: {error}"))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() {
        Err("the file is empty: write the secret into it".to_owned())
    } else {
        Ok(secret.to_owned())
    }
}

/// Reads the key that signs seals. The group of the file may read it: orchestrators mount it so.
///
/// # Errors
/// The file has no key, or other users can read it.
pub fn read_seal_key(path: &str) -> Result<Arc<SealKey>, String> {
    let key = SealKey::parse(&read_secret(path)?);
    check_secret(Path::new(path)).map_err(|error| error.to_string())?;
    key.map(Arc::new).map_err(|error| error.to_string())
}
