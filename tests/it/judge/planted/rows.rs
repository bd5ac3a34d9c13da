//! Breaches in a real ledger and in a real counter, after a real load.

use uuid::Uuid;

use super::super::{Breach::*, Wish, judge};
use super::assert_found;
use crate::support::app::{Stack, on_every_store_with_redis};
use crate::support::crowd::Fleet;
use crate::support::hand::Hand;

on_every_store_with_redis!(what_is_planted_in_the_stores_is_found);

async fn what_is_planted_in_the_stores_is_found(stack: Stack) {
    let fleet = Fleet::with_max(stack, 3).await;
    // Every fourth claim of a subject is denied, and has no key. So its denial makes a counter.
    let claims = |client| {
        let without_key = Wish::of(&format!("member-{client}"));
        let mut wishes = vec![without_key.clone().with_key(); 3];
        wishes.push(without_key);
        wishes
    };
    assert_eq!(fleet.claim_all(2, claims).await, [6, 0, 2]);
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.counters.len(), 2);
    let find = async || {
        let stores = fleet.ground.stores().await;
        judge(&fleet.history(), &stores)
    };
    fleet.ground.open_the_ledger().await;
    let run = async |sql: &str| fleet.ground.sql(sql).await;

    let last = "FROM entries ORDER BY number DESC, account LIMIT 1";
    // Inserts one more row for an account. Its number follows, but its totals do not.
    let add = |metadata: &str| {
        let id = fleet.ground.literal(Uuid::new_v4());
        format!(
            "INSERT INTO entries (account, number, id, at, units, policy, policy_version, kind,
                 flags, totals, metadata)
             SELECT account, number + 1, {id}, at, 1, policy, policy_version, kind, flags, totals,
                 {metadata} {last}"
        )
    };
    let of_last = format!("WHERE (account, number) = (SELECT account, number {last})");
    let remove = format!("DELETE FROM entries {of_last}");
    run(&add("NULL")).await;
    assert_found!(find().await, Foreign { wish: None, .. });
    assert_found!(find().await, NotTheSum { .. });
    run(&remove).await;
    run(&add("metadata")).await;
    assert_found!(find().await, Doubled { .. });
    run(&remove).await;
    assert_eq!(find().await, []);
    run(&format!("UPDATE entries SET units = 2 {of_last}")).await;
    assert_found!(find().await, Altered { .. });
    run(&format!("UPDATE entries SET units = 1 {of_last}")).await;

    let hand = Hand::of(&fleet.ground).await;
    let counters = hand.dump().await;
    for (name, _) in &counters {
        hand.run::<()>(&["HSET", name, "number", "9"]).await;
    }
    let drifted = find().await;
    assert_eq!(drifted.len(), 2, "{drifted:?}");
    assert_found!(drifted, Drift { .. });
    hand.restore(&counters).await;
    assert_eq!(find().await, []);
    run(&remove).await;
    let lost = find().await;
    assert_found!(lost, Lost { .. });
    assert_found!(lost, Drift { .. });
    // The check does not wait for a lost grant, as it does for a lagging counter.
    let history = fleet.history();
    let passing = lost.iter().filter(|breach| breach.may_pass(&history));
    assert!(passing.count() < lost.len(), "{lost:?}");
}
