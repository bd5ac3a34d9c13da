//! Writes an archive: the leaves of what was recorded before an instant, and their proof.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::files::{ArchiveFolder, SpanWriter};
use super::sealed::SealedHashes;
use super::{ArchiveFailure, differs, refused, unusable};
use crate::seal::{leaves_between, path, tree_of};
use domain::identity::to_micros;
use domain::seal::leaf::hex;
use domain::seal::note::{VerifierKey, encode_hash};
use domain::seal::tree::{consistency, leaf_hash};
use ledger::{Act, ActKind, ChangeFilter, ChangeKind, Ledger, PastChange, Seal};
use verify::archive::{check_files, read_index};
use verify::files::LineFile;
use verify::index::{
    ArchiveIndex, ArchivedFile, ArchivedSpan, FORM, INDEX, PositionSpan, checkpoint_name,
};

/// The number of leaves that are made at once.
const LEAVES_MOST: u64 = 2048;
/// How many of the newest acts to search for the act of an archive.
const ACTS_MOST: u32 = 100;
/// The author of the act.
const BY: &str = "perdiem";

/// What to archive, and where.
#[derive(Debug)]
pub struct ArchiveOrder {
    /// The folder. If it has an archive of the same ledger, the new one continues there.
    pub folder: PathBuf,
    pub before: DateTime<Utc>,
    pub reason: Option<String>,
    /// The key that checks the checkpoint's signature.
    pub key: Option<VerifierKey>,
}

/// What a folder has after the archive.
#[derive(Debug)]
pub struct Archived {
    pub origin: String,
    pub last: u64,
    /// How many positions were added.
    pub added: u64,
    /// How many positions its checkpoint covers.
    pub sealed: u64,
}

/// Writes the leaves of what was recorded before an instant into files, and reads the files back.
/// An act records the archive. `tell` gets the progress and the total.
///
/// # Errors
/// [`ArchiveFailure`].
pub async fn archive_ledger(
    ledger: &Ledger,
    order: &ArchiveOrder,
    now: DateTime<Utc>,
    tell: impl Fn(u64, u64),
) -> Result<Option<Archived>, ArchiveFailure> {
    // 1. Find the last position to archive. It must be sealed.
    let (last, seal) = wanted(ledger, order.before, now).await?;
    if last == 0 {
        return Ok(None);
    }
    // 2. Read what the folder has. It must be of the same log.
    let folder = ArchiveFolder::open(&order.folder)?;
    let present = read_index(folder.path())?;
    let after = match &present {
        Some(index) => goes_on(ledger, folder.path(), index, &seal).await?,
        None => 0,
    };
    if let Some(index) = present.as_ref().filter(|_| last <= after) {
        // Nothing is missing but perhaps the act, if an earlier run was interrupted before it.
        record(ledger, index, order.reason.as_deref(), now).await?;
        return Ok(Some(archived(index, 0, seal.size)));
    }
    // 3. Write the leaves, under temporary names.
    let mut sealed = SealedHashes::new(ledger, seal.origin.number);
    let mut spans = present.map_or_else(Vec::new, |index| index.spans);
    for span in PositionSpan::all(after, last) {
        let tell = |done| tell(done, last);
        spans.push(write_span(ledger, &folder, span, &mut sealed, tell).await?);
    }
    // 4. Make the index: the root, the checkpoint, and the proof between them.
    let index = ArchiveIndex {
        form: FORM,
        origin: seal.origin.name.clone(),
        before: order.before,
        last,
        root: encode_hash(&tree_of(ledger, seal.origin.number, last).await?.root()),
        spans,
        checkpoint: ArchivedFile {
            name: checkpoint_name(seal.size),
            sha256: hex(&Sha256::digest(&seal.note)),
        },
        consistency: {
            let wanted = consistency(last, seal.size);
            let hashes = path(ledger, seal.origin.number, wanted).await?;
            hashes.iter().map(encode_hash).collect()
        },
    };
    folder.write_part(&index.checkpoint.name, &seal.note)?;
    let text = index
        .text()
        .map_err(|error| unusable(Path::new(INDEX))(error.into()))?;
    folder.write_part(INDEX, &text)?;
    // 5. Give the files their names, and read them back. Invariant: the index is last, so a folder
    //    with an index is complete.
    for span in &index.spans {
        if span.first > after {
            folder.finish(&span.leaves.name)?;
            folder.finish(&span.hashes.name)?;
        }
    }
    folder.finish(&index.checkpoint.name)?;
    check_files(
        folder.path(),
        &folder.part(INDEX),
        order.key.as_ref(),
        &tell,
    )
    .await?;
    folder.finish(INDEX)?;
    // 6. Remove what is not needed any more, and record the act.
    folder.remove_parts()?;
    remove_checkpoints(&folder, &index)?;
    record(ledger, &index, order.reason.as_deref(), now).await?;
    Ok(Some(archived(&index, last - after, seal.size)))
}

fn archived(index: &ArchiveIndex, added: u64, sealed: u64) -> Archived {
    Archived {
        origin: index.origin.clone(),
        last: index.last,
        added,
        sealed,
    }
}

fn show(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The last position that was recorded before an instant, and the newest seal. The seal covers the
/// position.
async fn wanted(
    ledger: &Ledger,
    before: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(u64, Seal), ArchiveFailure> {
    let at = show(before);
    if before > now {
        return refused(format!(
            "{at} is in the future: more can be recorded before it; name an instant of the past"
        ));
    }
    let last = ledger.record().mark_before(before).await?.position;
    let Some(log) = ledger.audit().sealed_log().await? else {
        return refused(
            "nothing of this ledger is sealed, so an archive would prove nothing: run `perdiem seal \
             new-key`, serve with PERDIEM_SEAL_KEY_FILE, and archive when `GET /v1/seals/latest` \
             has a seal"
                .to_owned(),
        );
    };
    match log.last {
        Some(seal) if last <= seal.size => Ok((last, seal)),
        seal => {
            let size = seal.map_or(0, |seal| seal.size);
            refused(format!(
                "{last} positions were recorded before {at}, and the newest seal has {size} of them: \
                 let an instance with PERDIEM_SEAL_KEY_FILE seal them, or name an earlier --before"
            ))
        }
    }
}

/// The last position of the archive in the folder, if it is of this log.
async fn goes_on(
    ledger: &Ledger,
    folder: &Path,
    index: &ArchiveIndex,
    seal: &Seal,
) -> Result<u64, ArchiveFailure> {
    let place = folder.display();
    let origins = ledger.audit().seal_origins().await?;
    if !origins.iter().any(|origin| origin.name == index.origin) {
        return refused(format!(
            "{place} has an archive of {}, and this ledger is {}: name another folder",
            index.origin, seal.origin.name
        ));
    }
    let is_prefix = index.last <= seal.size && {
        let tree = tree_of(ledger, seal.origin.number, index.last).await?;
        encode_hash(&tree.root()) == index.root
    };
    if is_prefix {
        Ok(index.last)
    } else {
        refused(format!(
            "{place} has {} positions that the ledger does not have in this form: the ledger was \
             restored from a backup since then, or changed. Keep that folder, run `perdiem verify \
             --archive`, and name another folder",
            index.last
        ))
    }
}

/// Writes the files of a span under temporary names. Keeps what an interrupted archive wrote.
async fn write_span(
    ledger: &Ledger,
    folder: &ArchiveFolder,
    span: PositionSpan,
    sealed: &mut SealedHashes<'_>,
    tell: impl Fn(u64),
) -> Result<ArchivedSpan, ArchiveFailure> {
    let (mut writer, mut left) = SpanWriter::open(folder, span)?;
    keep_left(&mut writer, &mut left, sealed).await?;
    writer.drop_rest()?;
    while writer.next <= span.last {
        tell(writer.next - 1);
        let first = writer.next;
        let end = (writer.next + LEAVES_MOST).min(span.last + 1);
        for leaf in leaves_between(ledger, first, end).await? {
            let position = leaf.position;
            let Some(line) = leaf.line() else {
                return refused(format!(
                    "position {position}: {} is in an earlier archive only: name the folder of that \
                     archive, or a copy of it",
                    leaf.name()
                ));
            };
            let hash = leaf_hash(line.as_bytes());
            if sealed.at(position).await? != hash {
                return differs(format!(
                    "position {position}: {} is not what was sealed there: nothing is archived; \
                     run `perdiem verify`",
                    leaf.name()
                ));
            }
            writer.add(&line, &hash)?;
        }
        if writer.next < end {
            return differs(format!(
                "position {}: it was sealed, but the record ends before it: run `perdiem verify`",
                writer.next
            ));
        }
    }
    writer.close()
}

/// Keeps the lines that an interrupted archive wrote, up to the first one that is not what was
/// sealed.
async fn keep_left(
    writer: &mut SpanWriter,
    left: &mut LineFile,
    sealed: &mut SealedHashes<'_>,
) -> Result<(), ArchiveFailure> {
    while writer.next <= writer.span.last {
        let Some(line) = left.next_line()? else {
            break;
        };
        let hash = leaf_hash(line);
        if sealed.at(writer.next).await? != hash {
            break;
        }
        writer.keep(line, &hash)?;
    }
    Ok(())
}

/// Removes the checkpoints of earlier archives. The newest checkpoint covers all their positions.
fn remove_checkpoints(folder: &ArchiveFolder, index: &ArchiveIndex) -> Result<(), ArchiveFailure> {
    let place = folder.path();
    for entry in fs::read_dir(place).map_err(unusable(place))? {
        let path = entry.map_err(unusable(place))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_checkpoint = name.starts_with("checkpoint-") && name.ends_with(".note");
        if is_checkpoint && name != index.checkpoint.name.as_str() {
            fs::remove_file(&path).map_err(unusable(&path))?;
        }
    }
    Ok(())
}

/// Adds the act of an archive, unless the ledger has it already.
async fn record(
    ledger: &Ledger,
    index: &ArchiveIndex,
    reason: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), ArchiveFailure> {
    let about = json!({
        "first_position": 1,
        "last_position": index.last,
        "before": index.before,
        "origin": index.origin,
        "root": index.root,
        "files": index.spans.iter().flat_map(|span| [&span.leaves, &span.hashes]).collect::<Vec<_>>(),
    });
    let about = about.to_string();
    let filter = ChangeFilter {
        policy: None,
        from: None,
        to: None,
        below: u64::MAX,
        by: Some(BY.to_owned()),
        accounts: None,
        subject: None,
    };
    let kind = Some(ChangeKind::Act(ActKind::Archive));
    let acts = ledger.record().changes(filter, kind, ACTS_MOST).await?;
    let is_it = |change: &PastChange| matches!(change, PastChange::Act(act) if act.about == about);
    if !acts.iter().any(is_it) {
        let act = Act {
            revision: 0,
            kind: ActKind::Archive,
            about,
            at: to_micros(now),
            by: BY.to_owned(),
            reason: reason.map(str::to_owned),
        };
        ledger.record().add_act(&act).await?;
    }
    Ok(())
}
