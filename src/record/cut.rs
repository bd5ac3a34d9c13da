//! Cuts: what they drop, and which reads need entries that were dropped.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, Days, TimeDelta, Utc};

use domain::identity::AccountId;
use domain::policy::PolicyId;
use domain::record::RecordPlace;
use ledger::{Cut, CutText, DropScope, Ledger, LedgerError};

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
    let cuts = ledger.record().cuts().await?;
    let Some(Cut { text, .. }) = cuts.first() else {
        return Ok(());
    };
    // 1. Nothing may be missing behind the newest cut.
    let from = from.and_then(|from| from.checked_sub_signed(CLOCKS_DIFFER));
    let is_behind = async |before: DateTime<Utc>, last: u64| {
        if last == 0 || from.is_some_and(|from| from >= before) {
            return Ok::<_, LedgerError>(true);
        }
        // A mark may end after its last place.
        let end = ledger.record().mark_at(last).await?;
        Ok(end.is_some_and(|end| after >= end.place))
    };
    if is_behind(text.before, text.last_position).await? {
        return Ok(());
    }
    // 2. A policy or an account may have lost less, or nothing.
    match needed {
        NeededEntries::All => Err(refusal(needed, text.before, text.last_position)),
        NeededEntries::OfPolicy(policy) => {
            let Some(before) = last_end(ledger, &cuts, policy).await? else {
                return Ok(());
            };
            let last = ledger.record().mark_before(before).await?.position;
            if is_behind(before, last).await? {
                return Ok(());
            }
            Err(refusal(needed, before, last))
        }
        NeededEntries::OfAccounts(accounts) => {
            for account in accounts {
                if ledger.record().cut_at(*account).await?.is_some() {
                    return Err(refusal(needed, text.before, text.last_position));
                }
            }
            Ok(())
        }
    }
}

/// The error for a request that needs entries which may be dropped: those that were recorded before an instant, up to
/// a position.
fn refusal(needed: NeededEntries<'_>, before: DateTime<Utc>, last: u64) -> LedgerError {
    let before = before.date_naive();
    // Two days later: true in every zone, and for clocks that differ.
    let later = before + Days::new(2);
    let from = match needed {
        NeededEntries::OfPolicy(_) => later.to_string(),
        // A local day needs a policy.
        NeededEntries::All | NeededEntries::OfAccounts(_) => format!("{later}T00:00:00Z"),
    };
    LedgerError::Archived(format!(
        "this needs entries that were archived and dropped: those up to position {last}, \
         recorded before {before}. Look for them in the archive, or ask for later entries, \
         for example with after={last} or from={from}"
    ))
}

/// The latest end that a cut had for a policy; `None` if no cut is younger than the policy.
async fn last_end(
    ledger: &Ledger,
    cuts: &[Cut],
    policy: PolicyId,
) -> Result<Option<DateTime<Utc>>, LedgerError> {
    let mut last = None;
    for cut in cuts {
        // No end is after the date of its cut.
        if last >= Some(cut.text.before) {
            continue;
        }
        let record = ledger.record();
        let versions = record.older_versions(cut.revision, Some(policy)).await?;
        if !versions.is_empty() {
            last = last.max(Some(cut.text.end_of(&versions)));
        }
    }
    Ok(last)
}

/// What a cut drops, if it comes after the changes up to a revision: one scope for each end.
pub async fn drop_scopes(
    ledger: &Ledger,
    text: &CutText,
    known_to: u64,
) -> Result<Vec<DropScope>, LedgerError> {
    let versions = ledger.record().older_versions(known_to + 1, None).await?;
    let mut ends: BTreeMap<DateTime<Utc>, HashSet<PolicyId>> = BTreeMap::new();
    for versions in versions.chunk_by(|one, next| one.id == next.id) {
        let policies = ends.entry(text.end_of(versions)).or_default();
        policies.insert(versions[0].id);
    }
    let mut scopes = Vec::new();
    for (before, policies) in ends {
        let end = ledger.record().mark_before(before).await?;
        scopes.push(DropScope {
            before,
            end,
            policies,
        });
    }
    Ok(scopes)
}
