//! How the tree of a log grows, and how a log begins.

use chrono::{DateTime, Utc};
use tokio::task::yield_now;

use crate::leaves_of;
use domain::identity::to_micros;
use domain::record::Mark;
use domain::seal::leaf::Hash;
use domain::seal::note::SealKey;
use domain::seal::tile::TileRow;
use domain::seal::tree::{GrowingTree, leaf_hash};
use ledger::{Act, ActKind, Ledger, LedgerError, Seal, SealOrigin};

/// The most positions of a log without a checkpoint.
pub const SIGNED_WITHIN: u64 = 65_536;
/// After this many leaves other tasks get the thread.
const YIELD_EVERY: usize = 64;

/// Adds leaves to the tree of a log. The leaves are those of some marks that follow another mark.
///
/// # Errors
/// [`LedgerError::Corrupt`] if the tree does not end at that other mark: a leaf never gets another
/// index than its position says.
pub async fn grow(
    ledger: &Ledger,
    origin: &SealOrigin,
    tree: &mut GrowingTree,
    before: Mark,
    marks: &[Mark],
) -> Result<(), LedgerError> {
    let Some(last) = marks.last() else {
        return Ok(());
    };
    if tree.size() != before.position {
        let size = tree.size();
        let position = before.position;
        return Err(LedgerError::Corrupt(format!(
            "the tree of {} has {size} positions, and the next leaves follow position {position}",
            origin.name
        )));
    }
    let leaves = ledger
        .audit()
        .leaves_to_seal(before.place, last.place)
        .await?;
    let leaves = leaves_of(before, marks, leaves)?;
    for leaves in leaves.chunks(YIELD_EVERY) {
        for leaf in leaves {
            tree.push(match leaf.line() {
                Some(line) => leaf_hash(line.as_bytes()),
                None => hash_before(ledger, origin, leaf.position).await?,
            });
        }
        yield_now().await;
    }
    Ok(())
}

/// The hash of a leaf whose entry was dropped, from an earlier log. It may not be in the last log
/// before this one, because that log may have been restarted before it had all positions.
async fn hash_before(
    ledger: &Ledger,
    origin: &SealOrigin,
    position: u64,
) -> Result<Hash, LedgerError> {
    for number in (1..origin.number).rev() {
        let hashes = ledger
            .audit()
            .tile_hashes(number, 0, position - 1, position)
            .await;
        if let Some(hash) = hashes?.first() {
            return Ok(*hash);
        }
    }
    Err(LedgerError::Corrupt(format!(
        "position {position}: its entry was dropped, and no earlier log has its hash"
    )))
}

/// The leaves of the first mark in the tree of a new log, and their checkpoint. `None` while the
/// record has no position.
pub async fn first_seal(
    ledger: &Ledger,
    key: &SealKey,
    origin: SealOrigin,
) -> Result<Option<(Vec<TileRow>, Seal)>, LedgerError> {
    let marks = ledger.record().marks_to_follow(1..2).await?;
    if marks.is_empty() {
        return Ok(None);
    }
    let mut tree = GrowingTree::default();
    grow(ledger, &origin, &mut tree, Mark::FIRST, &marks).await?;
    let size = tree.size();
    let seal = Seal {
        size,
        note: key.sign(&origin.name, size, &tree.root()),
        sealed_at: origin.begun_at,
        origin,
    };
    Ok(Some((tree.take_rows(), seal)))
}

/// Begins the next log of a ledger, and records that as an act. `None` while the record has no
/// position.
///
/// # Errors
/// [`LedgerError`].
pub async fn restart_seals(
    ledger: &Ledger,
    key: &SealKey,
    reason: &str,
    now: DateTime<Utc>,
) -> Result<Option<SealOrigin>, LedgerError> {
    let last = ledger.audit().sealed_log().await?;
    let origin = SealOrigin {
        number: last.as_ref().map_or(1, |last| last.origin.number + 1),
        name: key.origin(ledger.identity().id, Some(now.timestamp())),
        begun_at: to_micros(now),
    };
    let before = last.as_ref().map(|last| &last.origin.name);
    let sealed = last.as_ref().map_or(0, |last| last.size);
    let about = serde_json::json!({ "origin": origin.name, "before": before, "sealed": sealed });
    let act = Act {
        revision: 0,
        kind: ActKind::SealRestart,
        about: about.to_string(),
        at: now,
        by: "perdiem seal restart".to_owned(),
        reason: Some(reason.to_owned()),
    };
    let Some((rows, seal)) = first_seal(ledger, key, origin).await? else {
        return Ok(None);
    };
    if ledger
        .audit()
        .begin_origin(&rows, &seal, Some(&act))
        .await?
    {
        Ok(Some(seal.origin))
    } else {
        Err(LedgerError::Conflict)
    }
}
