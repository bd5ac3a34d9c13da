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
    what_is_kept_or_refused_changes_nothing,
    a_version_is_in_force_from_its_instant_on,
    many_editors_at_once,
    policies_are_listed_by_name,
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

    let versions = async |before, limit| {
        let versions = ledger.versions(&name, before, limit).await;
        versions.expect("versions")
    };
    assert_eq!(versions(3, 10).await, [second.clone(), first.clone()]);
    assert_eq!(versions(3, 1).await, [second]);
    assert_eq!(versions(2, 10).await, [first]);
    assert!(versions(1, 10).await.is_empty());
}

async fn what_is_kept_or_refused_changes_nothing(stack: Stack) {
    let desk = Desk::open(stack).await;
    let name = &desk.policy.name;
    let revision = desk.ledger.revision().await.expect("a revision");
    let kept = desk
        .ledger
        .edit_policy(name, "a test", instant(NOON), false, |_| {
            Ok::<_, ()>(Change::Keep)
        })
        .await
        .expect("an answer")
        .expect("nobody refuses");
    assert_eq!(kept.before, Some(kept.after.clone()));
    assert_eq!(kept.after.newest, desk.policy);
    let refused = desk
        .ledger
        .edit_policy(name, "a test", instant(NOON), false, |current| {
            Err::<Change<PolicyTerms>, u32>(current.map_or(0, |current| current.newest.version))
        })
        .await
        .expect("an answer");
    assert_eq!(refused.expect_err("a refusal"), 1);
    let after = desk.ledger.revision().await.expect("a revision");
    assert_eq!(after, revision);
    put(&desk.ledger, "benefit", rule("UTC", &[(1, "day")])).await;
    let after = desk.ledger.revision().await.expect("a revision");
    assert_eq!(after, revision + 1);
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

/// By their bytes: `-` before digits before letters, whatever the database's collation.
async fn policies_are_listed_by_name(stack: Stack) {
    let desk = Desk::open(stack).await;
    let sorted = [
        "a", "a-", "a-b", "a0", "aa", "ab", "b", "ba", "benefit", "z",
    ];
    for name in ["ba", "a0", "z", "ab", "a-b", "a", "aa", "a-", "b"] {
        put(&desk.ledger, name, rule("UTC", &[(1, "day")])).await;
        put(&desk.ledger, name, rule("UTC", &[(2, "day")])).await;
    }
    let list = async |after: &str, limit| {
        let policies = desk
            .ledger
            .policies(None, after, limit)
            .await
            .expect("policies");
        assert!(policies.iter().all(|policy| {
            let newest = if policy.name.as_str() == "benefit" {
                1
            } else {
                2
            };
            policy.version == newest
        }));
        let names = policies.iter().map(|policy| policy.name.to_string());
        names.collect::<Vec<String>>()
    };
    assert_eq!(list("", 100).await, sorted);
    assert_eq!(list("", 3).await, sorted[..3]);
    assert_eq!(list("a-", 3).await, sorted[2..5]);
    assert_eq!(list("a-a", 1).await, ["a-b"]);
    let only = ["z", "nothing", "a0"].map(|name| PolicyName::new(name).expect("a name"));
    let of_these = async |names: &[PolicyName], limit| {
        let policies = desk.ledger.policies(Some(names), "", limit).await;
        let names = policies.expect("policies").into_iter();
        names
            .map(|policy| policy.name.to_string())
            .collect::<Vec<String>>()
    };
    assert_eq!(of_these(&only, 9).await, ["a0", "z"]);
    assert_eq!(of_these(&only, 1).await, ["a0"]);
    assert!(of_these(&[], 9).await.is_empty());
    // An archived one is left out, and back once it is revived.
    let name = PolicyName::new("aa").expect("a name");
    let archive = |archived| {
        desk.ledger
            .edit_policy(&name, "a test", instant(NOON), false, move |current| {
                Ok::<_, ()>(Change::Version {
                    terms: PolicyTerms {
                        rule: current.expect("it exists").newest.rule.clone(),
                        archived,
                        effective_at: instant(NOON),
                    },
                    reason: None,
                })
            })
    };
    archive(true).await.expect("an edit").expect("an edit");
    let names = list("a0", 2).await;
    assert_eq!(names, ["ab", "b"]);
    let revived = archive(false).await.expect("an edit").expect("an edit");
    let revived = revived.after.newest;
    assert_eq!((revived.version, revived.archived), (4, false));
}
