//! Groups whose last lines are not known are looked up in the ledger, many at once, and decided.

use std::pin::pin;

use chrono::{DateTime, Utc};

use super::group::{Basis, Group};
use super::lanes::Lanes;
use super::present::Present;
use super::way::{Missing, Steps};
use crate::domain::drafting::Known;
use crate::engine::Engine;
use crate::engine::instance::{Epoch, Stage};
use crate::faults::reach;
use crate::ledger::{LedgerError, LedgerView, Look};

impl Lanes {
    /// Looks at the ledger for groups and decides them.
    ///
    /// # Errors
    /// Why the ledger could not be read; some groups may have been decided.
    pub async fn look(&self, groups: &mut [Group], steps: &mut Steps) -> Result<(), LedgerError> {
        let mut look = Look::default();
        groups.iter().for_each(|group| group.look_for(&mut look));
        let accounts = look.accounts.len();
        let seen_at = self.dispatch.present().now;
        let looking = pin!(self.ledger.look(&look));
        let seen = self.metrics.timed(Stage::Look, accounts, looking).await?;
        reach("append.looked");
        let memory = &self.dispatch.memory;
        let epoch = memory.show(seen.fence);
        for key in seen.entries.iter().filter_map(|entry| entry.key) {
            memory.learn_key(key);
        }
        // The guard tells whether what was seen still holds; nothing tells that of the terms.
        self.policies.freshen_for(&seen, &self.ledger).await?;
        for group in groups {
            // One instant for all of it: at another one other windows' sums might be missing, and
            // so on for ever where the clock steps back over a window's edge.
            let present = self.dispatch.present();
            group.looked(&seen, &present, steps);
            if group.plan.is_none() {
                self.decide(group, &seen, (epoch, seen_at), &present, steps)
                    .await?;
            }
        }
        Ok(())
    }

    /// Decides a group on what was seen, and on what else must be learned.
    async fn decide(
        &self,
        group: &mut Group,
        seen: &LedgerView,
        (epoch, seen_at): (Epoch, DateTime<Utc>),
        present: &Present<'_>,
        steps: &mut Steps,
    ) -> Result<(), LedgerError> {
        let last = seen.lines.get(&group.account);
        let of_account = seen.entries.iter();
        let of_account = of_account.filter(|entry| entry.account == group.account);
        let mut known = Known {
            followers: of_account.cloned().collect(),
            ..Known::to_append(Engine::nonce())
        };
        let as_of = present.terms.as_of();
        loop {
            let basis = Basis {
                after: last.cloned(),
                epoch,
                seen_at,
                as_of,
            };
            let (account, ledger) = (group.account, &self.ledger);
            match group.decide_looked(basis, &known, present, steps) {
                Ok(()) => return Ok(()),
                Err(Missing::Ledger(unknown)) => {
                    known
                        .learn(unknown, ledger, account, last, present.now)
                        .await?;
                }
                Err(Missing::Policy) => {
                    let policy = &group.claims[0].work.policy;
                    let policies = &self.policies;
                    let learned = policies.terms_after(policy, account, last, present.now, ledger);
                    learned.await?;
                }
            }
        }
    }
}
