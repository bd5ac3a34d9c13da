//! Denials by counters, which no retry of a grant may get.

use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::Instant;

use super::batch::in_batches;
use super::in_flight::{InFlight, Outcome, send};
use crate::domain::account::Refusal;
use crate::engine::instance::is_fresh;
use crate::ledger::{Ledger, Look};

const LANES: u32 = 2;
const BATCH_MOST: usize = 256;

/// A claim that its counter denies.
pub struct Denied {
    /// It.
    pub claim: InFlight,
    /// How.
    pub refusal: Refusal,
    /// Every change of a policy that was made before this instant was known to it.
    pub as_of: Instant,
}

impl Denied {
    /// Ends the claim.
    pub fn end(self) {
        let policy = self.claim.work.policy.clone();
        self.claim.end(Ok(Outcome::Refused(policy, self.refusal)));
    }
}

impl From<Denied> for InFlight {
    fn from(denied: Denied) -> Self {
        denied.claim
    }
}

/// Takes denied claims off their queue and ends them; sends those on about which the ledger did
/// not answer. A queue of their own makes wide batches of them, and holds no other claim up.
pub async fn end_all_denied(ledger: Ledger, append: Sender<InFlight>, queue: Receiver<Denied>) {
    in_batches(queue, LANES, BATCH_MOST, move |denied| {
        let (ledger, append) = (ledger.clone(), append.clone());
        async move {
            let unsure = end_denied(&ledger, denied).await;
            unsure.into_iter().for_each(|claim| send(&append, claim));
        }
    })
    .await;
}

/// Ends the claims that their counters deny. Those with a key only if the ledger holds no grant
/// with it, which no counter can tell: after its line there may have been room again. Returns
/// the claims about which the ledger did not answer, or so late that their terms are not fresh any
/// more.
pub async fn end_denied(ledger: &Ledger, denied: Vec<Denied>) -> Vec<InFlight> {
    let (keyed, others): (Vec<_>, Vec<_>) = denied
        .into_iter()
        .partition(|denied| denied.claim.work.key.is_some());
    others.into_iter().for_each(Denied::end);
    if keyed.is_empty() {
        return Vec::new();
    }
    let keys = keyed.iter().filter_map(|denied| denied.claim.work.key);
    let look = Look {
        keys: keys.collect(),
        ..Look::default()
    };
    let Ok(seen) = ledger.look(&look).await else {
        return keyed.into_iter().map(InFlight::from).collect();
    };
    let mut unsure = Vec::new();
    for denied in keyed {
        let mut entries = seen.entries.iter();
        match entries.find(|entry| entry.key == denied.claim.work.key) {
            Some(entry) => {
                let outcome = Outcome::of_key(&denied.claim.work, entry.clone());
                denied.claim.end(Ok(outcome));
            }
            None if is_fresh(denied.as_of) => denied.end(),
            None => unsure.push(denied.claim),
        }
    }
    unsure
}
