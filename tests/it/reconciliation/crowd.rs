//! Reconciliations while claims arrive: no false alarm, and healing breaks nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::json;

use super::{nothing_differs, reconcile};
use crate::judge::Wish;
use crate::support::app::{Stack, on_every_way};
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;
use crate::support::hand::Hand;

const CLIENTS: usize = 16;
const POLICIES: [&str; 3] = ["benefit", "plenty", "counted"];

on_every_way!(no_false_alarm_while_claims_keep_coming);

/// A fleet with three policies. Two of them deny nothing. With `durability: counted`, Redis decides
/// the claims of the third, and they are appended afterwards.
async fn fleet(stack: Stack, max: usize, durability: &str) -> Fleet {
    let fleet = Fleet::with_max(stack, max).await;
    for (policy, pers, durability) in [
        ("plenty", ["minute", "month"], "recorded"),
        ("counted", ["hour", "week"], durability),
    ] {
        let limits = pers.map(|per| json!({ "max": 1_000_000, "per": per }));
        let body = json!({ "time_zone": "UTC", "limits": limits, "durability": durability });
        let answer = fleet.apps[0].put_policy(policy, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }
    fleet.everybody_knows_all().await;
    fleet
}

fn claim(dice: &mut Dice) -> Wish {
    Wish {
        policy: POLICIES[dice.below(3)].to_owned(),
        ..Wish::of(&format!("member-{}", dice.below(6)))
    }
}

async fn no_false_alarm_while_claims_keep_coming(stack: Stack) {
    let durability = match stack {
        Stack::Sqlite | Stack::Postgres => "recorded",
        Stack::RedisAndSqlite | Stack::RedisAndPostgres => "counted",
    };
    let fleet = fleet(stack, 5, durability).await;
    let stop = AtomicBool::new(false);
    let reconciliations = async {
        for round in 0..8 {
            let reports = fleet.apps.iter();
            join_all(reports.map(|app| nothing_differs(app, round % 2 == 0))).await;
            fleet.clock.advance(TimeDelta::seconds(20));
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(fleet.load(CLIENTS, &stop, claim), reconciliations);
    let stores = fleet.finds_nothing().await;
    let report = nothing_differs(&fleet.apps[0], false).await;
    assert_eq!(report["entry_count"], stores.entries.len());
    assert_eq!(fleet.granted().len(), stores.entries.len());
}

/// Faults are planted while claims and healing continue. No subject gets more units than the limit,
/// and at the end every counter is correct.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healing_beside_claims_leaves_everything_right() {
    let fleet = fleet(Stack::RedisAndPostgres, 100_000, "recorded").await;
    let hand = Hand::of(&fleet.ground).await;
    let stop = AtomicBool::new(false);
    let healing = async {
        for round in 0..6 {
            for (index, name) in hand.names().await.iter().enumerate() {
                let words: &[&str] = match (index + round) % 4 {
                    0 => &["HSET", name, "number", "99999"],
                    1 => &["HSET", name, "number", "1"],
                    2 => &["SET", name, "junk"],
                    _ => &["DEL", name],
                };
                hand.run::<redis::Value>(words).await;
            }
            let report = reconcile(&fleet.apps[0], true).await;
            assert_eq!(report["alarm_count"], 0, "{report}");
            assert_eq!(report["counters"], "compared");
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(fleet.load(CLIENTS, &stop, claim), healing);
    reconcile(&fleet.apps[0], true).await;
    fleet.finds_nothing().await;
}
