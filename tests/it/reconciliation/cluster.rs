//! Counters on several shards: a scan finds the counters of each shard.

use std::collections::BTreeSet;
use std::time::Duration;

use perdiem::counter::{Counters, Reading, RedisAccess};
use perdiem::domain::identity::AccountId;
use uuid::Uuid;

use crate::support::app::eventually;
use crate::support::hand::Hand;
use crate::support::redis_groups::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shard_is_scanned() {
    let cluster = Cluster::start();
    let url = cluster.url();
    let ledger = Uuid::new_v4();
    let timeout = Duration::from_secs(10);
    let counters = Counters::open(&url, &RedisAccess::default(), ledger, timeout).await;
    let counters = counters.expect("counters");
    eventually("the cluster answers", || async { counters.is_available() }).await;
    let accounts: BTreeSet<AccountId> = (0..=u8::MAX)
        .flat_map(|bucket| (1..=2).map(move |number| (bucket, number)))
        .map(|(bucket, number)| AccountId(Uuid::from_u128(u128::from(bucket) << 120 | number)))
        .collect();
    // Each key is written to the shard that accepts it.
    let hand = Hand::at(&cluster.nodes[0].url(), ledger).await;
    let shards = cluster.primaries();
    for account in &accounts {
        let name = hand.counter(*account);
        let taken = shards.iter().filter(|shard| {
            let answer = cluster.nodes[**shard].try_command::<()>(&["SET", &name, "junk"]);
            answer.is_ok()
        });
        assert_eq!(taken.count(), 1);
    }
    let scanned = async || {
        let mut scan = counters.scan().await.expect("a scan");
        let mut found = BTreeSet::new();
        while let Some(accounts) = counters.step(&mut scan).await.expect("a step") {
            found.extend(accounts);
        }
        found
    };
    assert_eq!(scanned().await, accounts);
    let read: Vec<AccountId> = accounts.iter().copied().collect();
    let readings = counters.read(&read).await.expect("readings");
    assert_eq!(readings.len(), read.len());
    let junk = Reading::Present {
        number: Vec::new(),
        line: None,
        grants_wait: false,
    };
    assert!(readings.iter().all(|reading| *reading == junk));
    let forget: Vec<(AccountId, Vec<u8>)> = read.iter().map(|id| (*id, Vec::new())).collect();
    counters
        .forget(&forget)
        .await
        .expect("the counters are deleted");
    assert!(scanned().await.is_empty());
}
