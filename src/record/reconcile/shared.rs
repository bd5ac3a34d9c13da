//! Sums the entries of one window of a limit that all subjects share, and compares its usage.

use chrono::{DateTime, Utc};

use super::findings::Findings;
use crate::cut::{NeededEntries, check_cut};
use domain::local_days::LocalDays;
use domain::policy::Policy;
use domain::reconciliation::{DayFigure, Difference, DifferenceKind};
use domain::record::RecordPlace;
use domain::shared::{SharedKey, SharedTotal};
use ledger::{Ledger, LedgerError};

/// Compares the usage of a window, chosen by a random number, with the sum of its entries.
///
/// # Errors
/// [`LedgerError::Unavailable`].
pub async fn sum_shared_use(
    ledger: &Ledger,
    random: u64,
    now: DateTime<Utc>,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    // 1. The usage and the entries are of one moment.
    let mut snapshot = ledger.snapshot().await?;
    let Some((key, used)) = snapshot.shared_window(random).await? else {
        return Ok(());
    };
    // 2. Nobody changes the usage of a limit that its policy does not have any more.
    let versions = ledger.record().versions_to_follow(&[key.policy]).await?;
    let in_force = versions
        .iter()
        .rev()
        .find(|version| version.has_effect(now));
    let Some(total) = in_force.and_then(|policy| total_of(policy, &key)) else {
        return Ok(());
    };
    let begun = total.begun_at(&versions);
    let sum = snapshot.shared_sum(&key, total.ends_at).await?;
    // 3. Entries that may be dropped cannot be summed again.
    let needed = NeededEntries::OfPolicy(key.policy);
    match check_cut(ledger, RecordPlace::FIRST, Some(begun), needed).await {
        Ok(()) => {}
        Err(LedgerError::Archived(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    if sum != used {
        let told = |units: i64| Some(units.try_into().unwrap_or(0));
        findings.add(Difference {
            kind: DifferenceKind::WrongFigure,
            account: None,
            figure: Some(DayFigure {
                policy: key.policy,
                counted_on: LocalDays::of(&versions).date(begun),
                name: format!("total {}", key.per),
            }),
            found: told(used),
            expected: told(sum),
            windows: Vec::new(),
            is_healed: false,
        });
    }
    Ok(())
}

/// The shared limit of a policy in this window.
fn total_of(policy: &Policy, key: &SharedKey) -> Option<SharedTotal> {
    let mut totals = policy.shared_totals(|_| 0, key.start).into_iter();
    totals.find(|total| total.key == *key)
}
