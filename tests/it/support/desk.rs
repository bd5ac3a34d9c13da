//! A ledger with a policy, and drafts to append to it.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::account::{Verdict, decide};
use perdiem::domain::claim::{IdempotencyKey, Metadata, Subject, Units};
use perdiem::domain::grant::{Entry, EntryKind, Line};
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::limit::draft::LimitDraft;
use perdiem::domain::orphans::Orphans;
use perdiem::domain::past::Past;
use perdiem::domain::policy::{Policy, PolicyName, Rule, RuleDraft};
use perdiem::domain::warning::Levels;
use perdiem::ledger::{
    Change, Draft, Edited, Ledger, LedgerError, LedgerView, Look, PolicyTerms, Standing,
};
use uuid::Uuid;

use super::app::{Ground, NOON, Stack, instant};
use super::books::Books;

/// Turns each scenario that does not use Redis into one test for each store.
macro_rules! on_every_store {
    ($($scenario:ident),* $(,)?) => {
        $(
            $crate::support::app::tests_on!($scenario: sqlite Sqlite, postgres Postgres);
        )*
    };
}
pub(crate) use on_every_store;

/// A ledger with a policy `benefit`: 1,000 a day and 100,000 a month, in GMT+8.
pub struct Desk {
    pub ground: Ground,
    pub ledger: Ledger,
    pub policy: Policy,
    /// The instant at which drafts are decided.
    pub now: DateTime<Utc>,
}

impl Desk {
    pub async fn open(stack: Stack) -> Self {
        Self::on(Ground::new(stack)).await
    }

    pub async fn on(ground: Ground) -> Self {
        let ledger = another_ledger(&ground).await;
        let rule = rule("GMT+8", &[(1000, "day"), (100_000, "month")]);
        let policy = put(&ledger, "benefit", rule).await;
        Self {
            ground,
            ledger,
            policy,
            now: instant(NOON),
        }
    }

    pub fn account(&self, subject: &str) -> AccountId {
        let subject = Subject::existing(subject).expect("a subject");
        self.ledger.identity().account(&self.policy.name, &subject)
    }

    pub fn key(&self, key: &str) -> KeyId {
        let key = IdempotencyKey::parse(key).expect("a key");
        self.ledger.identity().key(&self.policy.name, &key)
    }

    /// A draft of some grants of one unit after a line, decided now.
    pub fn draft(&self, subject: &str, after: Option<&Line>, grants: usize) -> Draft {
        let grants: Vec<(u64, Option<&str>)> = vec![(1, None); grants];
        self.draft_of(subject, after, &grants)
    }

    /// A draft of grants with units and optional keys.
    pub fn draft_of(
        &self,
        subject: &str,
        after: Option<&Line>,
        grants: &[(u64, Option<&str>)],
    ) -> Draft {
        let account = self.account(subject);
        let mut last = after.cloned();
        let mut entries = Vec::new();
        for (units, key) in grants {
            let units = Units::new((*units).into()).expect("units");
            let verdict = decide(
                &self.policy,
                units,
                last.as_ref(),
                &Past::default(),
                self.now,
            );
            let Ok(Verdict::Granted(line)) = verdict else {
                panic!("not granted: {verdict:?}");
            };
            last = Some(line.clone());
            entries.push(Entry {
                account,
                id: EntryId::new(line.at, line.number, Uuid::new_v4().as_u64_pair().1),
                kind: EntryKind::Grant { held_until: None },
                units,
                key: key.map(|key| self.key(key)),
                metadata: key.map(|key| Metadata::from_stored(format!(r#"{{"key":"{key}"}}"#))),
                provisional: None,
                would_deny: false,
                crossed: Levels::default(),
                bundle: None,
                is_erased: false,
                claimed_by: None,
                note: None,
                line,
            });
        }
        Draft {
            shared: Vec::new(),
            account,
            component: account,
            policy: self.policy.id,
            subject: Some(Subject::existing(subject).expect("a subject")),
            after: after.cloned(),
            entries,
        }
    }

    /// Appends drafts as the ledger does, with its answer.
    pub async fn try_append(&self, drafts: &[Draft]) -> Result<HashSet<AccountId>, LedgerError> {
        self.ledger.claims().append(&borrowed(drafts)).await
    }

    /// Appends a draft that must be accepted. Returns its last line.
    pub async fn append(&self, draft: Draft) -> Line {
        let appended = self.ledger.claims().append(&[&draft]).await;
        let appended = appended.expect("the draft is appended");
        assert!(appended.contains(&draft.account), "another was there first");
        let last = draft.entries.last().expect("at least one entry");
        last.line.clone()
    }

    /// Appends a draft that must be refused.
    pub async fn refuses(&self, draft: Draft) {
        let appended = self
            .ledger
            .claims()
            .append(&[&draft])
            .await
            .expect("an answer");
        assert!(appended.is_empty());
    }

    pub async fn last(&self, subject: &str) -> Option<Line> {
        let account = self.account(subject);
        self.look(&[subject], &[]).await.lines.remove(&account)
    }

    pub async fn look(&self, subjects: &[&str], keys: &[&str]) -> LedgerView {
        let look = Look {
            accounts: subjects.iter().map(|text| self.account(text)).collect(),
            keys: keys.iter().map(|text| self.key(text)).collect(),
            ..Look::default()
        };
        self.ledger.claims().look(&look).await.expect("a look")
    }

    /// Audits the whole ledger. Returns the number of the account's entries.
    pub async fn entries(&self, subject: &str) -> usize {
        let books = Books::open(&self.ground).await;
        let accounts = books.audit().await;
        accounts.get(&self.account(subject)).map_or(0, Vec::len)
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: TimeDelta) {
        self.now += by;
    }
}

/// Drafts as the ledger takes them.
pub fn borrowed(drafts: &[Draft]) -> Vec<&Draft> {
    drafts.iter().collect()
}

/// Another handle of a ledger, with its own connections.
pub async fn another_ledger(ground: &Ground) -> Ledger {
    Books::open(ground).await.ledger
}

pub fn rule(time_zone: &str, limits: &[(impl Into<i128> + Copy, &str)]) -> Rule {
    let limits = limits.iter().map(|(max, per)| LimitDraft {
        max: (*max).into(),
        per: (*per).to_owned(),
        ..LimitDraft::default()
    });
    let draft = RuleDraft {
        time_zone: time_zone.to_owned(),
        limits: limits.collect(),
        ..RuleDraft::default()
    };
    draft.check().expect("a rule")
}

/// Makes a new version of a policy.
pub async fn put(ledger: &Ledger, name: &str, rule: Rule) -> Policy {
    let edited = try_put(ledger, name, rule).await.expect("an edit");
    edited.expect("the edit is accepted").after.newest
}

pub async fn try_put(
    ledger: &Ledger,
    name: &str,
    rule: Rule,
) -> Result<Result<Edited<Standing>, ()>, LedgerError> {
    let name = PolicyName::new(name).expect("a name");
    let decide = |_: Option<&Standing>, _: &Orphans, _: DateTime<Utc>| {
        Ok(Change::Version {
            terms: PolicyTerms {
                rule: rule.clone(),
                archived: false,
                effective_at: instant(NOON),
                drops_orphans: false,
                schedules_again: false,
            },
            reason: Some("a test".to_owned()),
        })
    };
    let edited = ledger
        .admin()
        .edit_policy(&name, "a test", || instant(NOON), false, None, decide)
        .await?;
    Ok(edited.map(|edited| edited.edited))
}
