//! What the verifier knows of cuts: which entries may be missing.

use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;

use super::failure::{VerifyFailure, differs};
use crate::PlacedLeaf;
use crate::cut::drop_scopes;
use domain::policy::PolicyId;
use domain::record::RecordPlace;
use domain::seal::leaf::{DroppedLeaf, LeafKind, StoredLeaf};
use ledger::{Cut, CutText, Ledger};

/// Leaves whose entries were archived and dropped.
#[derive(Debug)]
pub struct DroppedLeaves {
    pub leaves: u64,
    /// The newest sealed cut: its last position, and its change.
    pub last: u64,
    pub revision: u64,
}

/// A sealed cut, and the last positions that it may drop of each policy.
struct SealedCut {
    text: CutText,
    ends: HashMap<PolicyId, u64>,
}

impl SealedCut {
    /// The last position of the entries of a policy that may be gone; 0 if none may.
    fn end_of(&self, policy: PolicyId) -> u64 {
        self.ends.get(&policy).copied().unwrap_or(0)
    }
}

/// The cuts of a ledger, with how many entries up to the newest sealed one exist, and how many were dropped.
pub struct CutCheck {
    /// By their revisions.
    sealed: BTreeMap<u64, SealedCut>,
    /// The newest cut, if seals were restarted and may not have reached it again.
    later: Option<CutText>,
    found: u64,
    gone: u64,
}

impl CutCheck {
    /// Reads the cuts, and checks that those up to a sealed place are of old entries only.
    pub async fn read(
        ledger: &Ledger,
        sealed_to: RecordPlace,
        is_restarted: bool,
    ) -> Result<Self, VerifyFailure> {
        let cuts = ledger.record().cuts().await?;
        let later = cuts.first().filter(|_| is_restarted);
        let later = later.map(|cut| cut.text.clone());
        let mut sealed = BTreeMap::new();
        for cut in cuts.into_iter().filter(|cut| cut.own <= sealed_to) {
            check_age(ledger, &cut).await?;
            let scopes = drop_scopes(ledger, &cut.text, cut.revision - 1).await?;
            let ends = scopes.into_iter().flat_map(|scope| {
                let policies = scope.policies.into_iter();
                policies.map(move |policy| (policy, scope.end.position))
            });
            let ends = ends.collect();
            let text = cut.text;
            sealed.insert(cut.revision, SealedCut { text, ends });
        }
        Ok(Self {
            sealed,
            later,
            found: 0,
            gone: 0,
        })
    }

    /// Counts a leaf. Only the sealed cut that dropped it explains a missing entry.
    pub fn count(&mut self, leaf: &PlacedLeaf) -> Result<(), VerifyFailure> {
        match &leaf.source {
            StoredLeaf::Dropped(dropped) => {
                self.check_dropped(leaf, dropped)?;
                self.gone += 1;
            }
            StoredLeaf::Whole(source) => {
                let newest = self.sealed.values().next_back();
                let is_before = newest.is_some_and(|cut| leaf.position <= cut.text.last_position);
                self.found += u64::from(is_before && source.kind == LeafKind::Entry);
            }
        }
        Ok(())
    }

    fn check_dropped(&self, leaf: &PlacedLeaf, dropped: &DroppedLeaf) -> Result<(), VerifyFailure> {
        let position = leaf.position;
        let name = leaf.name();
        let is_before = |cut: &CutText| position <= cut.last_position;
        let cut = self.sealed.get(&dropped.cut);
        match cut.filter(|cut| is_before(&cut.text)) {
            Some(cut) if position > cut.end_of(dropped.policy) => differs(format!(
                "position {position}: {name} is gone, but its policy needs its entries for more than the {} days of \
                 the cut (change {})",
                cut.text.age_days, dropped.cut
            )),
            Some(_) => Ok(()),
            None if self.later.as_ref().is_some_and(is_before) => Err(VerifyFailure::Given(
                "seals were restarted, and have not reached the last cut again: let an \
                 instance seal, and run the command again"
                    .to_owned(),
            )),
            None => differs(format!(
                "position {position}: {name} is gone, and no sealed cut has its position"
            )),
        }
    }

    /// Checks that the entries exist that the newest cut keeps.
    pub fn check_kept(&self) -> Result<(), VerifyFailure> {
        let Some((revision, SealedCut { text, .. })) = self.sealed.last_key_value() else {
            return Ok(());
        };
        if self.found >= text.kept_entries {
            return Ok(());
        }
        differs(format!(
            "the cut (change {revision}) kept {} entries up to position {}, but only {} of them exist: others were \
             dropped",
            text.kept_entries, text.last_position, self.found
        ))
    }

    /// What the cuts have dropped, as far as it was counted.
    pub fn dropped(&self) -> Option<DroppedLeaves> {
        let newest = self.sealed.last_key_value().filter(|_| self.gone > 0);
        newest.map(|(revision, cut)| DroppedLeaves {
            leaves: self.gone,
            last: cut.text.last_position,
            revision: *revision,
        })
    }
}

/// Checks that a cut drops only old entries. Both instants are in leaves.
async fn check_age(ledger: &Ledger, cut: &Cut) -> Result<(), VerifyFailure> {
    let own = ledger.record().place_of_change(cut.revision).await?;
    let own = ledger
        .record()
        .marks_from(own.unwrap_or(RecordPlace::LAST), 1)
        .await?;
    let last = ledger
        .record()
        .mark_with_position(cut.text.last_position)
        .await?;
    let age = TimeDelta::days(cut.text.age_days.into());
    match (last, own.first()) {
        (Some(last), Some(own)) if own.recorded_at - last.recorded_at >= age => Ok(()),
        _ => differs(format!(
            "the cut (change {}) has positions up to {}, which are not {} days older: nobody may \
             drop these entries, and `perdiem archive` does not",
            cut.revision, cut.text.last_position, cut.text.age_days
        )),
    }
}
