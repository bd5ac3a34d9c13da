//! Cuts: which reads need entries that were dropped.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};

use domain::identity::AccountId;
use domain::policy::PolicyId;
use domain::record::RecordPlace;
use ledger::{Cut, CutText, Ledger, LedgerError};

/// No entry gets its position earlier than this before the instant in which it counts: clocks of
/// instances never differ so much.
pub(super) const CLOCKS_DIFFER: TimeDelta = TimeDelta::days(1);

/// Whose entries a read needs.
#[derive(Debug, Clone, Copy)]
pub enum NeededEntries<'a> {
    All,
    OfPolicy(PolicyId),
    OfAccounts(&'a [AccountId]),
}

/// Checks that no entry is missing that comes after a place, counts from an instant on, and is needed. Call it after
/// the read: entries may be dropped between the two.
///
/// # Errors
/// [`LedgerError::Archived`] if such entries may have been dropped.
pub async fn check_cut(
    ledger: &Ledger,
    after: RecordPlace,
    from: Option<DateTime<Utc>>,
    needed: NeededEntries<'_>,
) -> Result<(), LedgerError> {
    let Some(Cut { text, .. }) = last_cut_of(ledger, needed).await? else {
        return Ok(());
    };
    let from = from.and_then(|from| from.checked_sub_signed(CLOCKS_DIFFER));
    if from.is_some_and(|from| from >= text.before) {
        return Ok(());
    }
    // A mark may end after its last place.
    let end = ledger.record().mark_at(text.last_position).await?;
    if end.is_some_and(|end| after >= end.place) {
        return Ok(());
    }
    if let NeededEntries::OfAccounts(accounts) = needed {
        let mut is_cut = false;
        for account in accounts {
            is_cut |= ledger.record().cut_at(*account).await?.is_some();
        }
        if !is_cut {
            return Ok(());
        }
    }
    Err(text.refusal())
}

/// The newest cut that may have dropped needed entries.
async fn last_cut_of(
    ledger: &Ledger,
    needed: NeededEntries<'_>,
) -> Result<Option<Cut>, LedgerError> {
    for cut in ledger.record().cuts().await? {
        let NeededEntries::OfPolicy(policy) = needed else {
            return Ok(Some(cut));
        };
        let record = ledger.record();
        let versions = record.older_versions(cut.revision, Some(policy)).await?;
        if !cut.text.spares(&versions) {
            return Ok(Some(cut));
        }
    }
    Ok(None)
}

/// The policies of which a cut drops nothing. The cut comes after the changes up to a revision.
pub async fn spared_policies(
    ledger: &Ledger,
    text: &CutText,
    known_to: u64,
) -> Result<HashSet<PolicyId>, LedgerError> {
    let versions = ledger.record().older_versions(known_to + 1, None).await?;
    let policies = versions.chunk_by(|one, next| one.id == next.id);
    let spared = policies.filter(|versions| text.spares(versions));
    Ok(spared.map(|versions| versions[0].id).collect())
}
