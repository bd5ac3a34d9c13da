//! The history of changes: each version of a policy, override, block, tier of a subject or key with the
//! version before it;
//! and acts.

use std::cmp::Reverse;

use super::acts::{Act, ActKind};
use super::versions::{ChangeFilter, Changed};
use crate::boxed;
use crate::{LedgerError, RecordTables};
use domain::key::Key;
use domain::overrides::{Block, Override, SubjectTier};
use domain::policy::{Policy, PolicyName};

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Policy,
    Override,
    Block,
    Tier,
    Key,
    /// Nothing was changed: somebody did something with the record.
    Act(ActKind),
}

impl ChangeKind {
    pub const ALL: [Self; 12] = [
        Self::Policy,
        Self::Override,
        Self::Block,
        Self::Tier,
        Self::Key,
        Self::Act(ActKind::Export),
        Self::Act(ActKind::Day),
        Self::Act(ActKind::SealRestart),
        Self::Act(ActKind::Archive),
        Self::Act(ActKind::Cut),
        Self::Act(ActKind::Erasure),
        Self::Act(ActKind::Read),
    ];

    /// Whether a list of all kinds has this kind. Acts of days and of reads are left out: there are
    /// too many.
    fn is_listed_unasked(self) -> bool {
        !matches!(self, Self::Act(ActKind::Day | ActKind::Read))
    }

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Override => "override",
            Self::Block => "block",
            Self::Tier => "tier",
            Self::Key => "key",
            Self::Act(kind) => kind.as_str(),
        }
    }
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastChange {
    Policy(Box<Changed<Policy>>),
    Override(Changed<(PolicyName, Override)>),
    Block(Changed<(PolicyName, Block)>),
    Tier(Changed<(PolicyName, SubjectTier)>),
    Key(Changed<Key>),
    Act(Act),
}

impl PastChange {
    /// The revision: the number of the change in the ledger's order of changes.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Policy(changed) => changed.revision,
            Self::Override(changed) => changed.revision,
            Self::Block(changed) => changed.revision,
            Self::Tier(changed) => changed.revision,
            Self::Key(changed) => changed.revision,
            Self::Act(act) => act.revision,
        }
    }
}

impl RecordTables {
    /// The changes of one kind, or of all kinds except days and reads, newest first, at most `limit`.
    #[boxed]
    pub async fn changes(
        &self,
        mut filter: ChangeFilter,
        kind: Option<ChangeKind>,
        limit: u32,
    ) -> Result<Vec<PastChange>, LedgerError> {
        // Every change up to this revision is visible already. No change can appear among them
        // later, so the lists of the kinds fit together.
        let tables = self.ledger.admin();
        let newest = tables.revision().await?;
        filter.below = filter.below.min(newest.saturating_add(1));
        let is_of_any = filter.policy.is_none() && filter.accounts.is_none();
        let is_wanted = |of: &ChangeKind| {
            let is_kind = kind.map_or(of.is_listed_unasked(), |kind| kind == *of);
            is_kind
                && match of {
                    ChangeKind::Policy => filter.accounts.is_none(),
                    ChangeKind::Override
                    | ChangeKind::Block
                    | ChangeKind::Tier
                    | ChangeKind::Act(ActKind::Read) => true,
                    ChangeKind::Key | ChangeKind::Act(_) => is_of_any,
                }
        };
        let mut changes = Vec::new();
        for kind in ChangeKind::ALL.into_iter().filter(is_wanted) {
            match kind {
                ChangeKind::Policy => {
                    let policies = tables.policy_history(&filter, limit).await?;
                    changes.extend(
                        policies
                            .into_iter()
                            .map(|changed| PastChange::Policy(Box::new(changed))),
                    );
                }
                ChangeKind::Override => {
                    let overrides = tables.history_of_subjects(&filter, limit).await?;
                    changes.extend(overrides.into_iter().map(PastChange::Override));
                }
                ChangeKind::Block => {
                    let blocks = tables.history_of_subjects(&filter, limit).await?;
                    changes.extend(blocks.into_iter().map(PastChange::Block));
                }
                ChangeKind::Tier => {
                    let tiers = tables.history_of_subjects(&filter, limit).await?;
                    changes.extend(tiers.into_iter().map(PastChange::Tier));
                }
                ChangeKind::Key => {
                    let keys = tables.key_history(&filter, limit).await?;
                    changes.extend(keys.into_iter().map(PastChange::Key));
                }
                ChangeKind::Act(kind) => {
                    let acts = self.acts(&filter, kind, limit).await?;
                    changes.extend(acts.into_iter().map(PastChange::Act));
                }
            }
        }
        changes.sort_unstable_by_key(|change| Reverse(change.revision()));
        changes.truncate(limit as usize);
        Ok(changes)
    }
}
