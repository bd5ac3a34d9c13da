//! Reads the log: roots, proofs and tiles, from the stored hashes.

use crate::{PlacedLeaf, leaves_of};
use domain::record::{Mark, RecordPlace};
use domain::seal::leaf::{Hash, PrivatePart, StoredLeaf, hex};
use domain::seal::note::Checkpoint;
use domain::seal::proof::{LogProof, OpenedLeaf};
use domain::seal::tree::{GrowingTree, Subtree, inclusion, joined, subtrees_of};
use ledger::{Ledger, LedgerError, Seal};

/// About how many positions are read at once.
const POSITIONS_MOST: u64 = 4096;

/// The root of a complete subtree of an origin's tree.
async fn subtree(ledger: &Ledger, origin: u64, subtree: Subtree) -> Result<Hash, LedgerError> {
    let (level, indexes) = subtree.hashes();
    let count = indexes.end - indexes.start;
    let hashes = ledger
        .audit()
        .tile_hashes(origin, level, indexes.start, indexes.end)
        .await?;
    if hashes.len() as u64 != count {
        let what = format!("the log of seals lacks hashes at level {level}");
        return Err(LedgerError::Corrupt(what));
    }
    Ok(Subtree::root(&hashes))
}

async fn subtrees(
    ledger: &Ledger,
    origin: u64,
    wanted: Vec<Subtree>,
) -> Result<Vec<Hash>, LedgerError> {
    let mut roots = Vec::with_capacity(wanted.len());
    for one in wanted {
        roots.push(subtree(ledger, origin, one).await?);
    }
    Ok(roots)
}

/// The tree of an origin when it had this many leaves.
pub async fn tree_of(ledger: &Ledger, origin: u64, size: u64) -> Result<GrowingTree, LedgerError> {
    let roots = subtrees(ledger, origin, subtrees_of(size)).await?;
    Ok(GrowingTree::new(size, roots))
}

/// The hashes of a path. Each is joined from subtrees.
pub async fn path(
    ledger: &Ledger,
    origin: u64,
    wanted: Vec<Vec<Subtree>>,
) -> Result<Vec<Hash>, LedgerError> {
    let mut hashes = Vec::with_capacity(wanted.len());
    for parts in wanted {
        hashes.push(joined(&subtrees(ledger, origin, parts).await?));
    }
    Ok(hashes)
}

/// The leaves of the positions from one on and before another. Fewer if the record ends.
pub async fn leaves_between(
    ledger: &Ledger,
    from: u64,
    to: u64,
) -> Result<Vec<PlacedLeaf>, LedgerError> {
    let mut found = Vec::new();
    let mut next = from;
    while next < to {
        let marks = ledger
            .record()
            .marks_to_follow(next..to.min(next + POSITIONS_MOST))
            .await?;
        let (Some(first), Some(last)) = (marks.first(), marks.last()) else {
            break;
        };
        let before = match first.after {
            0 => Mark::FIRST,
            after => ledger.record().mark_to(after).await?,
        };
        let end = last.position;
        let leaves = ledger.audit().leaves(before.place, last.place).await?;
        let leaves = leaves_of(before, &marks, leaves)?;
        let wanted = leaves
            .into_iter()
            .filter(|leaf| (next..to).contains(&leaf.position));
        found.extend(wanted);
        next = end + 1;
    }
    Ok(found)
}

/// The error that a leaf's entry was dropped.
pub fn dropped(leaf: &PlacedLeaf) -> LedgerError {
    LedgerError::Archived(format!(
        "position {}: {} is in the archive only",
        leaf.position,
        leaf.name()
    ))
}

/// A leaf, with what opens its private part.
fn open(leaf: &PlacedLeaf) -> Result<OpenedLeaf, LedgerError> {
    let StoredLeaf::Whole(source) = &leaf.source else {
        return Err(dropped(leaf));
    };
    let (salt, fields) = match &source.private {
        Some(PrivatePart::Kept { salt, fields }) => (Some(hex(salt)), Some(fields.clone())),
        Some(PrivatePart::Erased(_)) | None => (None, None),
    };
    Ok(OpenedLeaf {
        leaf: source.line(leaf.position, leaf.recorded_at),
        salt,
        private: fields,
    })
}

/// Proves that the log has the entry or change at a place. `None` if its position is not sealed
/// yet.
///
/// # Errors
/// [`LedgerError`].
pub async fn prove(
    ledger: &Ledger,
    place: RecordPlace,
    seal: &Seal,
) -> Result<Option<LogProof>, LedgerError> {
    let position = ledger.record().position_of(place).await?;
    let Some(position) = position.filter(|position| *position <= seal.size) else {
        return Ok(None);
    };
    let leaves = leaves_between(ledger, position, position + 1).await?;
    let is_it = |leaf: &&PlacedLeaf| leaf.source.place() == place;
    let corrupt = |what: String| LedgerError::Corrupt(what);
    let leaf = leaves.iter().find(is_it);
    let leaf = leaf.ok_or_else(|| corrupt(format!("position {position} has another place")))?;
    let checkpoint = Checkpoint::parse(&seal.note);
    let checkpoint = checkpoint.map_err(|error| corrupt(format!("a stored seal: {error}")))?;
    let index = position - 1;
    let hashes = path(ledger, seal.origin.number, inclusion(index, seal.size)).await?;
    Ok(Some(LogProof {
        opened: open(leaf)?,
        index,
        path: hashes,
        checkpoint,
    }))
}
