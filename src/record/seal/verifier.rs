//! The verifier: it checks a ledger by its log. It makes every leaf again, and names the first one
//! that differs.

use std::collections::VecDeque;

use super::cut_check::{CutCheck, DroppedLeaves};
use super::failure::{VerifyFailure, differs};
use super::growing::SIGNED_WITHIN;
use crate::statistics::{CheckedFigures, FigureFailure, check_figures};
use crate::{PlacedLeaf, leaves_of};
use domain::record::{Mark, RecordPlace};
use domain::seal::leaf::{Hash, StoredLeaf};
use domain::seal::note::{Checkpoint, LogName, VerifierKey};
use domain::seal::tile::{TILE_WIDTH, TileRow};
use domain::seal::tree::{GrowingTree, leaf_hash};
use ledger::{Ledger, LedgerError, Seal, SealOrigin, SealedLog};

/// About how many positions are read at once.
const POSITIONS_MOST: u64 = 4096;
const SEALS_MOST: u32 = 256;

/// What the caller has from elsewhere.
#[derive(Debug, Default)]
pub struct GivenSeal {
    /// The key that signed the seals.
    pub key: Option<VerifierKey>,
    /// A seal that was kept elsewhere.
    pub seal: Option<Checkpoint>,
}

/// The result of a successful check.
#[derive(Debug)]
pub struct Verified {
    pub origin: String,
    /// The positions up to this one are sealed, and are what was sealed.
    pub sealed: u64,
    /// How many checkpoints were checked.
    pub seals: u64,
    /// How many positions are not sealed yet.
    pub unsealed: u64,
    /// What cuts have dropped.
    pub dropped: Option<DroppedLeaves>,
    pub figures: CheckedFigures,
}

/// A check that is running.
struct Check<'a> {
    ledger: &'a Ledger,
    given: &'a GivenSeal,
    origin: SealOrigin,
    cuts: CutCheck,
    tree: GrowingTree,
    /// The next stored seals.
    next_seals: VecDeque<Seal>,
    seals_ended: bool,
    /// The size of the last checked seal.
    checked_size: u64,
    seals: u64,
}

/// Makes every leaf again, and compares it with the log. `tell` gets the progress and the total.
///
/// # Errors
/// [`VerifyFailure`].
pub async fn verify_ledger(
    ledger: &Ledger,
    given: &GivenSeal,
    tell: impl Fn(u64, u64),
) -> Result<Verified, VerifyFailure> {
    let cut = ledger.record().last_cut(RecordPlace::LAST).await?;
    match verify(ledger, given, tell).await {
        // A cut that began during the check has dropped entries. The check does not know it.
        Err(VerifyFailure::Differs(_))
            if ledger.record().last_cut(RecordPlace::LAST).await? != cut =>
        {
            let again = "somebody began to drop entries while the ledger was checked: run the command again";
            Err(VerifyFailure::Given(again.to_owned()))
        }
        verified => verified,
    }
}

async fn verify(
    ledger: &Ledger,
    given: &GivenSeal,
    tell: impl Fn(u64, u64),
) -> Result<Verified, VerifyFailure> {
    // 1. Check that there is a log, that the given seal is of it, and that each log is of this
    //    ledger.
    let Some(SealedLog { origin, size, .. }) = ledger.audit().sealed_log().await? else {
        return differs("the ledger has no seals: nothing was ever sealed".to_owned());
    };
    check_given(ledger, given, &origin, size).await?;
    let id = ledger.identity().id;
    for of_log in ledger.audit().seal_origins().await? {
        let name = &of_log.name;
        if LogName::parse(name).is_none_or(|log| log.ledger != id) {
            return differs(format!(
                "the ledger's id is {id}, but its log of seals is {name}: the id was changed, or the log \
                 is of another ledger"
            ));
        }
        if of_log.number > 1 && !ledger.audit().has_restart(name).await? {
            return differs(format!(
                "{name} was not begun by `perdiem seal restart`: somebody made the log again"
            ));
        }
    }
    // 2. Check that nothing was put before the record by hand.
    if ledger.audit().has_leaves_before().await? {
        return differs(
            "position 1: an entry or a change has a place before it (a transaction below 0): it was \
             added by hand"
                .to_owned(),
        );
    }
    // 3. Read the sealed cuts: only their entries may be missing, and they must be old.
    let sealed = ledger.record().mark_to(size).await?.place;
    let cuts = CutCheck::read(ledger, sealed, origin.number > 1).await?;
    let mut check = Check {
        ledger,
        given,
        origin,
        cuts,
        tree: GrowingTree::default(),
        next_seals: VecDeque::new(),
        seals_ended: false,
        checked_size: 0,
        seals: 0,
    };
    // 4. Make every sealed leaf again, and compare it with the log.
    let mut before = Mark::FIRST;
    loop {
        tell(before.position, size);
        let marks = ledger
            .record()
            .marks_to_follow(before.position + 1..before.position + POSITIONS_MOST)
            .await?;
        let marks: Vec<Mark> = marks
            .into_iter()
            .take_while(|mark| mark.position <= size)
            .collect();
        let Some(last) = marks.last() else {
            break;
        };
        check.marks(before, &marks, *last).await?;
        before = *last;
    }
    // 5. Check that no sealed position, kept entry or checkpoint is missing.
    if before.position < size {
        let next = before.position + 1;
        return differs(format!(
            "position {next}: it was sealed, but the record ends before it, or has other marks: \
             the positions {next} to {size} are gone"
        ));
    }
    check.cuts.check_kept()?;
    // The log may grow during the check. Then there are seals of more positions.
    let later = check.next_seal().await?.map(|seal| seal.size);
    let size_now = ledger
        .audit()
        .sealed_log()
        .await?
        .map_or(size, |log| log.size);
    if let Some(of) = later.filter(|of| *of > size_now) {
        return differs(format!(
            "a checkpoint has {of} positions, but the log has {size}"
        ));
    }
    if check.seals == 0 {
        return differs("the log has no checkpoint: all checkpoints are gone".to_owned());
    }
    if size - check.checked_size > SIGNED_WITHIN {
        let last = check.checked_size;
        return differs(format!(
            "the log has {size} positions, but its last checkpoint has {last}: later ones are gone"
        ));
    }
    // 6. Check what is recorded and not sealed yet, and that nothing was put after the record by
    //    hand.
    let newest = check_unsealed(ledger, before).await?;
    if let Some(forged) = ledger.audit().forged_place().await? {
        return differs(format!(
            "{forged} has a place that no transaction has had: it was added by hand, and has no \
             position"
        ));
    }
    // 7. Make the figures again.
    let figures = match check_figures(ledger, tell).await {
        Ok(figures) => figures,
        Err(FigureFailure::Differs(what)) => return differs(what),
        Err(FigureFailure::Ledger(error)) => return Err(error.into()),
    };
    Ok(Verified {
        figures,
        origin: check.origin.name,
        sealed: size,
        seals: check.seals,
        unsealed: newest - size,
        dropped: check.cuts.dropped(),
    })
}

/// Checks that everything with a position after a mark exists, although it is not sealed yet.
/// Returns the newest position.
async fn check_unsealed(ledger: &Ledger, mut before: Mark) -> Result<u64, VerifyFailure> {
    loop {
        let marks = ledger
            .record()
            .marks_to_follow(before.position + 1..before.position + POSITIONS_MOST)
            .await?;
        let Some(last) = marks.last() else {
            return Ok(before.position);
        };
        let leaves = ledger.audit().leaves(before.place, last.place).await?;
        match leaves_of(before, &marks, leaves) {
            Ok(leaves) => leaves.iter().try_for_each(check_rows)?,
            Err(LedgerError::Corrupt(what)) => return differs(what),
            Err(error) => return Err(error.into()),
        }
        before = *last;
    }
}

/// Checks the parts of a row that are in no leaf.
fn check_rows(leaf: &PlacedLeaf) -> Result<(), VerifyFailure> {
    let position = leaf.position;
    let name = leaf.name();
    let contradiction = match &leaf.source {
        StoredLeaf::Whole(source) => source.contradiction,
        StoredLeaf::Dropped(_) => None,
    };
    match contradiction {
        Some(what) => differs(format!("position {position}: {name} was changed: {what}")),
        None => Ok(()),
    }
}

/// Checks that the given seal is of this log, and signed.
async fn check_given(
    ledger: &Ledger,
    given: &GivenSeal,
    origin: &SealOrigin,
    size: u64,
) -> Result<(), VerifyFailure> {
    let Some(seal) = &given.seal else {
        return Ok(());
    };
    if seal.origin != origin.name {
        let origins = ledger.audit().seal_origins().await?;
        let is_ours = origins.iter().any(|it| it.name == seal.origin);
        let theirs = &seal.origin;
        let ours = &origin.name;
        return Err(VerifyFailure::Given(if is_ours {
            format!(
                "the seal is of {theirs}, a log of this ledger that ended when seals were \
                 restarted: take a seal of {ours}"
            )
        } else {
            format!(
                "the seal is of another ledger: its log is {theirs}, and this ledger's log is {ours}"
            )
        }));
    }
    if let Some(key) = &given.key {
        let checked = seal.check(key);
        checked.map_err(|error| VerifyFailure::Given(format!("the seal: {error}")))?;
    }
    if seal.size == 0 {
        return Err(VerifyFailure::Given(
            "the seal has 0 positions and proves nothing: take a later one".to_owned(),
        ));
    }
    if seal.size > size {
        let theirs = seal.size;
        let next = size + 1;
        return differs(format!(
            "position {next}: the seal has {theirs} positions, but the log has only {size}: later \
             ones are gone"
        ));
    }
    Ok(())
}

impl Check<'_> {
    /// Checks the leaves of some marks that follow another mark.
    async fn marks(
        &mut self,
        before: Mark,
        marks: &[Mark],
        last: Mark,
    ) -> Result<(), VerifyFailure> {
        let stored = self.stored(0, before.position, last.position).await?;
        let mut stored = stored.into_iter();
        let leaves = self.ledger.audit().leaves(before.place, last.place).await?;
        let mut leaves = leaves.into_iter().peekable();
        let mut position = before.position;
        for mark in marks {
            if mark.after != position {
                let next = position + 1;
                return differs(format!(
                    "position {next}: the marks of the record were changed"
                ));
            }
            while let Some(source) = leaves.next_if(|leaf| leaf.place() <= mark.place) {
                position += 1;
                let leaf = PlacedLeaf {
                    position,
                    recorded_at: mark.recorded_at,
                    source,
                };
                let name = leaf.name();
                if position > mark.position {
                    return differs(format!(
                        "position {position}: {name} is at a position where nothing was sealed: \
                         somebody added or moved it"
                    ));
                }
                let sealed = stored.next();
                self.cuts.count(&leaf)?;
                let hash = leaf.line().map(|line| leaf_hash(line.as_bytes()));
                let Some(hash) = hash.or(sealed).filter(|hash| sealed == Some(*hash)) else {
                    return differs(format!(
                        "position {position}: {name} is not what was sealed there: somebody \
                         changed it, or added or removed others before it"
                    ));
                };
                check_rows(&leaf)?;
                self.push(hash).await?;
            }
            if position < mark.position {
                let next = position + 1;
                let end = mark.position;
                return differs(format!(
                    "position {next}: what was sealed there is gone, and everything up to \
                     position {end} too"
                ));
            }
        }
        Ok(())
    }

    /// Adds a leaf, and checks the log's hashes of the tree with it.
    async fn push(&mut self, leaf: Hash) -> Result<(), VerifyFailure> {
        self.tree.push(leaf);
        let size = self.tree.size();
        for TileRow {
            level,
            first,
            hashes,
        } in self.tree.take_rows()
        {
            if level > 0 {
                let end = first + hashes.len() as u64;
                if self.stored(level, first, end).await? != hashes {
                    return differs(format!(
                        "position {size}: a hash of the log (level {level}, index {first}) was \
                         changed"
                    ));
                }
            }
        }
        let given = self.given.seal.as_ref();
        let given = given.filter(|seal| seal.size == size);
        if given.is_some_and(|seal| seal.root != self.tree.root()) {
            return differs(format!(
                "the first {size} positions differ from those that were sealed: somebody made the \
                 log again"
            ));
        }
        while self
            .next_seal()
            .await?
            .is_some_and(|seal| seal.size <= size)
        {
            if let Some(seal) = self.next_seals.pop_front() {
                self.check_seal(&seal)?;
                self.checked_size = seal.size;
                self.seals += 1;
            }
        }
        Ok(())
    }

    /// Checks a stored checkpoint. The tree has all of its leaves.
    fn check_seal(&self, seal: &Seal) -> Result<(), VerifyFailure> {
        let size = seal.size;
        let checkpoint = match Checkpoint::parse(&seal.note) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return differs(format!("the checkpoint of {size} positions: {error}")),
        };
        let tree = (self.tree.size(), self.tree.root());
        if (checkpoint.size, checkpoint.root) != tree
            || checkpoint.size != size
            || checkpoint.origin != self.origin.name
        {
            return differs(format!(
                "the checkpoint of {size} positions was changed: it does not have the root of \
                 their tree"
            ));
        }
        match &self.given.key {
            Some(key) => checkpoint
                .check(key)
                .or_else(|error| differs(format!("the checkpoint of {size} positions: {error}"))),
            None => Ok(()),
        }
    }

    /// The next stored seal.
    async fn next_seal(&mut self) -> Result<Option<&Seal>, VerifyFailure> {
        if self.next_seals.is_empty() && !self.seals_ended {
            let from = self.checked_size + 1;
            let seals = self
                .ledger
                .audit()
                .seals_from(self.origin.number, from, SEALS_MOST)
                .await?;
            self.next_seals = seals.into();
            self.seals_ended = self.next_seals.is_empty();
        }
        Ok(self.next_seals.front())
    }

    /// The stored hashes of a level, from an index on and below another.
    async fn stored(&self, level: u8, from: u64, to: u64) -> Result<Vec<Hash>, VerifyFailure> {
        let mut hashes = Vec::new();
        let mut next = from;
        while next < to {
            let end = (next - next % TILE_WIDTH + TILE_WIDTH).min(to);
            let tile = self
                .ledger
                .audit()
                .tile_hashes(self.origin.number, level, next, end)
                .await;
            match tile {
                Ok(tile) if tile.len() as u64 == end - next => hashes.extend(tile),
                Ok(_) | Err(LedgerError::Corrupt(_)) => {
                    return differs(format!(
                        "hashes of the log (level {level}, from index {next} on) are gone"
                    ));
                }
                Err(error) => return Err(error.into()),
            }
            next = end;
        }
        Ok(hashes)
    }
}
