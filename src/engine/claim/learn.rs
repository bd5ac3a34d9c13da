//! The ledger is read for what the rule asked for.

use chrono::{DateTime, Utc};

use crate::domain::account::{Unknown, instant_after};
use crate::domain::correction::Holds;
use crate::domain::drafting::Known;
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::ledger::{Ledger, LedgerError};

/// What a rule says once it knows all that it asks for.
///
/// # Errors
/// As [`Known::learn`].
pub async fn once_known<T>(
    ledger: &Ledger,
    account: AccountId,
    last: Option<&Line>,
    now: DateTime<Utc>,
    rule: impl Fn(&Known) -> Result<T, Unknown> + Send + Sync,
) -> Result<T, LedgerError> {
    let mut known = Known::default();
    loop {
        match rule(&known) {
            Ok(said) => return Ok(said),
            Err(unknown) => known.learn(unknown, ledger, account, last, now).await?,
        }
    }
}

impl Known {
    /// Learns what the rule asked for; the policy's version is known before.
    ///
    /// # Errors
    /// As [`Ledger::past`].
    pub async fn learn(
        &mut self,
        unknown: Unknown,
        ledger: &Ledger,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) -> Result<(), LedgerError> {
        match (unknown, last) {
            (Unknown::Past(wanted), _) => {
                self.past.extend(ledger.past(account, last, &wanted).await?);
            }
            (Unknown::Holds, Some(line)) => {
                let at = instant_after(last, now);
                self.holds = Some(ledger.holds(account, line, at, self.lapses_most).await?);
            }
            (Unknown::Holds, None) => self.holds = Some(Holds::default()),
            (Unknown::Policy, _) => {
                let corrupt = "a line under a version that its policy does not have";
                return Err(LedgerError::Corrupt(corrupt.to_owned()));
            }
        }
        Ok(())
    }
}
