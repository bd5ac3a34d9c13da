//! Keys in the ledger: their versions, and those of ledgers that had none yet.

use perdiem::domain::key::{Key, KeyNumber, KeyRule, Role};
use perdiem::domain::policy::PolicyName;
use perdiem::ledger::{Change, KeyVersion, Ledger};
use uuid::Uuid;

use super::older::older_ledger;
use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, another_ledger, on_every_store};

on_every_store!(
    a_change_makes_a_version,
    one_first_key_wins,
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
    let below = ledger.keys(second.id, 9).await.expect("keys");
    assert_eq!(below, []);
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
