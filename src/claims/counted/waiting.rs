//! Claims that come after the grants of their accounts in the queue of Redis.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::count::Counting;
use super::decision::CountedClaim;
use crate::protocol::{InFlight, Step, Undecided};
use counter::Ask;
use domain::identity::AccountId;

/// The pause of a claim before it checks again whether older grants still wait.
const DRAIN_PAUSE: Duration = Duration::from_millis(10);

impl Counting {
    /// Lets claims go back after a short pause: their counters are asked again.
    pub(super) fn go_back_later(&self, claims: Vec<InFlight>) {
        let waiting = self.hurry(claims, |claim| claim);
        if waiting.is_empty() {
            return;
        }
        let dispatch = self.dispatch.clone();
        tokio::spawn(async move {
            sleep(DRAIN_PAUSE).await;
            for claim in waiting {
                dispatch.go(claim, Step::Ask);
            }
        });
    }

    /// Lets Redis decide claims again after a short pause.
    pub(super) fn decide_later(&self, claims: Vec<CountedClaim>) {
        let waiting = self.hurry(claims, |counted| &counted.claim);
        if waiting.is_empty() {
            return;
        }
        let queue = self.again.clone();
        tokio::spawn(async move {
            sleep(DRAIN_PAUSE).await;
            for counted in waiting {
                // The queue has room for every claim in progress. It is closed only when the instance
                // stops.
                if let Err(error) = queue.try_send(counted) {
                    error.into_inner().claim.end(Err(Undecided::Ending));
                }
            }
        });
    }

    /// Hurries the drain of the accounts of claims. Ends the claims that no client waits for, and
    /// returns the others.
    fn hurry<T: Into<InFlight>>(
        &self,
        mut claims: Vec<T>,
        claim: impl Fn(&T) -> &InFlight,
    ) -> Vec<T> {
        let at = Instant::now();
        let late = claims.extract_if(.., |it| claim(it).deadline <= at);
        late.for_each(|it| it.into().end(Err(Undecided::Deadline)));
        let accounts = claims.iter().map(|it| claim(it).work.account);
        accounts.for_each(|account| self.drain.hurry(account));
        claims
    }

    /// Waits until the ledger has the grants of the claims' accounts that wait in Redis. If Redis does
    /// not answer, such a grant may wait unseen.
    pub async fn wait_for_recorded(&self, claims: &mut [InFlight]) {
        let terms = &self.policies.terms;
        let may_be_counted = |claim: &&mut InFlight| terms.may_be_counted(claim.work.policy.id);
        let mut counted: Vec<_> = claims.iter_mut().filter(may_be_counted).collect();
        let accounts = counted.iter().map(|claim| claim.work.account);
        let ask = |account: AccountId| Ask {
            account,
            looks_at_queue: true,
        };
        let accounts: HashSet<AccountId> = accounts.collect();
        let asks: Vec<Ask> = accounts.into_iter().map(ask).collect();
        while !asks.is_empty() {
            let Ok(answers) = self.counters.ask(&asks).await else {
                let claims = counted.iter_mut();
                return claims.for_each(|claim| claim.grants_may_wait = true);
            };
            let answered = asks.iter().zip(&answers);
            let waiting = answered.filter(|(_, answer)| answer.grants_wait);
            let waiting: Vec<AccountId> = waiting.map(|(ask, _)| ask.account).collect();
            if waiting.is_empty() {
                return;
            }
            waiting.iter().for_each(|it| self.drain.hurry(*it));
            sleep(DRAIN_PAUSE).await;
        }
    }
}
