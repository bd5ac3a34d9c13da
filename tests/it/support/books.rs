//! A whole ledger, as perdiem reads it and as the judge reads it, beside the applications that use
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use perdiem::domain::claim::Subject;
use perdiem::domain::grant::{Entry, Grant};
use perdiem::domain::identity::AccountId;
use perdiem::domain::policy::PolicyName;
use perdiem::domain::reconciliation::LedgerPart;
use perdiem::ledger::{GrantFilter, GrantScope, Ledger, LedgerOptions};

use super::app::{Ground, eventually, instant};
use crate::judge::judge_ledger;

/// How many rows are read at a time.
const PAGE: u32 = 1000;

pub struct Books {
    pub ledger: Ledger,
    ground: Ground,
}

impl Books {
    pub async fn open(ground: &Ground) -> Self {
        let options = LedgerOptions {
            url: ground.database_url.clone(),
            claim_timeout: Duration::from_secs(30),
            query_timeout: Duration::from_secs(30),
        };
        let now = instant("2026-11-21T00:00:00Z");
        Self {
            ledger: Ledger::open(&options, now).await.expect("a ledger"),
            ground: ground.clone(),
        }
    }

    /// Every grant, by account and number.
    pub async fn accounts(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        let mut accounts: BTreeMap<AccountId, Vec<Grant>> = BTreeMap::new();
        let mut filter = GrantFilter::of(GrantScope::All, instant("2026-11-21T00:00:00Z"));
        loop {
            let page = self
                .ledger
                .record()
                .grants(&filter, PAGE)
                .await
                .expect("grants");
            for grant in page.grants {
                accounts.entry(grant.entry.account).or_default().push(grant);
            }
            let Some(below) = page.below else { break };
            filter.to = below;
        }
        for grants in accounts.values_mut() {
            grants.sort_by_key(|grant| grant.entry.line.number);
        }
        accounts
    }

    /// Every entry, by account and number.
    pub async fn entries(&self) -> BTreeMap<AccountId, Vec<Entry>> {
        let mut accounts: BTreeMap<AccountId, Vec<Entry>> = BTreeMap::new();
        let mut after = (AccountId::FIRST, 0);
        loop {
            let page = self
                .ledger
                .audit()
                .audited(after, LedgerPart::WHOLE.last, PAGE)
                .await
                .expect("entries");
            let Some(last) = page.last() else { break };
            after = (last.account, last.number);
            for audited in page {
                let entry = audited.entry.expect("an entry");
                accounts.entry(audited.account).or_default().push(entry);
            }
        }
        accounts
    }

    /// Asserts that the judge finds no breach in the ledger. Returns the grants.
    pub async fn audit(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        assert_eq!(judge_ledger(&self.ground.stores().await), []);
        self.accounts().await
    }

    /// Waits until the ledger has so many grants of a subject under `benefit`, and no grant is
    /// queued. A grant between the queue and the ledger can be seen twice for a moment.
    pub async fn has_recorded(&self, subject: &str, grants: usize) {
        let account = self.account_of(subject);
        eventually("every grant is recorded", || async {
            let accounts = self.accounts().await;
            accounts.get(&account).map_or(0, Vec::len) == grants
        })
        .await;
        self.counters_follow().await;
    }

    pub fn account_of(&self, subject: &str) -> AccountId {
        let policy = PolicyName::new("benefit").expect("a name");
        let subject = Subject::new(subject).expect("a subject");
        self.ledger.identity().account(&policy, &subject)
    }

    /// Waits until every counter has its account's last line, and no grant is queued. An account
    /// with room can have no counter.
    pub async fn counters_follow(&self) {
        eventually("every counter has its account's last line", || async {
            let stores = self.ground.stores().await;
            stores.drifted().is_empty() && stores.others.is_empty()
        })
        .await;
    }
}
