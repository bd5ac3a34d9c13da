//! Reads the ledger for groups whose last lines are not known, many at once, and decides the
//! groups.

use std::pin::pin;

use super::group::{AccountView, Gap, Group, Missing};
use super::lane_worker::LaneWorker;
use super::round::{LookRound, Seen};
use super::way::Steps;
use crate::domain::drafting::AccountFacts;
use crate::engine::Engine;
use crate::engine::instance::Stage;
use crate::faults::reach;
use crate::ledger::{LedgerError, Look};

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
        // 4. Each group is answered or decided.
        let seen = Seen {
            ledger: &seen,
            epoch,
            at: seen_at,
        };
        for group in groups {
            let present = self.dispatch.present();
            let facts = || AccountFacts::to_append(Engine::nonce());
            let Some(mut round) = LookRound::begin(group, &seen, present, facts, steps) else {
                continue;
            };
            while let Err(gap) = round.decide(steps) {
                self.learn(gap, &mut round).await?;
            }
        }
        Ok(())
    }

    /// Reads a fact that a round asked for.
    async fn learn(&self, gap: Gap, round: &mut LookRound<'_>) -> Result<(), LedgerError> {
        let account = gap.account;
        let ledger = &self.ledger;
        let now = round.now();
        match gap.missing {
            Missing::Ledger(unknown) => {
                let AccountView { after, facts, .. } = round.view(account);
                let last = after.as_ref();
                facts.learn(unknown, ledger, account, last, now).await
            }
            Missing::Policy => {
                let last = round.view(account).after.clone();
                let policy = round.policy_of(account);
                let learned =
                    self.policies
                        .terms_after(policy, account, last.as_ref(), now, ledger);
                learned.await.map(drop)
            }
        }
    }
}
