//! Counters on several shards: a scan finds those of each.

use std::collections::BTreeSet;
use std::time::Duration;

use perdiem::counter::{Counters, Reading, RedisAccess};
use perdiem::domain::identity::AccountId;
use uuid::Uuid;

use crate::support::app::eventually;
use crate::support::servers::Redis;

const SLOTS: u32 = 16_384;

async fn run(redis: &Redis, words: &[String]) -> redis::RedisResult<redis::Value> {
    let client = redis::Client::open(redis.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query_async(&mut connection).await
}

async fn cluster(redis: &Redis, words: &[&str]) -> String {
    let words: Vec<String> = ["CLUSTER"]
        .iter()
        .chain(words)
        .map(ToString::to_string)
        .collect();
    let answer = run(redis, &words).await.expect("an answer");
    redis::from_redis_value(answer).unwrap_or_default()
}

/// Three primaries that share the slots.
async fn shards() -> Vec<Redis> {
    let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
    let shards: Vec<Redis> = (0..3).map(|_| Redis::start_with(&args)).collect();
    let first = shards[0].port().to_string();
    for (index, shard) in (0u32..).zip(&shards) {
        let start = SLOTS * index / 3;
        let end = SLOTS * (index + 1) / 3 - 1;
        cluster(
            shard,
            &["ADDSLOTSRANGE", &start.to_string(), &end.to_string()],
        )
        .await;
        cluster(shard, &["SET-CONFIG-EPOCH", &(index + 1).to_string()]).await;
        if index > 0 {
            cluster(shard, &["MEET", "127.0.0.1", &first]).await;
        }
    }
    for shard in &shards {
        eventually("the cluster stands", || async {
            let info = cluster(shard, &["INFO"]).await;
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
        .await;
    }
    shards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shard_is_scanned() {
    let shards = shards().await;
    let url = format!("redis+cluster://127.0.0.1:{}", shards[1].port());
    let ledger = Uuid::new_v4();
    let counters = Counters::open(
        &url,
        &RedisAccess::default(),
        ledger,
        Duration::from_secs(10),
    )
    .await;
    let counters = counters.expect("counters");
    eventually("the cluster serves", || async { counters.is_available() }).await;
    let accounts: BTreeSet<AccountId> = (0..=u8::MAX)
        .flat_map(|bucket| (1..=4).map(move |number| (bucket, number)))
        .map(|(bucket, number)| AccountId(Uuid::from_u128(u128::from(bucket) << 120 | number)))
        .collect();
    // Each where it belongs: the shard that takes it.
    for account in &accounts {
        let bucket = account.0.as_bytes()[0];
        let name = format!(
            "perdiem:{{{}:{bucket:02x}}}:{}",
            ledger.simple(),
            account.0.simple()
        );
        let words = ["SET".to_owned(), name, "junk".to_owned()];
        let mut taken = 0;
        for shard in &shards {
            taken += usize::from(run(shard, &words).await.is_ok());
        }
        assert_eq!(taken, 1);
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
    counters.forget(&forget).await.expect("forgotten");
    assert!(scanned().await.is_empty());
}
