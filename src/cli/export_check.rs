//! `perdiem verify --export`: checks a file, its manifest, and the record of the export.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use domain::seal::note::VerifierKey;
use verify::export::{RecordedExport, check_export, check_seal};

use super::offline::open_to_read;
use crate::config::DatabaseArgs;

/// What can confirm a manifest.
pub struct Witnesses<'a> {
    /// A .tlog-proof of the change that recorded the export, with the key that checks it.
    pub proof: Option<(&'a Path, &'a VerifierKey)>,
    pub key: Option<&'a VerifierKey>,
    pub database: &'a DatabaseArgs,
}

/// The change as a ledger has it.
async fn stored(database: &DatabaseArgs, revision: u64) -> anyhow::Result<Option<RecordedExport>> {
    let ledger = open_to_read(database).await?;
    let act = ledger.record().act(revision).await;
    ledger.close().await;
    Ok(act?.map(|act| RecordedExport {
        revision: act.revision,
        kind: act.kind.as_str().to_owned(),
        at: act.at,
        by: act.by,
        about: act.about,
    }))
}

/// Checks a file by its manifest, and the manifest by the witnesses.
pub async fn verify_export(
    file: &Path,
    manifest: &Path,
    witnesses: &Witnesses<'_>,
) -> anyhow::Result<ExitCode> {
    // 1. The file matches its manifest.
    let export = check_export(file, manifest)?;
    println!("{}", export.told(file));
    // 2. The manifest belongs to a recorded export.
    let revision = export.manifest.revision;
    let mut is_compared = false;
    if let Some((proof, key)) = witnesses.proof {
        println!("{}", export.check_proof(proof, key)?);
        is_compared = true;
    }
    if witnesses.database.named().is_some() {
        let Some(stored) = stored(witnesses.database, revision).await? else {
            bail!(
                "the ledger has no export {revision}: the manifest was changed, or belongs to another ledger"
            );
        };
        stored.check(&export.manifest)?;
        println!("the ledger recorded this export: change {revision}");
        is_compared = true;
    }
    if !is_compared {
        println!(
            "the manifest was not compared with the recorded export, change {revision}: add --proof, \
             or set DATABASE_URL"
        );
    }
    // 3. The positions of the export are sealed.
    for told in check_seal(&export.manifest, witnesses.key)? {
        println!("{told}");
    }
    Ok(ExitCode::SUCCESS)
}
