//! Policies: versions without gaps, revisions that become visible in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::TimeDelta;
use perdiem::domain::policy::{Policy, PolicyName};
use perdiem::ledger::{Change, PolicyTerms, Standing};
use tokio::task::JoinSet;

use crate::support::app::{NOON, Stack, instant};
use crate::support::desk::{Desk, another_ledger, on_every_store, put, rule};

on_every_store!(
    a_change_makes_a_version,
    a_version_is_in_force_from_its_instant_on,
    many_editors_at_once,
);

async fn a_change_makes_a_version(stack: Stack) {
    let desk = Desk::open(stack).await;
    let ledger = &desk.ledger;
    let start = ledger.revision().await.expect("a revision");
    let first = put(ledger, "sms", rule("GMT+8", &[(3, "day")])).await;
    let other = put(ledger, "mail", rule("UTC", &[(5, "hour")])).await;
    let second = put(ledger, "sms", rule("UTC", &[(4, "day")])).await;
    assert_eq!((first.version, other.version, second.version), (1, 1, 2));
    assert_eq!(first.id, second.id);
    assert_ne!(first.id, other.id);
    assert_eq!(ledger.revision().await.expect("a revision"), start + 3);

    let name = PolicyName::new("sms").expect("a name");
    let now = instant(NOON);
    let standing = ledger.policy(&name, now).await.expect("a policy");
    let standing = standing.expect("a policy");
    assert_eq!([&standing.newest, &standing.in_force], [&second; 2]);
    let nobody = PolicyName::new("nobody").expect("a name");
    assert_eq!(ledger.policy(&nobody, now).await.expect("an answer"), None);

    let between = async |after, up_to| {
        let policies = ledger.policies_between(after, up_to).await;
        policies.expect("policies")
    };
    let all = [first.clone(), other.clone(), second.clone()];
    assert_eq!(between(start, start + 3).await, all);
    assert_eq!(between(start, start + 2).await, all[..2]);
    assert_eq!(between(start + 1, start + 3).await, all[1..]);
    assert!(between(start + 3, start + 3).await.is_empty());
}

async fn a_version_is_in_force_from_its_instant_on(stack: Stack) {
    let desk = Desk::open(stack).await;
    let name = &desk.policy.name;
    let starts = ["2100-01-01T00:00:00Z", "2100-01-02T00:00:00Z"].map(instant);
    for effective_at in starts {
        let later = |current: Option<&Standing>| {
            let terms = PolicyTerms {
                rule: current.expect("it exists").newest.rule.clone(),
                archived: false,
                effective_at,
            };
            let reason = None;
            Ok::<_, ()>(Change::Version { terms, reason })
        };
        let edited = desk
            .ledger
            .edit_policy(name, "a test", instant(NOON), false, later)
            .await;
        edited.expect("an edit").expect("nobody refuses");
    }
    let in_force = async |at| {
        let standing = desk.ledger.policy(name, at).await.expect("an answer");
        standing.expect("a policy").in_force.version
    };
    let [second, third] = starts;
    assert_eq!(in_force(second - TimeDelta::microseconds(1)).await, 1);
    assert_eq!(in_force(second).await, 2);
    assert_eq!(in_force(third).await, 3);
}

/// Eight editors of two policies over two handles, and a reader that goes from revision to
/// revision and must miss no version.
async fn many_editors_at_once(stack: Stack) {
    const EDITORS: usize = 8;
    const EDITS: usize = 12;
    let desk = Desk::open(stack).await;
    let start = desk.ledger.revision().await.expect("a revision");
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (ledger, done) = (another_ledger(&desk.ground).await, done.clone());
        async move {
            let mut known = start;
            let mut learned = Vec::new();
            loop {
                let is_last = done.load(Ordering::SeqCst);
                let revision = ledger.revision().await.expect("a revision");
                assert!(revision >= known, "a revision went back");
                let versions = ledger.policies_between(known, revision).await;
                learned.extend(versions.expect("policies"));
                known = revision;
                if is_last {
                    return learned;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    let ledgers = [desk.ledger.clone(), another_ledger(&desk.ground).await];
    let mut editors = JoinSet::new();
    for editor in 0..EDITORS {
        let ledger = ledgers[editor % 2].clone();
        editors.spawn(async move {
            let mut versions = Vec::new();
            for edit in 0..EDITS {
                let name = ["sms", "mail"][(editor + edit) % 2];
                let rule = rule("UTC", &[((editor * EDITS + edit + 1) as u64, "day")]);
                let policy = put(&ledger, name, rule).await;
                versions.push(policy);
            }
            versions
        });
    }
    let mut made: Vec<Policy> = editors.join_all().await.into_iter().flatten().collect();
    done.store(true, Ordering::SeqCst);
    let learned = reader.await.expect("the reader ends");
    assert_eq!(learned.len(), EDITORS * EDITS);
    for name in ["sms", "mail"] {
        let versions = learned.iter().filter(|policy| policy.name.as_str() == name);
        let versions: Vec<u32> = versions.map(|policy| policy.version).collect();
        let wanted: Vec<u32> = (1..=(EDITORS * EDITS / 2) as u32).collect();
        assert_eq!(versions, wanted, "{name}");
    }
    // What an editor was told is what stands.
    let order = |policy: &Policy| (policy.name.clone(), policy.version);
    made.sort_by_key(order);
    let mut learned = learned;
    learned.sort_by_key(order);
    assert_eq!(made, learned);
}
