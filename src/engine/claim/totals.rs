//! The totals of an account, as the ledger has them.

use chrono::{DateTime, Utc};

use super::learn::once_known;
use crate::domain::drafting::Drafting;
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::limit::total::Total;
use crate::domain::policy::Policy;
use crate::ledger::{Ledger, LedgerError, Look};

/// The last line of an account; `None` for an account without entries.
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

/// The present totals, after the `last` line of the account and the lapses since.
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
