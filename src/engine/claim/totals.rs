//! An account's totals as its ledger tells them.

use chrono::{DateTime, Utc};

use super::learn::once_known;
use crate::domain::drafting::Drafting;
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::limit::total::Total;
use crate::domain::policy::Policy;
use crate::ledger::{Ledger, LedgerError, Look};

/// An account's last line; `None` for one without entries.
///
/// # Errors
/// As [`Ledger::look`].
pub async fn last_line(ledger: &Ledger, account: AccountId) -> Result<Option<Line>, LedgerError> {
    let look = Look {
        accounts: vec![account],
        ..Look::default()
    };
    let mut seen = ledger.look(&look).await?;
    Ok(seen.lines.remove(&account))
}

/// The totals now, after an account's `last` line and the lapses since.
///
/// # Errors
/// As [`Ledger::past`].
pub async fn totals(
    ledger: &Ledger,
    policy: &Policy,
    account: AccountId,
    last: Option<Line>,
    now: DateTime<Utc>,
) -> Result<Vec<Total>, LedgerError> {
    once_known(ledger, account, last.as_ref(), now, |known| {
        Drafting::begin(account, policy, last.clone(), known, now)?.totals()
    })
    .await
}
