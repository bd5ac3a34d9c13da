//! Keys in the ledger: their versions, and those of ledgers that had none yet.

use perdiem::domain::key::{Key, KeyNumber, KeyRule, Role};
use perdiem::domain::policy::PolicyName;
use perdiem::ledger::{Change, KeyVersion, Ledger};
use uuid::Uuid;

use super::older::older_ledger;
use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, another_ledger, on_every_store, put, rule};

on_every_store!(
    a_change_makes_a_version,
    what_is_kept_or_refused_changes_nothing,
    one_first_key_wins,
    many_at_once_have_an_order,
    keys_of_an_older_ledger_get_a_version,
);

fn key(id: u128, role: Role) -> Key {
    Key {
        id: Uuid::from_u128(id),
        version: 1,
        rule: KeyRule {
            name: format!("key {id}"),
            role,
            policies: None,
            ends_at: None,
            revoked: false,
        },
        created_at: instant(NOON),
        changed_at: instant(NOON),
        changed_by: "a test".to_owned(),
        reason: None,
    }
}

/// A hash that no other key has.
fn hash(id: u128) -> [u8; 32] {
    let id = id.to_be_bytes();
    [id, id].concat().try_into().expect("32 bytes")
}

async fn add(ledger: &Ledger, key: &Key) {
    let added = ledger.add_key(key, &hash(key.id.as_u128())).await;
    added.expect("it is added");
}

async fn all(ledger: &Ledger) -> Vec<Key> {
    ledger.keys(Uuid::max(), 1000).await.expect("keys")
}

/// A version of the key with a number.
fn version(key: Key, number: u32) -> KeyVersion {
    KeyVersion {
        key,
        number: KeyNumber(number),
        secret_hash: hash(number.into()),
    }
}

/// Every version up to now.
async fn history(ledger: &Ledger) -> Vec<KeyVersion> {
    let revision = ledger.revision().await.expect("a revision");
    ledger.keys_between(0, revision).await.expect("versions")
}

async fn a_change_makes_a_version(stack: Stack) {
    let desk = Desk::open(stack).await;
    let ledger = &desk.ledger;
    let before = ledger.revision().await.expect("a revision");
    let mut first = key(1, Role::Audit);
    first.rule.policies = Some(
        ["a", "b-0"]
            .map(|name| PolicyName::new(name).expect("a name"))
            .into(),
    );
    first.rule.ends_at = Some(instant("2026-12-01T00:00:00.123456Z"));
    first.reason = Some("\u{1f511} \"why\"".to_owned());
    add(ledger, &first).await;
    assert_eq!(
        ledger.key(first.id).await.expect("a key"),
        Some(first.clone())
    );
    let changed_at = instant("2026-11-22T00:00:00Z");
    let revoke = |key: Option<&Key>, another_admin_stays: bool| {
        assert!(!another_admin_stays, "there is none");
        let rule = KeyRule {
            revoked: true,
            ends_at: None,
            ..key.expect("it exists").rule.clone()
        };
        let reason = Some("leaked".to_owned());
        Ok::<_, ()>(Change::Version {
            terms: rule,
            reason,
        })
    };
    let second = ledger.edit_key(first.id, "me", changed_at, revoke).await;
    let second = second.expect("an edit").expect("nobody refuses");
    let mut expected = Key {
        version: 2,
        changed_at,
        changed_by: "me".to_owned(),
        reason: Some("leaked".to_owned()),
        ..first.clone()
    };
    expected.rule.revoked = true;
    expected.rule.ends_at = None;
    assert_eq!(second, expected);
    assert_eq!(all(ledger).await, std::slice::from_ref(&second));
    assert_eq!(ledger.revision().await.expect("a revision"), before + 2);
    let versions = [version(first, 1), version(second, 1)];
    assert_eq!(history(ledger).await, versions);
    let between = async |after, up_to| {
        ledger
            .keys_between(before + after, before + up_to)
            .await
            .expect("versions")
    };
    assert_eq!(between(0, 1).await, versions[..1]);
    assert_eq!(between(1, 2).await, versions[1..]);
    assert!(between(2, 9).await.is_empty());
}

async fn what_is_kept_or_refused_changes_nothing(stack: Stack) {
    let desk = Desk::open(stack).await;
    let ledger = &desk.ledger;
    let admin = key(1, Role::Admin);
    add(ledger, &admin).await;
    let revision = ledger.revision().await.expect("a revision");
    let edit = async |id: Uuid, change: fn(Option<&Key>, bool) -> Result<Change<KeyRule>, bool>| {
        let edited = ledger.edit_key(id, "me", instant(NOON), change).await;
        edited.expect("an answer")
    };
    let kept = edit(admin.id, |_, _| Ok(Change::Keep)).await;
    assert_eq!(kept, Ok(admin.clone()));
    assert_eq!(edit(admin.id, |_, stays| Err(stays)).await, Err(false));
    let nobody = Uuid::from_u128(9);
    let unknown = edit(nobody, |key, stays| {
        assert!(key.is_none());
        Err(stays)
    });
    assert_eq!(unknown.await, Err(true));
    assert_eq!(ledger.key(nobody).await.expect("an answer"), None);
    assert_eq!(ledger.revision().await.expect("a revision"), revision);
    assert_eq!(history(ledger).await.len(), 1);

    // Another admin's key, which ends or does not.
    let mut other = key(2, Role::Admin);
    other.rule.ends_at = Some(instant("2100-01-01T00:00:00Z"));
    add(ledger, &other).await;
    add(ledger, &key(3, Role::Audit)).await;
    assert_eq!(edit(admin.id, |_, stays| Err(stays)).await, Err(false));
    let endless = edit(other.id, |key, _| {
        let rule = KeyRule {
            ends_at: None,
            ..key.expect("it exists").rule.clone()
        };
        Ok(Change::Version {
            terms: rule,
            reason: None,
        })
    });
    endless.await.expect("an edit");
    assert_eq!(edit(admin.id, |_, stays| Err(stays)).await, Err(true));
    let below = ledger.keys(other.id, 9).await.expect("keys");
    assert_eq!(below, [admin]);
}

async fn one_first_key_wins(stack: Stack) {
    let ground = Ground::new(stack);
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..6 {
        let ledger = another_ledger(&ground).await;
        adding.spawn(async move {
            let key = key(number, Role::Admin);
            let added = ledger.add_first_key(&key, &hash(number)).await;
            added.expect("an answer").then_some(key)
        });
    }
    let winners: Vec<Key> = adding.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let ledger = another_ledger(&ground).await;
    assert_eq!(all(&ledger).await, winners);
    assert_eq!(ledger.revision().await.expect("a revision"), 1);
}

/// Whoever reads the revisions in their order misses none, of policies and of keys.
async fn many_at_once_have_an_order(stack: Stack) {
    let desk = Desk::open(stack).await;
    let start = desk.ledger.revision().await.expect("a revision");
    let mut editors = tokio::task::JoinSet::new();
    for number in 0..4 {
        let ledger = another_ledger(&desk.ground).await;
        editors.spawn(async move {
            for round in 0..8 {
                add(&ledger, &key(100 * number + round, Role::Audit)).await;
                let name = format!("p-{number}-{round}");
                put(&ledger, &name, rule("UTC", &[(1, "day")])).await;
            }
        });
    }
    let mut known = start;
    let (mut keys, mut policies) = (0, 0);
    while keys < 32 || policies < 32 {
        let revision = desk.ledger.revision().await.expect("a revision");
        keys += desk
            .ledger
            .keys_between(known, revision)
            .await
            .expect("keys")
            .len();
        let learned = desk.ledger.policies_between(known, revision).await;
        policies += learned.expect("policies").len();
        known = revision;
        if editors.is_empty() {
            break;
        }
        while editors.try_join_next().is_some() {}
    }
    let rest = desk.ledger.revision().await.expect("a revision");
    keys += desk
        .ledger
        .keys_between(known, rest)
        .await
        .expect("keys")
        .len();
    let learned = desk.ledger.policies_between(known, rest).await;
    policies += learned.expect("policies").len();
    assert_eq!((keys, policies), (32, 32));
    assert_eq!(rest, start + 64);
}

async fn keys_of_an_older_ledger_get_a_version(stack: Stack) {
    let ground = Ground::new(stack);
    let is_postgres = stack == Stack::Postgres;
    // As each store writes ids, hashes and instants.
    let (bytes, at) = match is_postgres {
        true => ("'\\x{}'", "'2026-11-21T03:04:05.678901Z'"),
        false => ("x'{}'", "1795230245678901"),
    };
    let hex = |number: u128, times: usize| {
        let hex = format!("{number:032x}").repeat(times);
        bytes.replace("{}", &hex)
    };
    let id = |number: u128| match is_postgres {
        true => format!("'{}'", Uuid::from_u128(number)),
        false => hex(number, 1),
    };
    let mut statements = vec![format!(
        "INSERT INTO ledger (id, secret, revision, created_at) VALUES ({}, {}, 7, {at})",
        id(9),
        hex(9, 2)
    )];
    for number in [2, 1] {
        statements.push(format!(
            "INSERT INTO keys (id, name, role, secret_hash, created_at)
             VALUES ({}, 'key {number}', 'admin', {}, {at})",
            id(number),
            hex(number, 2)
        ));
    }
    older_ledger(&ground, stack, "0004", statements).await;
    let ledger = another_ledger(&ground).await;
    assert_eq!(ledger.revision().await.expect("a revision"), 9);
    let expected = [1, 2].map(|number| Key {
        changed_by: "perdiem".to_owned(),
        ..key(number, Role::Admin)
    });
    let [first, second] = expected;
    let versions = [version(first, 1), version(second, 2)];
    assert_eq!(history(&ledger).await, versions);
    // The count goes on.
    let third = key(3, Role::Claim);
    add(&ledger, &third).await;
    let newest = ledger.keys_between(9, 10).await.expect("versions");
    assert_eq!(newest, [version(third, 3)]);
}
