//! `perdiem archive`: writes the leaves of the log to files, and checks a folder of such files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::client::TryAgain;
use super::local::{self, LocalTime};
use super::offline::{WorkBar, interruption, open, open_to_read, present, tell_of_no_key};
use super::times::GivenTime;
use crate::config::DatabaseArgs;
use domain::seal::note::VerifierKey;
use engine::{ArchiveFailure, ArchiveOrder, archive_ledger, compare_archive, drop_archived};
use host::chain::Chain;
use verify::archive::check_archive;
use verify::key::read_key;

/// What to do after an interruption, by the command.
const GOES_ON: &str = "run the same command again, and it goes on where it stopped";
const BEGINS_AGAIN: &str = "run the same command again";

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// The folder of the archive; an archive that exists there is continued
    folder: PathBuf,

    /// Archive what was recorded before this time; a date is one of UTC
    #[arg(
        long,
        alias = "before",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    until: GivenTime,

    /// Also drop archived entries that are no longer needed from the ledger; entries of the last
    /// 400 days stay, or of the days that their policy needs (--idempotency-days). Requires the owner
    /// of the tables and a running instance that seals. After an interruption, run the same command
    /// again: it goes on where it stopped
    #[arg(long)]
    drop: bool,

    /// Reason of the archiving
    #[arg(long)]
    reason: Option<String>,

    /// Public key of the seals, to check the signature too: NAME+HASH+BASE64, or a file that
    /// contains it
    #[arg(long)]
    key: Option<String>,

    #[command(flatten)]
    database: DatabaseArgs,
}

pub async fn archive(args: ArchiveArgs) -> anyhow::Result<ExitCode> {
    let order = ArchiveOrder {
        folder: args.folder,
        before: LocalTime::utc().at(local::present()).instant(args.until)?,
        reason: args.reason,
        key: args.key.as_deref().map(read_key).transpose()?,
    };
    let ledger = open(&args.database).await?;
    let bar = WorkBar::of_positions()?;
    let drop_bar = WorkBar::of("entries dropped")?;
    let now = present(&ledger).await?;
    let tell = |done, of| bar.tell(done, of);
    let tell_dropped = |done, of| {
        bar.end();
        drop_bar.tell(done, of);
    };
    let work = async {
        if args.drop {
            let dropped = drop_archived(&ledger, &order, now, tell, tell_dropped).await?;
            Ok(dropped.map_or((None, None), |dropped| {
                let spared = match dropped.spared {
                    0 => String::new(),
                    1 => "; one policy keeps more of its entries, which it needs for longer"
                        .to_owned(),
                    many => format!(
                        "; {many} policies keep more of their entries, which they need for longer"
                    ),
                };
                let text = format!(
                    "{} entries were dropped. Of the entries up to position {}, {} stay: the last \
                         entry of each account, and open holds{spared}",
                    dropped.entries, dropped.last, dropped.kept
                );
                (Some(dropped.archived), Some(text))
            }))
        } else {
            Ok((archive_ledger(&ledger, &order, now, tell).await?, None))
        }
    };
    let archived = unless_interrupted(work, GOES_ON).await;
    bar.end();
    drop_bar.end();
    ledger.close().await;
    let place = order.folder.display();
    let (archived, dropped) = archived?;
    match archived {
        None => println!(
            "nothing was recorded before {}: nothing to archive",
            order.before
        ),
        Some(archived) if archived.added == 0 => println!(
            "{place} already has the {} positions that were recorded before {}: nothing to add",
            archived.last, order.before
        ),
        Some(archived) => {
            println!(
                "{place} has the positions 1 to {} of {}, {} of them new. They were read back and \
                 checked by a checkpoint of {} positions",
                archived.last, archived.origin, archived.added, archived.sealed
            );
            println!("check it anywhere with: perdiem verify --archive {place} --key KEY");
        }
    }
    if let Some(dropped) = dropped {
        println!("{dropped}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the work on an archive, or for an interruption. `again` says what to do after one.
async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, ArchiveFailure>>,
    again: &str,
) -> anyhow::Result<T> {
    tokio::select! {
        biased;
        interrupted = interruption() => {
            interrupted?;
            Err(TryAgain(format!("interrupted: {again}")).into())
        }
        done = work => done.map_err(|failure| tell_failure(failure, again)),
    }
}

/// The error of the command: can it succeed the next time?
fn tell_failure(failure: ArchiveFailure, again: &str) -> anyhow::Error {
    match failure {
        ArchiveFailure::NotYet(what) => TryAgain(what).into(),
        ArchiveFailure::Ledger(ref error) if error.is_passing() => {
            TryAgain(format!("interrupted: {again} ({})", Chain(&failure))).into()
        }
        failure => failure.into(),
    }
}

/// Checks an archive by its files; where the settings name a database, also against the ledger.
pub async fn verify(
    folder: &Path,
    key: Option<&VerifierKey>,
    database: &DatabaseArgs,
) -> anyhow::Result<ExitCode> {
    let bar = WorkBar::of_positions()?;
    let checking = check_archive(folder, key, |done, of| bar.tell(done, of));
    let checking = async { Ok(checking.await?) };
    let archive = unless_interrupted(checking, BEGINS_AGAIN).await;
    bar.end();
    let archive = archive?;
    if key.is_none() {
        tell_of_no_key();
    }
    println!("{}", archive.told(folder));
    if database.named().is_none() {
        println!("they were not compared with the ledger: set DATABASE_URL to compare them");
        return Ok(ExitCode::SUCCESS);
    }
    let ledger = open_to_read(database).await?;
    let bar = WorkBar::of_positions()?;
    let comparing = compare_archive(&ledger, folder, &archive, |done, of| bar.tell(done, of));
    let compared = unless_interrupted(comparing, BEGINS_AGAIN).await;
    bar.end();
    ledger.close().await;
    compared?;
    println!("the ledger has the same positions");
    Ok(ExitCode::SUCCESS)
}
