//! An account's totals as its ledger tells them.

use chrono::{DateTime, Utc};

use crate::domain::account::{Sums, totals_at};
use crate::domain::grant::{Line, Total};
use crate::domain::identity::AccountId;
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

/// The totals at an instant after an account's `last` line.
///
/// # Errors
/// As [`Ledger::sums`].
pub async fn totals(
    ledger: &Ledger,
    policy: &Policy,
    account: AccountId,
    last: Option<&Line>,
    at: DateTime<Utc>,
) -> Result<Vec<Total>, LedgerError> {
    let mut sums = Sums::default();
    loop {
        match totals_at(policy, last, &sums, at) {
            Ok(totals) => return Ok(totals),
            Err(windows) => sums = ledger.sums(account, last, &windows).await?,
        }
    }
}
