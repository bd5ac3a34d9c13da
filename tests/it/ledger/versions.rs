//! Policies, overrides and keys in the stores: versions have no gaps, and are read in the order of
//! the changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perdiem::domain::claim::Subject;
use perdiem::domain::key::{Key, KeyNumber, KeyRule, Role, UsedKey};
use perdiem::domain::limit::shape::OtherMax;
use perdiem::domain::overrides::{Override, OverrideTerms};
use perdiem::domain::policy::{Policy, PolicyName};
use perdiem::domain::schedule::StoredVersion;
use perdiem::domain::window::Length;
use perdiem::ledger::{Change, KeyVersion, Ledger};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, another_ledger, on_every_store, put, rule};

on_every_store!(
    versions_are_learned_in_the_order_of_changes,
    many_editors_at_once,
    one_first_key_wins,
);

fn key(id: u128, role: Role) -> Key {
    Key {
        id: Uuid::from_u128(id),
        version: 1,
        rule: KeyRule {
            name: format!("key {id}"),
            role,
            policies: None,
            bounds: None,
            ends_at: None,
            revoked: false,
        },
        created_at: instant(NOON),
        changed_at: instant(NOON),
        changed_by: "a test".to_owned(),
        reason: None,
    }
}

/// The key as a list shows it, before its first use.
fn unused(key: &Key) -> UsedKey {
    UsedKey {
        key: key.clone(),
        last_used_on: None,
    }
}

/// A hash that no other key has.
fn hash(id: u128) -> [u8; 32] {
    let id = id.to_be_bytes();
    [id, id].concat().try_into().expect("32 bytes")
}

async fn add(ledger: &Ledger, key: &Key) {
    let added = ledger.admin().add_key(key, &hash(key.id.as_u128())).await;
    added.expect("the key is added");
}

/// The version of the key with this number.
fn version(key: &Key, number: u32) -> KeyVersion {
    KeyVersion {
        key: key.clone(),
        number: KeyNumber(number),
        secret_hash: hash(number.into()),
    }
}

async fn revision(ledger: &Ledger) -> u64 {
    ledger.admin().revision().await.expect("a revision")
}

async fn keys_between(ledger: &Ledger, after: u64, up_to: u64) -> Vec<KeyVersion> {
    let versions = ledger.admin().keys_between(after, up_to).await;
    versions.expect("versions")
}

/// Puts an override with a `max`, or deletes it.
async fn override_day(desk: &Desk, subject: &str, max: Option<u64>) -> Override {
    let policy = &desk.policy.name;
    let subject = Subject::new(subject).expect("a subject");
    let terms = max.map(|max| OverrideTerms {
        limits: [(max, Length::Day), (0, Length::Month)]
            .map(|(max, length)| OtherMax {
                max,
                per: length.into(),
            })
            .to_vec(),
        until: Some(instant(NOON)),
    });
    let edited = desk
        .ledger
        .admin()
        .edit_of_subject(
            policy,
            &subject,
            "a test",
            instant(NOON),
            false,
            |_, _, _| {
                let terms = terms.clone();
                let reason = Some("vip".to_owned());
                Ok::<_, ()>(Change::Version { terms, reason })
            },
        )
        .await;
    edited
        .expect("an edit")
        .expect("the edit is accepted")
        .after
}

/// Revokes a key that had an end, one day after it was made.
async fn revoke(ledger: &Ledger, key: &Key) -> Key {
    let changed_at = instant("2026-11-22T00:00:00Z");
    let revoke = |key: Option<&Key>, another_admin_stays: bool| {
        assert!(!another_admin_stays, "there is none");
        let rule = KeyRule {
            revoked: true,
            ends_at: None,
            ..key.expect("the key exists").rule.clone()
        };
        let reason = Some("leaked".to_owned());
        Ok::<_, ()>(Change::Version {
            terms: rule,
            reason,
        })
    };
    let revoked = ledger
        .admin()
        .edit_key(key.id, "me", changed_at, false, revoke)
        .await;
    let revoked = revoked.expect("an edit").expect("the edit is accepted");
    let mut expected = Key {
        version: 2,
        changed_at,
        changed_by: "me".to_owned(),
        reason: Some("leaked".to_owned()),
        ..key.clone()
    };
    expected.rule.revoked = true;
    expected.rule.ends_at = None;
    assert_eq!(revoked, expected);
    revoked
}

/// A reader gets every version of policies and keys, and the last version of overrides.
async fn versions_are_learned_in_the_order_of_changes(stack: Stack) {
    let desk = Desk::open(stack).await;
    let ledger = &desk.ledger;
    let start = revision(ledger).await;
    let sms = put(ledger, "sms", rule("GMT+8", &[(3, "day")])).await;
    let a1 = override_day(&desk, "a", Some(1)).await;
    let mut shop = key(1, Role::Audit);
    let names = ["a", "b-0"].map(|name| PolicyName::new(name).expect("a name"));
    shop.rule.policies = Some(names.into());
    shop.rule.ends_at = Some(instant("2026-12-01T00:00:00.123456Z"));
    shop.reason = Some("\u{1f511} \"why\"".to_owned());
    add(ledger, &shop).await;
    let b1 = override_day(&desk, "b", Some(1)).await;
    let mail = put(ledger, "mail", rule("UTC", &[(5, "hour")])).await;
    let a2 = override_day(&desk, "a", Some(2)).await;
    let found = ledger.admin().key(shop.id).await.expect("an answer");
    assert_eq!(found, Some(unused(&shop)));
    let revoked = revoke(ledger, &shop).await;
    let b2 = override_day(&desk, "b", None).await;
    let more = put(ledger, "sms", rule("UTC", &[(4, "day")])).await;
    assert_eq!(revision(ledger).await, start + 9);

    let of = |policy: &Policy| (policy.id, policy.version);
    assert_eq!([of(&sms), of(&more)], [(sms.id, 1), (sms.id, 2)]);
    assert_ne!(mail.id, sms.id);
    let policy = async |name| {
        let name = PolicyName::new(name).expect("a name");
        let found = ledger.admin().policy(&name, instant(NOON)).await;
        found.expect("an answer")
    };
    let standing = policy("sms").await.expect("a policy");
    assert_eq!([&standing.newest, &standing.in_force], [&more; 2]);
    assert_eq!(policy("nobody").await, None);
    let keys = async |below| ledger.admin().keys(below, 9).await.expect("keys");
    assert_eq!(keys(Uuid::max()).await, [unused(&revoked)]);
    assert_eq!(keys(revoked.id).await, []);

    let policies = [sms, mail, more];
    for (after, up_to, of) in [(0, 9, 0..3), (0, 8, 0..2), (1, 9, 1..3), (9, 9, 3..3)] {
        let found = ledger
            .admin()
            .policies_between(start + after, start + up_to)
            .await;
        let found = readable(found.expect("policies"));
        assert_eq!(found, policies[of], "{after}..{up_to}");
    }
    let versions = [version(&shop, 1), version(&revoked, 1)];
    for (after, up_to, of) in [(0, 9, 0..2), (0, 6, 0..1), (3, 7, 1..2), (7, 9, 2..2)] {
        let found = keys_between(ledger, start + after, start + up_to).await;
        assert_eq!(found, versions[of], "{after}..{up_to}");
    }
    #[rustfmt::skip]
    let rows = [
        (0, 9, vec![&a2, &b2]), (0, 7, vec![&b1, &a2]), (0, 5, vec![&a1, &b1]),
        (0, 2, vec![&a1]), (7, 9, vec![&b2]), (9, 9, vec![]),
    ];
    for (after, up_to, expected) in rows {
        let found = ledger
            .admin()
            .of_subjects_between::<OverrideTerms>(start + after, start + up_to)
            .await;
        let found: Result<Vec<_>, _> = found.expect("overrides").into_iter().collect();
        let found = found.expect("overrides that can be read");
        assert!(found.iter().eq(expected), "{after}..{up_to}: {found:?}");
    }
}

fn readable(versions: Vec<StoredVersion>) -> Vec<Policy> {
    let versions = versions
        .into_iter()
        .map(|version| version.expect("a readable version"));
    versions.map(Arc::unwrap_or_clone).collect()
}

/// Eight editors change two policies through two handles. A reader continues from revision to
/// revision and must miss no version.
async fn many_editors_at_once(stack: Stack) {
    const EDITORS: usize = 8;
    const EDITS: usize = 12;
    let desk = Desk::open(stack).await;
    let start = revision(&desk.ledger).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let ledger = another_ledger(&desk.ground).await;
        let done = done.clone();
        async move {
            let mut known = start;
            let mut learned = Vec::new();
            loop {
                let is_last = done.load(Ordering::SeqCst);
                let newest = revision(&ledger).await;
                assert!(newest >= known, "a revision went back");
                let versions = ledger.admin().policies_between(known, newest).await;
                learned.extend(readable(versions.expect("policies")));
                known = newest;
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
    // The stored versions equal the answers to the editors.
    let order = |policy: &Policy| (policy.name.clone(), policy.version);
    made.sort_by_key(order);
    let mut learned = learned;
    learned.sort_by_key(order);
    assert_eq!(made, learned);
}

async fn one_first_key_wins(stack: Stack) {
    let ground = Ground::new(stack);
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..6 {
        let ledger = another_ledger(&ground).await;
        adding.spawn(async move {
            let key = key(number, Role::Admin);
            let added = ledger.admin().add_first_key(&key, &hash(number)).await;
            added.expect("an answer").then_some(key)
        });
    }
    let winners: Vec<Key> = adding.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let ledger = another_ledger(&ground).await;
    let found = ledger.admin().keys(Uuid::max(), 1000).await.expect("keys");
    assert_eq!(found, [unused(&winners[0])]);
    assert_eq!(revision(&ledger).await, 1);
}
