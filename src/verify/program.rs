//! What `perdiem-verify` does.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use domain::seal::note::VerifierKey;

use crate::archive::check_archive;
use crate::export::{check_export, check_seal};
use crate::key::{UNSIGNED, read_key};
use crate::proof::check_proof;

/// Check what perdiem gave to auditors, by the files alone
///
/// The program needs no ledger and no server. With a key it also checks the signatures.
#[derive(Debug, Parser)]
#[command(name = "perdiem-verify", version)]
pub struct Verify {
    #[command(subcommand)]
    pub given: GivenFiles,
}

#[derive(Debug, Subcommand)]
pub enum GivenFiles {
    /// Check a folder of `perdiem archive`
    Archive {
        folder: PathBuf,

        #[command(flatten)]
        key: KeyArg,
    },
    /// Check an export by its manifest
    Export {
        file: PathBuf,

        /// The manifest of the export
        #[arg(long, value_name = "FILE")]
        manifest: PathBuf,

        /// A .tlog-proof of the change that recorded the export
        #[arg(long, value_name = "FILE", requires = "key")]
        proof: Option<PathBuf>,

        #[command(flatten)]
        key: KeyArg,
    },
    /// Check a .tlog-proof of an entry or a change
    Proof {
        file: PathBuf,

        /// Public key of the log: NAME+HASH+BASE64, or a file that contains it
        #[arg(long)]
        key: String,
    },
}

#[derive(Debug, Args)]
pub struct KeyArg {
    /// Public key of the log: NAME+HASH+BASE64, or a file that contains it
    #[arg(long)]
    key: Option<String>,
}

impl KeyArg {
    fn read(&self) -> anyhow::Result<Option<VerifierKey>> {
        self.key.as_deref().map(read_key).transpose()
    }
}

/// Checks, and returns what was found, line by line.
///
/// # Errors
/// The files cannot be used, or are not what they should be.
pub async fn run(given: GivenFiles) -> anyhow::Result<Vec<String>> {
    match given {
        GivenFiles::Archive { folder, key } => {
            let key = key.read()?;
            let archive = check_archive(&folder, key.as_ref(), |_, _| ()).await?;
            let unsigned = key.is_none().then(|| UNSIGNED.to_owned());
            Ok(unsigned
                .into_iter()
                .chain([archive.told(&folder)])
                .collect())
        }
        GivenFiles::Export {
            file,
            manifest,
            proof,
            key,
        } => {
            let key = key.read()?;
            let export = check_export(&file, &manifest)?;
            let mut told = vec![export.told(&file)];
            told.push(match (&proof, &key) {
                (Some(proof), Some(key)) => export.check_proof(proof, key)?,
                _ => format!(
                    "the manifest was not compared with the recorded export, change {}: add --proof",
                    export.manifest.revision
                ),
            });
            told.extend(check_seal(&export.manifest, key.as_ref())?);
            Ok(told)
        }
        GivenFiles::Proof { file, key } => check_proof(&file, &read_key(&key)?),
    }
}
