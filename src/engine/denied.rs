//! Denials by counters, which no retry of a grant may get.

use super::pending::{Outcome, Pending};
use crate::domain::account::Refusal;
use crate::ledger::{Ledger, Look};

/// Ends the claims that their counters deny. Those with a key only if the ledger holds no grant
/// with it, which no counter can tell: after its line there may have been room again. Returns
/// the claims about which the ledger did not answer.
pub async fn end_denied(ledger: &Ledger, denied: Vec<(Pending, Refusal)>) -> Vec<Pending> {
    let (keyed, others): (Vec<_>, Vec<_>) = denied
        .into_iter()
        .partition(|(claim, _)| claim.work.key.is_some());
    others
        .into_iter()
        .for_each(|(claim, refusal)| refuse(claim, refusal));
    if keyed.is_empty() {
        return Vec::new();
    }
    let look = Look {
        keys: keyed
            .iter()
            .filter_map(|(claim, _)| claim.work.key)
            .collect(),
        ..Look::default()
    };
    let Ok(seen) = ledger.look(&look).await else {
        return keyed.into_iter().map(|(claim, _)| claim).collect();
    };
    for (claim, refusal) in keyed {
        let mut entries = seen.entries.iter();
        match entries.find(|entry| entry.key == claim.work.key).cloned() {
            Some(entry) => {
                let outcome = claim.work.repeats(entry);
                claim.end(Ok(outcome));
            }
            None => refuse(claim, refusal),
        }
    }
    Vec::new()
}

fn refuse(claim: Pending, refusal: Refusal) {
    let policy = claim.work.policy.clone();
    claim.end(Ok(Outcome::Refused(policy, refusal)));
}
