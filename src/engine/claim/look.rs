//! Reads the ledger for groups whose last lines are not known, many at once, and decides the
//! groups.

use std::pin::pin;

use chrono::{DateTime, Utc};

use super::group::{Basis, Group};
use super::lane_worker::LaneWorker;
use super::present::Present;
use super::way::{Missing, Steps};
use crate::domain::drafting::AccountFacts;
use crate::engine::Engine;
use crate::engine::instance::{Epoch, Stage};
use crate::faults::reach;
use crate::ledger::{LedgerError, LedgerView, Look};

impl LaneWorker {
    /// Reads the ledger for groups and decides them.
    ///
    /// # Errors
    /// The ledger could not be read. Some groups may be decided.
    pub async fn look(&self, groups: &mut [Group], steps: &mut Steps) -> Result<(), LedgerError> {
        // 1. One look for all groups.
        let mut look = Look::default();
        groups.iter().for_each(|group| group.look_for(&mut look));
        let accounts = look.accounts.len();
        let seen_at = self.dispatch.present().now;
        let looking = pin!(self.ledger.look(&look));
        let seen = self.metrics.timed(Stage::Look, accounts, looking).await?;
        reach("append.looked");
        // 2. The memory learns the fence of the ledger and the keys that exist.
        let memory = &self.dispatch.memory;
        let epoch = memory.show(seen.fence);
        for key in seen.entries.iter().filter_map(|entry| entry.key) {
            memory.learn_key(key);
        }
        // 3. The guard of the append detects new entries. Nothing detects new terms, so they are
        //    read now.
        self.policies.freshen_for(&seen, &self.ledger).await?;
        for group in groups {
            // 4. Each group is answered or decided. Invariant: a group sees one instant. At another
            //    instant the totals of other windows could be missing, again and again if the clock
            //    steps back over the edge of a window.
            let present = self.dispatch.present();
            group.after_look(&seen, &present, steps);
            if group.plan.is_none() {
                self.decide(group, &seen, (epoch, seen_at), &present, steps)
                    .await?;
            }
        }
        Ok(())
    }

    /// Decides a group on what the look showed. Reads more from the ledger if the rule asks for it.
    async fn decide(
        &self,
        group: &mut Group,
        seen: &LedgerView,
        (epoch, seen_at): (Epoch, DateTime<Utc>),
        present: &Present<'_>,
        steps: &mut Steps,
    ) -> Result<(), LedgerError> {
        let last = seen.lines.get(&group.account);
        // Not by the account: while an erasure gives it another id, its entries are under both.
        let naming = seen.entries.iter();
        let naming = naming.filter(|entry| entry.kind.of().is_some());
        let mut known = AccountFacts {
            followers: naming.cloned().collect(),
            ..AccountFacts::to_append(Engine::nonce())
        };
        let as_of = present.terms.as_of();
        loop {
            let basis = Basis {
                after: last.cloned(),
                epoch,
                seen_at,
                as_of,
            };
            let account = group.account;
            let ledger = &self.ledger;
            match group.decide_on_look(basis, &known, present, steps) {
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
