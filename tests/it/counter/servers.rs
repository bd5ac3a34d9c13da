//! A Redis that forgets, hangs, dies, starts late, or is a replica.

use std::time::Duration;

use perdiem::counter::{Ask, Unavailable};
use uuid::Uuid;

use super::{ACCOUNT, Bench, TIMEOUT, all, open};
use crate::support::app::eventually;
use crate::support::servers::Redis;

#[tokio::test]
async fn scripts_may_be_forgotten_at_any_time() {
    let redis = Redis::start();
    let mut bench = Bench::on(&redis.url(), Uuid::new_v4()).await;
    for number in 1..=3 {
        let _: () = bench.run(&["SCRIPT", "FLUSH"]).await;
        bench.settle(all(number, [1])).await;
        assert_eq!(bench.number().await, Some(number));
    }
    let _: () = bench.run(&["FLUSHALL"]).await;
    assert_eq!(bench.ask().await, None);
}

/// A Redis that hangs is found within the timeout. When it works again, it is used again without
/// help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_redis_is_unavailable_and_comes_back() {
    let redis = Redis::start();
    let timeout = Duration::from_millis(50);
    let counters = open(&redis.url(), Uuid::new_v4(), timeout).await;
    let asks = [Ask {
        account: ACCOUNT,
        looks_at_queue: false,
    }];
    eventually("Redis is found", || async { counters.is_available() }).await;
    redis.pause();
    let asked = counters.ask(&asks).await;
    assert!(matches!(asked, Err(Unavailable)), "{asked:?}");
    assert!(!counters.is_available());
    let settled = counters.settle(&[all(1, [])]).await;
    assert!(matches!(settled, Err(Unavailable)));
    redis.resume();
    // A busy machine can take longer than the timeout.
    eventually("Redis is used again", || async {
        counters.settle(&[all(1, [])]).await.is_ok()
    })
    .await;
    eventually("the line is found", || async {
        let asked = counters.ask(&asks).await;
        asked.is_ok_and(|asked| {
            let counter = asked[0].counter.as_ref();
            counter.expect("a counter").line.number == 1
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_is_unavailable_and_comes_back_empty() {
    let mut redis = Redis::start();
    let bench = Bench::on(&redis.url(), Uuid::new_v4()).await;
    bench.settle(all(1, [])).await;
    redis.kill();
    eventually("the instance notices that Redis is gone", || async {
        let ask = Ask {
            account: ACCOUNT,
            looks_at_queue: false,
        };
        bench.counters.ask(&[ask]).await.is_err()
    })
    .await;
    assert!(!bench.counters.is_available());
    redis.restart();
    eventually("Redis is found again", || async {
        bench.counters.is_available()
    })
    .await;
    assert_eq!(bench.ask().await, None);
    bench.settle(all(1, [])).await;
    assert_eq!(bench.number().await, Some(1));
}

/// A Redis that does not run yet is no error. It is used after it starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_may_come_later() {
    let mut redis = Redis::start();
    redis.kill();
    let counters = open(&redis.url(), Uuid::new_v4(), TIMEOUT).await;
    assert!(!counters.is_available());
    redis.restart();
    eventually("Redis is found", || async { counters.is_available() }).await;
}

/// The instance finds a replica at the start, or its primary becomes one. Nothing can be settled
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_unavailable_until_it_is_promoted() {
    let primary = Redis::start();
    let redis = Redis::start();
    let mut bench = Bench::on(&redis.url(), Uuid::new_v4()).await;
    bench.settle(all(1, [])).await;
    let port = primary.port().to_string();
    let _: () = bench.run(&["REPLICAOF", "127.0.0.1", &port]).await;
    // The first settlement gets READONLY.
    let settled = bench.counters.settle(&[all(2, [])]).await;
    assert!(matches!(settled, Err(Unavailable)));
    assert!(!bench.counters.is_available());
    let late = open(&redis.url(), Uuid::new_v4(), TIMEOUT).await;
    assert!(!late.is_available());
    let _: () = bench.run(&["REPLICAOF", "NO", "ONE"]).await;
    eventually("the primary is found", || async {
        late.is_available() && bench.counters.is_available()
    })
    .await;
    bench.settle(all(2, [])).await;
    assert_eq!(bench.number().await, Some(2));
}
