//! Redis returns to an earlier state: its counters lack the keys of grants that are in the ledger.

use std::time::Duration;

use serde_json::json;

use crate::judge::Wish;
use crate::support::app::{Ground, NOON, Stack, instant};
use crate::support::crowd::Fleet;
use crate::support::servers::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_retry_gets_its_first_id() {
    let mut redis = Redis::start();
    let mut ground = Ground::new(Stack::Postgres);
    ground.redis_url = Some(redis.url());
    let fleet = Fleet::on_with(&[&ground; 2], instant(NOON), |options| {
        options.redis_timeout = Duration::from_millis(500);
    })
    .await;
    let version = fleet
        .put_body(json!({
            "time_zone": "GMT+8",
            "limits": [{ "max": 1000, "per": "day" }],
            "durability": "counted",
        }))
        .await;
    fleet.everybody_knows(version).await;
    let keys = (0..104).map(|number| Wish::of(&format!("member-{}", number % 8)).with_key());
    let keys = fleet.wishes(keys);
    // Claims with so many keys. Every second group of eight goes to the other instance.
    let claim = async |from: usize, to: usize| {
        for (place, key) in keys[from..to].iter().enumerate() {
            fleet.send(place / 8, *key).await;
        }
        assert_eq!(fleet.granted().len(), to);
        fleet.finds_nothing().await;
    };
    claim(0, 32).await;
    redis.command::<()>(&["SAVE"]);
    claim(32, 96).await;
    redis.kill();
    redis.restart();
    let again = fleet.send_all(2, |_| keys[..96].to_vec()).await;
    assert_eq!(again, [0, 2 * 96, 0]);
    claim(96, 104).await;
    for attempts in fleet.history().by_wish() {
        let mut ids = attempts
            .iter()
            .filter_map(|attempt| Some(attempt.outcome.told()?.id));
        let first = ids.next();
        assert!(ids.all(|id| Some(id) == first), "{attempts:?}");
    }
}
