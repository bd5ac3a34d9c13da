//! The commands about seals: keys, proofs and checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use reqwest::Method;

use super::client::{TryAgain, request, segment, stream};
use super::export_check::{Witnesses, verify_export};
use super::offline::{WorkBar, interruption, open, open_to_read, present, tell_of_no_key};
use super::{ServerArgs, archive};
use crate::config::{DatabaseArgs, ServeArgs};
use crate::setting::{WrongSetting, read_seal_key};
use domain::seal::note::{Checkpoint, SealKey, VerifierKey};
use engine::{CheckedFigures, DroppedLeaves, GivenSeal, restart_seals, verify_ledger};
use host::secret_file::write_secret;
use ledger::{Ledger, OpenError};
use verify::key::read_key;
use verify::proof::check_proof;

/// The name of a log of seals, unless somebody names it.
const KEY_NAME: &str = "perdiem";
/// The end of the path of the key that is beside a ledger on SQLite.
const KEY_FILE_END: &str = ".seal-key";

#[derive(Debug, Subcommand)]
pub enum SealCommand {
    /// Create a key that signs seals, and print its public key
    NewKey(NewKeyArgs),
    /// Begin the next log of seals after the ledger was restored from a backup
    Restart(RestartArgs),
}

#[derive(Debug, Args)]
pub struct NewKeyArgs {
    /// The file to write; only its owner can read it
    file: PathBuf,

    /// Name of the log of seals, such as example.com/quotas
    #[arg(long, default_value = KEY_NAME)]
    name: String,
}

#[derive(Debug, Args)]
pub struct RestartArgs {
    /// Reason of the restart
    #[arg(long)]
    reason: String,

    /// File with the key that signs seals
    #[arg(long, env = "PERDIEM_SEAL_KEY_FILE", value_name = "FILE", value_parser = read_seal_key)]
    seal_key_file: Arc<SealKey>,

    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub struct ProofArgs {
    #[command(flatten)]
    proven: ProvenArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ProvenArgs {
    /// The grant's id
    grant: Option<String>,

    /// The revision of a change, as `perdiem changes --json` shows it
    #[arg(long, value_name = "REVISION")]
    change: Option<u64>,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Public key of the seals: NAME+HASH+BASE64, or a file that contains it
    #[arg(long)]
    key: Option<String>,

    /// Check the ledger against this seal, which was kept elsewhere
    #[arg(long, value_name = "FILE", conflicts_with_all = ["proof", "export"])]
    seal: Option<PathBuf>,

    /// Check this .tlog-proof, without a ledger; with --export, check that it proves this export
    #[arg(long, value_name = "FILE", requires = "key")]
    proof: Option<PathBuf>,

    /// Check this export by its manifest; also against the ledger, if DATABASE_URL is set
    #[arg(long, value_name = "FILE", requires = "manifest")]
    export: Option<PathBuf>,

    /// Check this folder of `perdiem archive`; also against the ledger, if DATABASE_URL is set
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["seal", "proof", "export"])]
    archive: Option<PathBuf>,

    /// The manifest of the export
    #[arg(long, value_name = "FILE", requires = "export")]
    manifest: Option<PathBuf>,

    #[command(flatten)]
    database: DatabaseArgs,
}

pub async fn run(command: SealCommand) -> anyhow::Result<ExitCode> {
    match command {
        SealCommand::NewKey(args) => new_key(&args),
        SealCommand::Restart(args) => restart(args).await,
    }
}

fn new_key(args: &NewKeyArgs) -> anyhow::Result<ExitCode> {
    let key = make_key(&args.name, &args.file)?;
    eprintln!(
        "{} has the key: name this file in PERDIEM_SEAL_KEY_FILE, and keep a copy of it. Your \
         auditors check the seals with this public key:",
        args.file.display()
    );
    println!("{}", key.verifier());
    Ok(ExitCode::SUCCESS)
}

/// Makes a key, and writes it into a new file that only its owner can read.
fn make_key(name: &str, path: &Path) -> anyhow::Result<SealKey> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system gives no random bytes")?;
    let key = SealKey::new(name, seed)?;
    write_secret(path, &key.secret())
        .with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(key)
}

/// The key that the settings name, or the one that is beside a ledger on SQLite.
///
/// # Errors
/// The file beside the ledger has no key, or other users can read it.
pub fn key_to_serve(args: &ServeArgs) -> anyhow::Result<Option<Arc<SealKey>>> {
    if let Some(key) = &args.seal_key_file {
        return Ok(Some(key.clone()));
    }
    let Some(path) = key_file(args.database.url())?.filter(|path| path.exists()) else {
        return Ok(None);
    };
    let place = path.display().to_string();
    let key = read_seal_key(&place).map_err(|error| {
        let reason = format!("is not set, and {place} cannot be used: {error}");
        WrongSetting::new("PERDIEM_SEAL_KEY_FILE", reason)
    });
    Ok(Some(key?))
}

/// The file of the key beside a ledger on SQLite.
pub fn key_file(url: &str) -> Result<Option<PathBuf>, OpenError> {
    Ledger::file_beside(url, KEY_FILE_END)
}

/// Makes the key beside a ledger on SQLite. Without one, nothing is sealed.
pub fn make_key_beside(url: &str) -> Option<Arc<SealKey>> {
    let path = key_file(url).ok()??;
    match make_key(KEY_NAME, &path) {
        Ok(key) => Some(Arc::new(key)),
        Err(error) => {
            tracing::warn!("no key for seals can be made: {error:#}");
            None
        }
    }
}

/// Says where a new key is, or that nothing is sealed. `had_key` is whether the start found a key.
pub fn tell_of_seals(url: &str, had_key: bool) -> anyhow::Result<()> {
    let path = key_file(url)?.filter(|path| path.exists());
    match path.map(|path| path.display().to_string()) {
        _ if had_key => {}
        Some(place) => {
            let key = read_seal_key(&place).map_err(anyhow::Error::msg)?;
            let public = key.verifier();
            tracing::info!(
                "the seals have a new key in {place}: keep a copy of this file elsewhere; auditors \
                 check the seals with its public key {public}"
            );
        }
        None => tracing::info!(
            "not sealed: `perdiem seal new-key` makes a key; name its file in PERDIEM_SEAL_KEY_FILE"
        ),
    }
    Ok(())
}

async fn restart(args: RestartArgs) -> anyhow::Result<ExitCode> {
    ensure!(
        !args.reason.trim().is_empty(),
        "the reason is empty: write it after --reason"
    );
    let ledger = open(&args.database).await?;
    let now = present(&ledger).await?;
    let restarted = restart_seals(&ledger, &args.seal_key_file, &args.reason, now).await;
    ledger.close().await;
    let Some(origin) = restarted? else {
        bail!(
            "the record of this ledger has no positions yet: start an instance, then run this command again"
        );
    };
    println!("the next log of seals is {}", origin.name);
    Ok(ExitCode::SUCCESS)
}

pub async fn proof(args: ProofArgs) -> anyhow::Result<ExitCode> {
    let path = match (&args.proven.grant, args.proven.change) {
        (Some(grant), _) => format!("/v1/grants/{}/proof", segment(grant)),
        (None, change) => format!("/v1/changes/{}/proof", change.unwrap_or_default()),
    };
    let response = stream(request(&args.server, Method::GET, &path)?).await?;
    print!("{}", response.text().await?);
    Ok(ExitCode::SUCCESS)
}

pub async fn verify(args: VerifyArgs) -> anyhow::Result<ExitCode> {
    let key = match &args.key {
        Some(text) => Some(read_key(text)?),
        None => None,
    };
    if let Some(folder) = &args.archive {
        return archive::verify(folder, key.as_ref(), &args.database).await;
    }
    match (&args.export, &args.manifest, &args.proof, &key) {
        (Some(export), Some(manifest), proof, key) => {
            let witnesses = Witnesses {
                proof: proof.as_deref().zip(key.as_ref()),
                key: key.as_ref(),
                database: &args.database,
            };
            verify_export(export, manifest, &witnesses).await
        }
        (_, _, Some(proof), Some(key)) => {
            for told in check_proof(proof, key)? {
                println!("{told}");
            }
            Ok(ExitCode::SUCCESS)
        }
        _ => verify_database(&args, key).await,
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

async fn verify_database(args: &VerifyArgs, key: Option<VerifierKey>) -> anyhow::Result<ExitCode> {
    let seal = match &args.seal {
        Some(file) => {
            let seal = Checkpoint::parse(&read(file)?);
            Some(seal.with_context(|| format!("{}", file.display()))?)
        }
        None => None,
    };
    let ledger = open_to_read(&args.database).await?;
    let given = GivenSeal { key, seal };
    let bar = WorkBar::of_positions()?;
    let verified = tokio::select! {
        biased;
        interrupted = interruption() => {
            interrupted?;
            return Err(TryAgain("interrupted: run the same command again".to_owned()).into());
        }
        verified = verify_ledger(&ledger, &given, |done, of| bar.tell(done, of)) => verified,
    };
    bar.end();
    ledger.close().await;
    let verified = verified?;
    if given.key.is_none() {
        tell_of_no_key();
    }
    println!(
        "{} positions match the seals of {} ({} checkpoints); {} positions are not sealed yet",
        verified.sealed, verified.origin, verified.seals, verified.unsealed
    );
    let CheckedFigures { days, recorded } = verified.figures;
    println!(
        "the figures of {days} days are those of the entries; the record tells {recorded} of these days"
    );
    if let Some(DroppedLeaves {
        leaves,
        last,
        revision,
    }) = verified.dropped
    {
        println!(
            "for {leaves} of the positions up to {last} the ledger has only hashes: their entries were \
             archived and dropped (change {revision}); `perdiem verify --archive` checks them"
        );
    }
    Ok(ExitCode::SUCCESS)
}
