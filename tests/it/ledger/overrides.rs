//! Overrides in the stores: versions without gaps, learned in the order of changes.

use perdiem::domain::claim::Subject;
use perdiem::domain::identity::AccountId;
use perdiem::domain::overrides::{Override, OverrideTerms};
use perdiem::domain::policy::Limit;
use perdiem::domain::window::Per;
use perdiem::ledger::{Change, Edited};
use uuid::Uuid;

use crate::support::app::{NOON, Stack, instant};
use crate::support::desk::{Desk, on_every_store, put, rule};

on_every_store!(
    a_change_makes_a_version,
    what_is_kept_or_refused_changes_nothing,
    the_last_versions_are_learned,
    a_policys_overrides_are_listed,
);

fn terms(max: u64) -> OverrideTerms {
    OverrideTerms {
        limits: vec![Limit::new(max, Per::Day), Limit::new(0, Per::Month)],
        until: Some(instant(NOON)),
    }
}

/// Puts a `max`, or deletes the override.
async fn change(desk: &Desk, subject: &str, max: Option<u64>) -> Edited<Override> {
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
    edited.expect("an edit").expect("nobody refuses")
}

async fn a_change_makes_a_version(stack: Stack) {
    let desk = Desk::open(stack).await;
    let start = desk.ledger.revision().await.expect("a revision");
    let account = desk.account("member-42");
    let found = async || desk.ledger.override_of(account).await.expect("an answer");
    assert_eq!(found().await, None);
    let first = change(&desk, "member-42", Some(5)).await;
    assert!(first.before.is_none());
    assert_eq!(
        first.after,
        Override {
            account,
            policy: desk.policy.id,
            subject: Some(Subject::new("member-42").expect("a subject")),
            version: 1,
            revision: start + 1,
            terms: Some(terms(5)),
            changed_at: instant(NOON),
            changed_by: "a test".to_owned(),
            reason: Some("vip".to_owned()),
        }
    );
    assert_eq!(found().await, Some(first.after.clone()));
    let second = change(&desk, "member-42", None).await;
    assert_eq!(second.before, Some(first.after));
    assert_eq!(
        (second.after.version, second.after.revision),
        (2, start + 2)
    );
    assert_eq!(second.after.terms, None);
    assert_eq!(found().await, Some(second.after));
    let third = change(&desk, "member-42", Some(0)).await.after;
    assert_eq!(third.version, 3);
    assert_eq!(found().await, Some(third));
}

async fn what_is_kept_or_refused_changes_nothing(stack: Stack) {
    let desk = Desk::open(stack).await;
    let standing = change(&desk, "member-42", Some(5)).await.after;
    let revision = desk.ledger.revision().await.expect("a revision");
    let subject = Subject::new("member-42").expect("a subject");
    let name = &desk.policy.name;
    let kept = desk
        .ledger
        .edit_override(
            name,
            &subject,
            "a test",
            instant(NOON),
            |policy, current| {
                assert_eq!(policy, Some(&desk.policy));
                assert_eq!(current, Some(&standing));
                Ok::<_, ()>(Change::Keep)
            },
        )
        .await
        .expect("an answer")
        .expect("nobody refuses");
    assert_eq!(
        (kept.before, kept.after),
        (Some(standing.clone()), standing.clone())
    );
    let refused = desk
        .ledger
        .edit_override(name, &subject, "a test", instant(NOON), |_, current| {
            Err::<Change<Option<OverrideTerms>>, u32>(current.map_or(0, |current| current.version))
        })
        .await
        .expect("an answer");
    assert_eq!(refused.expect_err("a refusal"), 1);
    let after = desk.ledger.revision().await.expect("a revision");
    assert_eq!(after, revision);
}

/// Policies and overrides change in one order; of each override the last version up to a
/// revision is learned.
async fn the_last_versions_are_learned(stack: Stack) {
    let desk = Desk::open(stack).await;
    let start = desk.ledger.revision().await.expect("a revision");
    let a1 = change(&desk, "a", Some(1)).await.after;
    let b1 = change(&desk, "b", Some(1)).await.after;
    put(&desk.ledger, "sms", rule("UTC", &[(5, "hour")])).await;
    let a2 = change(&desk, "a", Some(2)).await.after;
    let b2 = change(&desk, "b", None).await.after;
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

async fn a_policys_overrides_are_listed(stack: Stack) {
    let desk = Desk::open(stack).await;
    let mut all = Vec::new();
    for number in 0..5 {
        let subject = format!("member-{number}");
        change(&desk, &subject, Some(number)).await;
        all.push(change(&desk, &subject, Some(number + 1)).await.after);
    }
    change(&desk, "member-2", None).await;
    all.remove(2);
    all.sort_by_key(|listed| listed.account);
    let list = async |policy, after, limit| {
        let listed = desk.ledger.overrides(policy, after, limit).await;
        listed.expect("overrides")
    };
    let id = desk.policy.id;
    let first = AccountId(Uuid::nil());
    assert_eq!(list(id, first, 10).await, all);
    assert_eq!(list(id, first, 2).await, all[..2]);
    assert_eq!(list(id, all[1].account, 10).await, all[2..]);
    let other = put(&desk.ledger, "sms", rule("UTC", &[(5, "hour")])).await;
    assert!(list(other.id, first, 10).await.is_empty());
}
