//! An auditor: reads a whole ledger, beside the applications that use it, and checks what
//! must be so at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use perdiem::counter::{Ask, Counters, RedisAccess};
use perdiem::domain::claim::Subject;
use perdiem::domain::grant::{Direction, Entry, EntryKind, Grant, Line};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::policy::PolicyName;
use perdiem::ledger::{GrantFilter, GrantScope, Ledger, LedgerOptions};

use super::app::{Ground, eventually, instant};
use super::servers::redis_at;

/// How many grants the auditor reads at a time.
const PAGE: u32 = 1000;

/// A ledger under audit.
pub struct Books {
    pub ledger: Ledger,
    redis_url: Option<String>,
}

/// Loses an account's counter, if it has one, and nothing of what waits.
pub async fn forget_counter(url: &str, account: AccountId) {
    let mut connection = redis_at(url).await;
    let mut names = redis::cmd("KEYS");
    let names = names.arg(format!("perdiem:*:{}", account.0.simple()));
    let names: Vec<String> = names.query_async(&mut connection).await.expect("names");
    for name in names {
        let mut forget = redis::cmd("DEL");
        let forgotten = forget.arg(name).exec_async(&mut connection).await;
        forgotten.expect("it is forgotten");
    }
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
            redis_url: ground.redis_url.clone(),
        }
    }

    /// Every grant, by account and number.
    pub async fn accounts(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        let mut accounts: BTreeMap<AccountId, Vec<Grant>> = BTreeMap::new();
        let mut filter = GrantFilter::of(GrantScope::All, instant("2026-11-21T00:00:00Z"));
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

    /// Every entry, by account and number.
    pub async fn entries(&self) -> BTreeMap<AccountId, Vec<Entry>> {
        let mut accounts: BTreeMap<AccountId, Vec<Entry>> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = self.ledger.audited(after, PAGE).await.expect("entries");
            let Some(last) = page.last() else { break };
            after = Some((last.account, last.number));
            for audited in page {
                let entry = audited.entry.expect("an entry");
                accounts.entry(audited.account).or_default().push(entry);
            }
        }
        accounts
    }

    /// Checks every account, and returns the grants: the numbers go 1, 2, 3 …, time and the
    /// policy's version never go back, each total is the sum of the entries in its window, no
    /// grant went over, and each was confirmed and given back at most once.
    pub async fn audit(&self) -> BTreeMap<AccountId, Vec<Grant>> {
        for entries in self.entries().await.values() {
            check_account(entries);
        }
        self.accounts().await
    }

    /// Waits until so many grants of a subject under `benefit` stand in the ledger, and no more
    /// wait: on their way there they may be seen twice for a moment.
    pub async fn has_recorded(&self, subject: &str, grants: usize) {
        let account = self.account_of(subject);
        eventually("every grant is recorded", || async {
            let accounts = self.accounts().await;
            accounts.get(&account).map_or(0, Vec::len) == grants
        })
        .await;
        self.counters_follow().await;
    }

    /// Loses a subject's counter under `benefit`, and nothing of what waits.
    pub async fn forget_counter(&self, subject: &str) {
        let url = self.redis_url.as_deref().expect("counters");
        forget_counter(url, self.account_of(subject)).await;
    }

    pub fn account_of(&self, subject: &str) -> AccountId {
        let policy = PolicyName::new("benefit").expect("a name");
        let subject = Subject::new(subject).expect("a subject");
        self.ledger.identity().account(&policy, &subject)
    }

    /// Waits until every counter has its account's last line. An account with room may have none.
    pub async fn counters_follow(&self) {
        let Some(url) = &self.redis_url else { return };
        let counters = Counters::open(
            url,
            &RedisAccess::default(),
            self.ledger.identity().id,
            Duration::from_secs(10),
        )
        .await
        .expect("counters");
        eventually("every counter bears its account's last line", || async {
            let accounts = self.entries().await;
            let asks: Vec<Ask> = accounts
                .keys()
                .map(|account| Ask {
                    account: *account,
                    looks_at_queue: true,
                })
                .collect();
            let lines: Vec<Option<&Line>> = accounts
                .values()
                .map(|entries| entries.last().map(|entry| &entry.line))
                .collect();
            let found = counters.ask(&asks).await.expect("counters");
            let is_drained = found.iter().all(|answer| !answer.grants_wait);
            let follows = found.iter().zip(lines).all(|(answer, line)| {
                let counter = answer.counter.as_ref();
                counter.is_none_or(|counter| Some(&counter.line) == line)
            });
            is_drained && follows
        })
        .await;
    }
}

fn check_account(entries: &[Entry]) {
    let mut before: Option<&Line> = None;
    let mut holds = Holds::default();
    for (index, entry) in entries.iter().enumerate() {
        let line = &entry.line;
        assert_eq!(line.number, index as u64 + 1, "{entry:?}");
        if let Some(before) = before {
            assert!(line.at >= before.at, "time ran backwards: {entry:?}");
            assert!(
                line.policy_version >= before.policy_version,
                "an older version decided: {entry:?}"
            );
        }
        holds.follow(entry);
        // What Redis or an observing policy granted may go over, and what is no claim.
        let must_fit = matches!(entry.kind, EntryKind::Grant { .. })
            && entry.provisional.is_none()
            && !entry.would_deny;
        for total in line.totals.iter() {
            assert!(total.window.contains(line.at), "{entry:?}");
            let inside = entries[..=index]
                .iter()
                .filter(|other| total.window.contains(other.counted_at()));
            let used = inside.fold(0, |used: i128, other| (used + added(other)).max(0));
            assert_eq!(
                i128::from(total.used),
                used,
                "not the sum of its entries: {entry:?}"
            );
            assert!(
                total.used <= total.max || !must_fit,
                "over the limit: {entry:?}"
            );
        }
        before = Some(line);
    }
}

/// What became of an account's grants, entry after entry.
#[derive(Default)]
struct Holds<'a> {
    grants: BTreeMap<EntryId, &'a Entry>,
    closed: BTreeSet<EntryId>,
    /// When each hold lapses that is neither confirmed nor given back.
    open: BTreeMap<EntryId, DateTime<Utc>>,
}

impl<'a> Holds<'a> {
    /// Checks that the next entry may follow: each grant is confirmed and given back at most once,
    /// and every hold that was not confirmed in time lapses before the account's next decision.
    fn follow(&mut self, entry: &'a Entry) {
        let at = entry.line.at;
        match entry.kind {
            EntryKind::Grant { held_until } => {
                self.grants.insert(entry.id, entry);
                self.open
                    .extend(held_until.map(|held_until| (entry.id, held_until)));
            }
            EntryKind::Confirmation { of } => {
                let until = self.open.remove(&of);
                assert!(until.is_some_and(|until| at < until), "too late: {entry:?}");
            }
            EntryKind::Reversal { of } => {
                self.open.remove(&of);
                self.close(of, entry);
            }
            EntryKind::Lapse { of } => {
                let until = self.open.remove(&of);
                assert!(until.is_some_and(|until| until <= at), "{entry:?}");
                self.close(of, entry);
            }
            EntryKind::Adjustment(_) => {}
        }
        let first = self.open.values().min().copied();
        let told = entry.line.lapses_at;
        assert!(
            first.is_none_or(|first| told.is_some_and(|told| told <= first)),
            "a hold lapses before {told:?}: {entry:?}"
        );
        let is_decided = !matches!(entry.kind, EntryKind::Lapse { .. });
        if is_decided && entry.provisional.is_none() {
            assert!(
                first.is_none_or(|first| at < first),
                "not lapsed: {entry:?}"
            );
        }
    }

    fn close(&mut self, of: EntryId, entry: &Entry) {
        let grant = self.grants.get(&of).expect("a grant of the account");
        assert_eq!(grant.units, entry.units, "{entry:?}");
        assert!(self.closed.insert(of), "given back twice: {entry:?}");
    }
}

/// What an entry adds to what is used, by the plain definition.
fn added(entry: &Entry) -> i128 {
    let units = i128::from(entry.units.get());
    match entry.kind {
        EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => units,
        EntryKind::Confirmation { .. } => 0,
        EntryKind::Reversal { .. }
        | EntryKind::Lapse { .. }
        | EntryKind::Adjustment(Direction::Down) => -units,
    }
}
