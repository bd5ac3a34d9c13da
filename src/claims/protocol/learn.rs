//! Reads from the ledger what a rule asks for: last lines, totals, and other facts.

use chrono::{DateTime, Utc};

use domain::account::{Unknown, instant_after, top_ups_at};
use domain::account_facts::AccountFacts;
use domain::correction::Holds;
use domain::drafting::Drafting;
use domain::grant::Line;
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::policy::Policy;
use domain::top_up::TopUps;
use ledger::{ClaimTables, LedgerError, Look};

/// The last line of an account; `None` for an account without entries.
///
/// # Errors
/// As [`ClaimTables::look`].
pub async fn last_line(
    ledger: &ClaimTables,
    account: AccountId,
) -> Result<Option<Line>, LedgerError> {
    let look = Look {
        accounts: vec![account],
        ..Look::default()
    };
    let mut seen = ledger.look(&look).await?;
    Ok(seen.lines.remove(&account))
}

/// What an account has at an instant.
pub struct AccountNow {
    pub totals: Vec<Total>,
    pub top_ups: TopUps,
}

/// The present totals and top-ups, after the `last` line of the account and the lapses since.
///
/// # Errors
/// As [`ClaimTables::past`].
pub async fn held(
    ledger: &ClaimTables,
    policy: &Policy,
    account: AccountId,
    last: Option<Line>,
    now: DateTime<Utc>,
) -> Result<AccountNow, LedgerError> {
    once_known(ledger, account, last.as_ref(), now, |known| {
        let draft = Drafting::begin(account, policy, last.clone(), known, now)?;
        let line = draft.line();
        Ok(AccountNow {
            totals: draft.totals()?,
            top_ups: top_ups_at(line, instant_after(line, now)),
        })
    })
    .await
}

/// As [`held`], the totals alone.
///
/// # Errors
/// As [`ClaimTables::past`].
pub async fn totals(
    ledger: &ClaimTables,
    policy: &Policy,
    account: AccountId,
    last: Option<Line>,
    now: DateTime<Utc>,
) -> Result<Vec<Total>, LedgerError> {
    let held = held(ledger, policy, account, last, now).await?;
    Ok(held.totals)
}

/// Returns what a rule says after it got everything that it asked for.
///
/// # Errors
/// As [`learn_facts`].
pub async fn once_known<T>(
    ledger: &ClaimTables,
    account: AccountId,
    last: Option<&Line>,
    now: DateTime<Utc>,
    rule: impl Fn(&AccountFacts) -> Result<T, Unknown> + Send + Sync,
) -> Result<T, LedgerError> {
    // Invariant: `now` does not change in the loop. At another instant the rule could ask for other
    // windows, again and again.
    let mut known = AccountFacts::default();
    loop {
        match rule(&known) {
            Ok(said) => return Ok(said),
            Err(unknown) => learn_facts(&mut known, unknown, ledger, account, last, now).await?,
        }
    }
}

/// The policy does not have the version of a line.
pub fn missing_version() -> LedgerError {
    LedgerError::Corrupt("a line under a version that its policy does not have".to_owned())
}

/// Learns what the rule asked for. The caller already knows the version of the policy.
///
/// # Errors
/// As [`ClaimTables::past`].
pub async fn learn_facts(
    known: &mut AccountFacts,
    unknown: Unknown,
    ledger: &ClaimTables,
    account: AccountId,
    last: Option<&Line>,
    now: DateTime<Utc>,
) -> Result<(), LedgerError> {
    match (unknown, last) {
        // 1. Totals of windows that the last line does not have, or grants of the past.
        (Unknown::Past(wanted), _) => {
            known
                .past
                .extend(ledger.past(account, last, &wanted).await?);
        }
        // 2. Open holds of an account that has entries.
        (Unknown::Holds, Some(line)) => {
            let at = instant_after(last, now);
            known.holds = Some(ledger.holds(account, line, at, known.lapses_most).await?);
        }
        // 3. An account without entries has no holds.
        (Unknown::Holds, None) => known.holds = Some(Holds::default()),
        // 4. The policy does not have the version that its own account names.
        (Unknown::Policy, _) => {
            return Err(missing_version());
        }
    }
    Ok(())
}
