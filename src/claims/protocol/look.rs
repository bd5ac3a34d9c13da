//! Reads the ledger for groups whose last lines are not known, many at once, and decides the
//! groups.

use std::pin::pin;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::account_view::{AccountView, Missing};
use super::group::Group;
use super::lane_worker::LaneWorker;
use super::learn::learn_facts;
use super::round::{LookRound, Seen};
use super::step::Steps;
use crate::instance::{Stage, nonce};
use domain::account_facts::AccountFacts;
use domain::policy::Policy;
use host::faults::reach;
use ledger::{LedgerError, Look};

/// The largest number of facts that are read at once for a group.
const READS_MOST: usize = 4;

impl LaneWorker {
    /// Reads the ledger for groups and decides them.
    ///
    /// # Errors
    /// The ledger could not be read. Some groups may be decided.
    pub async fn look(&self, groups: &mut [Group], steps: &mut Steps) -> Result<(), LedgerError> {
        // 1. One look for all groups.
        let mut look = Look::default();
        let seen_at = self.dispatch.present().now;
        groups
            .iter()
            .for_each(|group| group.look_for(&mut look, seen_at));
        let accounts = look.accounts.len();
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
        self.policies.freshen_for(&seen).await?;
        // 4. Each group is answered or decided.
        let seen = Seen {
            ledger: &seen,
            epoch,
            at: seen_at,
        };
        for group in groups {
            let present = self.dispatch.present();
            let facts = || AccountFacts::to_append(nonce());
            let Some(mut round) = LookRound::begin(group, &seen, present, facts, steps) else {
                continue;
            };
            while let Err(gaps) = round.decide(steps) {
                let now = round.now();
                let mut reads = Vec::new();
                for (view, missing, policy) in round.to_learn(gaps) {
                    reads.push(self.learn(view, missing, policy, now));
                }
                let reads = stream::iter(reads).buffer_unordered(READS_MOST);
                reads.try_collect::<()>().await?;
            }
        }
        Ok(())
    }

    /// Reads a fact of an account that a round asked for.
    async fn learn(
        &self,
        view: &mut AccountView,
        missing: Missing,
        policy: Arc<Policy>,
        now: DateTime<Utc>,
    ) -> Result<(), LedgerError> {
        let ledger = &self.ledger;
        let account = view.account;
        let last = view.after.as_ref();
        match missing {
            Missing::Ledger(unknown) => {
                let facts = &mut view.facts;
                learn_facts(facts, unknown, ledger, account, last, now).await
            }
            Missing::Policy => {
                let learned = self.policies.terms_after(&policy, account, last, now);
                learned.await.map(drop)
            }
        }
    }
}
