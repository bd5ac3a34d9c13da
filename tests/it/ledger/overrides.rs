//! Overrides in the stores: their versions are learned in the order of changes.

use perdiem::domain::claim::Subject;
use perdiem::domain::overrides::{Override, OverrideTerms};
use perdiem::domain::policy::Limit;
use perdiem::domain::window::Per;
use perdiem::ledger::Change;

use crate::support::app::{NOON, Stack, instant};
use crate::support::desk::{Desk, on_every_store, put, rule};

on_every_store!(the_last_versions_are_learned);

fn terms(max: u64) -> OverrideTerms {
    OverrideTerms {
        limits: vec![Limit::new(max, Per::Day), Limit::new(0, Per::Month)],
        until: Some(instant(NOON)),
    }
}

/// Puts a `max`, or deletes the override.
async fn change(desk: &Desk, subject: &str, max: Option<u64>) -> Override {
    let subject = Subject::new(subject).expect("a subject");
    let edited = desk
        .ledger
        .edit_override(
            &desk.policy.name,
            &subject,
            "a test",
            instant(NOON),
            |_, _| {
                Ok::<_, ()>(Change::Version {
                    terms: max.map(terms),
                    reason: Some("vip".to_owned()),
                })
            },
        )
        .await;
    edited.expect("an edit").expect("nobody refuses").after
}

/// Policies and overrides change in one order; of each override the last version up to a
/// revision is learned.
async fn the_last_versions_are_learned(stack: Stack) {
    let desk = Desk::open(stack).await;
    let start = desk.ledger.revision().await.expect("a revision");
    let a1 = change(&desk, "a", Some(1)).await;
    let b1 = change(&desk, "b", Some(1)).await;
    put(&desk.ledger, "sms", rule("UTC", &[(5, "hour")])).await;
    let a2 = change(&desk, "a", Some(2)).await;
    let b2 = change(&desk, "b", None).await;
    assert_eq!(desk.ledger.revision().await.expect("a revision"), start + 5);
    let between = async |after, up_to| {
        let overrides = desk.ledger.overrides_between(after, up_to).await;
        overrides.expect("overrides")
    };
    assert_eq!(between(0, start + 5).await, [a2.clone(), b2.clone()]);
    assert_eq!(between(start, start + 4).await, [b1.clone(), a2.clone()]);
    assert_eq!(between(start, start + 3).await, [a1.clone(), b1]);
    assert_eq!(between(start, start + 1).await, [a1]);
    assert_eq!(between(start + 4, start + 5).await, [b2]);
    assert!(between(start + 5, start + 5).await.is_empty());
    let policies = desk.ledger.policies_between(start, start + 5).await;
    assert_eq!(policies.expect("policies").len(), 1);
}
