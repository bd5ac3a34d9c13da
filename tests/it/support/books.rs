//! An auditor: reads a whole ledger, beside the applications that use it, and checks what
//! must be so at any time.

use std::collections::BTreeMap;
use std::time::Duration;

use perdiem::counter::{Ask, Counters};
use perdiem::domain::grant::{Grant, Line};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::ledger::{GrantFilter, GrantScope, Ledger, LedgerOptions};
use uuid::Uuid;

use super::app::{Ground, eventually, instant};

/// How many grants the auditor reads at a time.
const PAGE: u32 = 1000;

/// A ledger under audit.
pub struct Books {
    pub ledger: Ledger,
    redis_url: Option<String>,
}

impl Books {
    pub async fn open(ground: &Ground) -> Self {
        let options = LedgerOptions {
            url: ground.database_url.clone(),
            claim_timeout: Duration::from_secs(30),
        };
        let now = instant("2026-11-21T00:00:00Z");
        Self {
            ledger: Ledger::open(&options, now).await.expect("a ledger"),
            redis_url: ground.redis_url.clone(),
        }
    }

    /// Every grant, by account and number.
    pub async fn accounts(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        let mut accounts: BTreeMap<AccountId, Vec<Grant>> = BTreeMap::new();
        let mut filter = GrantFilter {
            scope: GrantScope::All,
            from: EntryId(Uuid::nil()),
            to: EntryId(Uuid::max()),
            provisional: None,
        };
        loop {
            let page = self.ledger.grants(&filter, PAGE).await.expect("grants");
            let Some(last) = page.last() else { break };
            filter.to = last.entry.id;
            for grant in page {
                accounts.entry(grant.entry.account).or_default().push(grant);
            }
        }
        for grants in accounts.values_mut() {
            grants.sort_by_key(|grant| grant.entry.line.number);
        }
        accounts
    }

    /// Checks every account, and returns them: the numbers go 1, 2, 3 …, time and the
    /// policy's version never go back, and each total is the sum of the grants in its window
    /// and within its `max`.
    pub async fn audit(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        let accounts = self.accounts().await;
        for grants in accounts.values() {
            check_account(grants);
        }
        accounts
    }

    /// Waits until every account's counter bears its last line, where there are counters.
    pub async fn counters_follow(&self) {
        let Some(url) = &self.redis_url else { return };
        let accounts = self.accounts().await;
        let counters = Counters::open(url, self.ledger.identity().id, Duration::from_secs(10))
            .await
            .expect("counters");
        let asks: Vec<Ask> = accounts
            .keys()
            .map(|account| Ask {
                account: *account,
                key: None,
                looks_at_queue: true,
            })
            .collect();
        let lines: Vec<Option<&Line>> = accounts
            .values()
            .map(|grants| grants.last().map(|grant| &grant.entry.line))
            .collect();
        eventually("every counter bears its account's last line", || async {
            let found = counters.ask(&asks).await.expect("counters");
            let is_drained = found.iter().all(|answer| !answer.grants_wait);
            let found: Vec<Option<&Line>> = found
                .iter()
                .map(|answer| answer.counter.as_ref().map(|counter| &counter.line))
                .collect();
            is_drained && found == lines
        })
        .await;
    }
}

fn check_account(grants: &[Grant]) {
    let mut before: Option<&Line> = None;
    for (index, grant) in grants.iter().enumerate() {
        let line = &grant.entry.line;
        assert_eq!(line.number, index as u64 + 1, "{grant:?}");
        if let Some(before) = before {
            assert!(line.at >= before.at, "time ran backwards: {grant:?}");
            assert!(
                line.policy_version >= before.policy_version,
                "an older version decided: {grant:?}"
            );
        }
        for total in &line.totals {
            assert!(total.window.contains(line.at), "{grant:?}");
            let so_far = grants[..=index].iter();
            let used: u64 = so_far
                .filter(|other| total.window.contains(other.entry.granted_at()))
                .map(|other| other.entry.units.get())
                .sum();
            assert_eq!(total.used, used, "not the sum of its grants: {grant:?}");
            let may_be_over = so_far_provisional(&grants[..=index]);
            assert!(
                total.used <= total.max || may_be_over,
                "over the limit: {grant:?}"
            );
        }
        before = Some(line);
    }
}

/// Whether Redis alone decided some of the grants: only such may go over.
fn so_far_provisional(grants: &[Grant]) -> bool {
    grants.iter().any(|grant| grant.entry.provisional.is_some())
}
