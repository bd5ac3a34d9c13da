//! Cuts: which reads need entries that were dropped.

use chrono::{DateTime, TimeDelta, Utc};

use domain::identity::AccountId;
use domain::record::RecordPlace;
use ledger::{Ledger, LedgerError};

/// No entry gets its position earlier than this before the instant in which it counts: clocks of
/// instances never differ so much.
pub(super) const CLOCKS_DIFFER: TimeDelta = TimeDelta::days(1);

/// Checks that no entry is missing that comes after a place, counts from an instant on, and belongs
/// to some accounts, where these are given. Call it after the read: entries may be dropped between the
/// two.
///
/// # Errors
/// [`LedgerError::Archived`] if such entries may have been dropped.
pub async fn check_cut(
    ledger: &Ledger,
    after: RecordPlace,
    from: Option<DateTime<Utc>>,
    accounts: Option<&[AccountId]>,
) -> Result<(), LedgerError> {
    let Some(cut) = ledger.record().last_cut(RecordPlace::LAST).await? else {
        return Ok(());
    };
    let from = from.and_then(|from| from.checked_sub_signed(CLOCKS_DIFFER));
    if from.is_some_and(|from| from >= cut.text.before) {
        return Ok(());
    }
    // A mark may end after its last place.
    let end = ledger.record().mark_at(cut.text.last_position).await?;
    if end.is_some_and(|end| after >= end.place) {
        return Ok(());
    }
    let mut is_cut = accounts.is_none();
    for account in accounts.into_iter().flatten() {
        is_cut |= ledger.record().cut_at(*account).await?.is_some();
    }
    if is_cut { Err(cut.refusal()) } else { Ok(()) }
}
