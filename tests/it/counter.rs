//! Counters on a real Redis: what is settled is told, whatever else is in Redis counts for
//! nothing, and a Redis that does not serve is known within the timeout.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::counter::{
    Ask, Counter, CounterError, Counters, KEYS_MAX, RedisAccess, SettledKeys, Settlement,
    Unavailable,
};
use perdiem::domain::grant::{Line, Total};
use perdiem::domain::identity::{AccountId, KeyId};
use perdiem::domain::window::{Per, Window};
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

use crate::support::app::{NOON, eventually, instant};
use crate::support::servers::{self, Redis};

const TIMEOUT: Duration = Duration::from_secs(10);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(0xab << 120 | 1));

/// Counters of a ledger that nobody else has, and a hand in their Redis.
struct Bench {
    counters: Counters,
    ledger: Uuid,
    redis: MultiplexedConnection,
}

impl Bench {
    async fn new() -> Self {
        Self::on(&servers::redis().url(), Uuid::new_v4()).await
    }

    async fn on(url: &str, ledger: Uuid) -> Self {
        let counters = Counters::open(url, &RedisAccess::default(), ledger, TIMEOUT).await;
        Self {
            counters: counters.expect("counters"),
            ledger,
            redis: servers::redis_at(url).await,
        }
    }

    /// The name of the account's counter: the only one of this ledger.
    async fn name(&mut self) -> String {
        let pattern = format!("perdiem:{{{}:*", self.ledger.simple());
        let names: Vec<String> = self.run(&["KEYS", &pattern]).await;
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].clone()
    }

    async fn run<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let answer = command.query_async(&mut self.redis).await;
        answer.expect("an answer")
    }

    async fn settle(&self, settlement: Settlement) {
        let settled = self.counters.settle(&[settlement]).await;
        settled.expect("it is settled");
    }

    async fn ask(&self) -> Option<Counter> {
        let ask = Ask {
            account: ACCOUNT,
            looks_at_queue: false,
        };
        let answers = self.counters.ask(&[ask]).await.expect("an answer");
        answers.into_iter().next().expect("one answer").counter
    }

    /// The number that the counter bears.
    async fn number(&self) -> Option<u64> {
        self.ask().await.map(|counter| counter.line.number)
    }

    /// Which of the keys 1 to `count` it knows; none when it does not hold all of them.
    async fn keys(&mut self, count: u128) -> Option<Vec<u128>> {
        let counter = self.ask().await.expect("a counter");
        let name = self.name().await;
        let fields: Vec<Vec<u8>> = self.run(&["HKEYS", &name]).await;
        let knows = |number: &u128| {
            let key = key(*number).0.into_bytes();
            fields.iter().any(|field| field.ends_with(&key))
        };
        let known: Vec<u128> = (1..=count).filter(knows).collect();
        assert!(counter.holds_all_keys || known.is_empty(), "{known:?}");
        counter.holds_all_keys.then_some(known)
    }
}

fn key(number: u128) -> KeyId {
    KeyId(Uuid::from_u128(number << 64 | 0x0a0d_2000))
}

fn keys(numbers: impl IntoIterator<Item = u128>) -> Vec<KeyId> {
    numbers.into_iter().map(key).collect()
}

fn now() -> DateTime<Utc> {
    instant(NOON)
}

fn line(number: u64) -> Line {
    let day = instant("2026-11-20T16:00:00Z");
    let total = |per, used, days| Total {
        per,
        max: 9_007_199_254_740_991,
        used,
        window: Window {
            start: day,
            end: day + TimeDelta::days(days),
        },
    };
    Line {
        number,
        at: now() + TimeDelta::microseconds(i64::try_from(number).expect("a number")),
        policy_version: 3,
        lapses_at: None,
        totals: Arc::new([
            total(Per::Day, number * 2, 1),
            total(Per::Week, number * 3, 7),
        ]),
    }
}

fn settlement(number: u64, keys: SettledKeys) -> Settlement {
    Settlement {
        account: ACCOUNT,
        line: line(number),
        confirmed_at: DateTime::from_timestamp_millis(now().timestamp_millis())
            .expect("an instant"),
        only_existing: false,
        seen: None,
        keys,
        ttl: Duration::from_secs(3600),
    }
}

fn all(number: u64, numbers: impl IntoIterator<Item = u128>) -> Settlement {
    settlement(number, SettledKeys::All(keys(numbers)))
}

/// The keys of the entries that lead from the line `after` to the line `number`.
fn after(number: u64, after: u64, numbers: impl IntoIterator<Item = u128>) -> Settlement {
    settlement(number, SettledKeys::After(line(after), keys(numbers)))
}

#[tokio::test]
async fn what_is_settled_is_told() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.ask().await, None);
    let settled = all(5, [1, 2]);
    bench.settle(settled.clone()).await;
    let told = bench.ask().await.expect("a counter");
    assert_eq!(told.line, settled.line);
    assert_eq!(told.confirmed_at, settled.confirmed_at);
    assert_eq!(bench.keys(3).await, Some(vec![1, 2]));
    // It lasts as long as it is of use.
    let name = bench.name().await;
    let ttl: i64 = bench.run(&["PTTL", &name]).await;
    assert!((1..=3_600_000).contains(&ttl), "{ttl}");
    // All of one account's keys are in one slot: its bucket is the hash tag.
    assert!(
        name.starts_with("perdiem:{") && name.contains(":ab}:"),
        "{name}"
    );
}

#[tokio::test]
async fn many_are_asked_and_settled_at_once() {
    let bench = Bench::new().await;
    let account = |number: u128| AccountId(Uuid::from_u128(number << 120 | 7));
    let settlements: Vec<Settlement> = (0..100)
        .map(|number| Settlement {
            account: account(number),
            ..all(number as u64 + 1, [number])
        })
        .collect();
    bench.counters.settle(&settlements).await.expect("settled");
    // In the order of the asks, holes too.
    let asks: Vec<Ask> = (0..120)
        .rev()
        .map(|number| Ask {
            account: account(number),
            looks_at_queue: number % 3 == 0,
        })
        .collect();
    let answers = bench.counters.ask(&asks).await.expect("answers");
    assert_eq!(answers.len(), 120);
    for (answer, number) in answers.iter().zip((0..120u64).rev()) {
        assert!(!answer.grants_wait);
        match &answer.counter {
            None => assert!(number >= 100),
            Some(counter) => assert_eq!(counter.line, line(number + 1)),
        }
    }
}

#[tokio::test]
async fn a_lower_line_never_overwrites_but_for_the_one_that_was_seen() {
    let mut bench = Bench::new().await;
    let lower = |seen| Settlement {
        seen,
        ..all(5, [1])
    };
    bench.settle(all(9, [1, 2])).await;
    bench.settle(lower(None)).await;
    bench.settle(lower(Some(8))).await;
    bench.settle(lower(Some(10))).await;
    assert_eq!(bench.number().await, Some(9));
    assert_eq!(bench.keys(2).await, Some(vec![1, 2]));
    // Whoever saw 9 and learned from the ledger that it is 5 is right.
    bench.settle(lower(Some(9))).await;
    assert_eq!(bench.number().await, Some(5));
    assert_eq!(bench.keys(2).await, Some(vec![1]));
    // A higher one always does.
    bench.settle(all(6, [])).await;
    assert_eq!(bench.number().await, Some(6));
}

/// So that none lags, and none is made where nothing could be denied.
#[tokio::test]
async fn only_a_counter_that_exists_is_kept() {
    let bench = Bench::new().await;
    let kept = |number| Settlement {
        only_existing: true,
        ..all(number, [])
    };
    bench.settle(kept(1)).await;
    assert_eq!(bench.number().await, None);
    // The counter is made by the settlement before, in the same batch.
    let both = [all(2, []), kept(3)];
    bench.counters.settle(&both).await.expect("settled");
    assert_eq!(bench.number().await, Some(3));
    bench.settle(kept(4)).await;
    assert_eq!(bench.number().await, Some(4));
}

#[tokio::test]
async fn settled_twice_is_settled_once() {
    let mut bench = Bench::new().await;
    let steps = [all(1, [1]), after(3, 1, [2, 3]), after(3, 3, [])];
    for step in steps {
        bench.settle(step.clone()).await;
        let once = bench.ask().await;
        let keys = bench.keys(4).await;
        bench.settle(step).await;
        assert_eq!(bench.ask().await, once);
        assert_eq!(bench.keys(4).await, keys);
    }
    assert_eq!(bench.keys(4).await, Some(vec![1, 2, 3]));
}

#[tokio::test]
async fn keys_are_complete_only_where_nothing_is_missing() {
    let mut bench = Bench::new().await;
    // Nothing to go on from.
    bench.settle(after(4, 3, [4])).await;
    assert_eq!(bench.keys(4).await, None);
    // Incomplete stays incomplete.
    bench.settle(after(5, 4, [5])).await;
    assert_eq!(bench.keys(5).await, None);
    // All that there are.
    bench.settle(all(5, [1, 2, 5])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5]));
    // From the line that the counter bears.
    bench.settle(after(7, 5, [6])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5, 6]));
    // Confirmed as it is.
    bench.settle(after(7, 7, [])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5, 6]));
    // The one before was lost.
    bench.settle(after(9, 8, [9])).await;
    assert_eq!(bench.keys(9).await, None);
    assert_eq!(bench.number().await, Some(9));
    // The one before comes late: it knows nothing better.
    bench.settle(after(8, 7, [8])).await;
    assert_eq!(bench.keys(9).await, None);
    assert_eq!(bench.number().await, Some(9));
    // All of them replace whatever it held.
    bench.settle(all(9, [9])).await;
    assert_eq!(bench.keys(9).await, Some(vec![9]));
}

/// As after a ledger was restored from a backup: the numbers come once more with other
/// entries, and the counter's keys are not theirs.
#[tokio::test]
async fn another_line_of_the_same_number_is_not_gone_on_from() {
    let mut bench = Bench::new().await;
    let other = |mut settlement: Settlement| {
        settlement.line.at += TimeDelta::minutes(1);
        settlement
    };
    bench.settle(other(all(5, [1, 2]))).await;
    bench.settle(after(5, 4, [3])).await;
    assert_eq!(bench.ask().await.expect("a counter").line, line(5));
    assert_eq!(bench.keys(3).await, None);
    bench.settle(other(all(5, [1, 2]))).await;
    bench.settle(after(6, 5, [4])).await;
    assert_eq!(bench.number().await, Some(6));
    assert_eq!(bench.keys(4).await, None);
}

/// Such a settlement leaves out a key, perhaps: the counter no longer holds all of them.
#[tokio::test]
async fn a_settlement_that_tells_no_keys_leaves_a_counter_without() {
    let mut bench = Bench::new().await;
    bench.settle(all(5, [1, 2])).await;
    assert_eq!(bench.keys(2).await, Some(vec![1, 2]));
    bench.settle(settlement(6, SettledKeys::Unknown)).await;
    assert_eq!(bench.keys(2).await, None);
    assert_eq!(bench.number().await, Some(6));
    bench.settle(after(7, 6, [3])).await;
    assert_eq!(bench.keys(3).await, None);
}

#[tokio::test]
async fn a_counter_holds_only_so_many_keys() {
    let mut bench = Bench::new().await;
    let most = u128::from(KEYS_MAX);
    // An account has an entry for each of its keys at least.
    let number = u64::from(KEYS_MAX);
    bench.settle(all(number, 1..=most)).await;
    assert_eq!(bench.keys(most + 1).await, Some((1..=most).collect()));
    // One more than it may hold: it holds none.
    bench.settle(after(number + 1, number, [most + 1])).await;
    assert_eq!(bench.keys(most + 1).await, None);
    assert_eq!(bench.number().await, Some(number + 1));
    // Up to the edge.
    bench.settle(all(number + 2, 1..most)).await;
    bench.settle(after(number + 3, number + 2, [most])).await;
    assert_eq!(bench.keys(most + 1).await, Some((1..=most).collect()));
}

/// Whatever is in Redis under a counter's name: it is no counter, it does no harm, and the
/// next settlement puts one in its place.
#[tokio::test]
async fn junk_is_no_counter_and_is_healed() {
    let mut bench = Bench::new().await;
    bench.settle(all(5, [1])).await;
    let name = bench.name().await;
    let junk: Vec<Vec<&str>> = vec![
        vec!["SET", &name, "junk"],
        vec!["LPUSH", &name, "junk"],
        vec!["SADD", &name, "junk"],
        vec!["HSET", &name, "number", "junk"],
        vec!["HSET", &name, "number", ""],
        vec!["HSET", &name, "number", "-9"],
        vec!["HSET", &name, "number", "9.5"],
        vec!["HSET", &name, "number", "0x10"],
        vec!["HSET", &name, "number", " 9"],
        vec!["HSET", &name, "number", "1e3"],
        vec!["HSET", &name, "number", "inf"],
        vec!["HSET", &name, "number", "nan"],
        vec!["HSET", &name, "number", "99999999999999999999999999"],
        vec!["HSET", &name, "number", "9", "line", "junk"],
        vec!["HSET", &name, "number", "9", "line", ""],
        vec!["HSET", &name, "number", "9", "line", "1 2"],
        vec!["HSET", &name, "number", "9", "line", "1 -2 []"],
        vec!["HSET", &name, "number", "9", "confirmed", "junk"],
        vec![
            "HSET",
            &name,
            "number",
            "9",
            "confirmed",
            "99999999999999999999",
        ],
        vec!["HDEL", &name, "line"],
        vec!["HDEL", &name, "number"],
        vec!["HDEL", &name, "confirmed"],
        vec!["HDEL", &name, "keys"],
    ];
    for words in &junk {
        for settled in [all(6, [1, 2]), after(6, 5, [2])] {
            let _: i64 = bench.run(&["DEL", &name]).await;
            if words[0].starts_with('H') {
                bench.settle(all(5, [1])).await;
            }
            let _: redis::Value = bench.run(words).await;
            assert_eq!(bench.ask().await, None, "{words:?}");
            assert_eq!(bench.ask().await, None, "{words:?}");
            bench.settle(settled).await;
            let told = bench.ask().await;
            let told = told.unwrap_or_else(|| panic!("{words:?} is not healed"));
            assert_eq!(told.line, line(6), "{words:?}");
        }
    }
    assert!(bench.counters.is_available());
}

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

#[tokio::test]
async fn another_ledgers_counters_are_never_read() {
    let one = Bench::new().await;
    let other = Bench::new().await;
    one.settle(all(5, [1])).await;
    assert_eq!(other.ask().await, None);
    other.settle(all(2, [2])).await;
    assert_eq!(
        (one.number().await, other.number().await),
        (Some(5), Some(2))
    );
}

/// A Redis that hangs is known within the timeout, and found again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_redis_is_unavailable_and_comes_back() {
    let redis = Redis::start();
    let timeout = Duration::from_millis(50);
    let counters = Counters::open(
        &redis.url(),
        &RedisAccess::default(),
        Uuid::new_v4(),
        timeout,
    )
    .await;
    let counters = counters.expect("counters");
    let asks = [Ask {
        account: ACCOUNT,
        looks_at_queue: false,
    }];
    assert!(counters.is_available());
    redis.pause();
    let asked = counters.ask(&asks).await;
    assert!(matches!(asked, Err(Unavailable)), "{asked:?}");
    assert!(!counters.is_available());
    let settled = counters.settle(&[all(1, [])]).await;
    assert!(matches!(settled, Err(Unavailable)));
    redis.resume();
    eventually("Redis is found again", || async { counters.is_available() }).await;
    counters.settle(&[all(1, [])]).await.expect("settled");
    let asked = counters.ask(&asks).await.expect("an answer");
    assert_eq!(
        asked[0].counter.as_ref().map(|counter| counter.line.number),
        Some(1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_is_unavailable_and_comes_back_empty() {
    let mut redis = Redis::start();
    let bench = Bench::on(&redis.url(), Uuid::new_v4()).await;
    bench.settle(all(1, [])).await;
    redis.kill();
    eventually("it is noticed", || async {
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

/// A Redis that is not there yet is no error, and is found once it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_may_come_later() {
    let mut redis = Redis::start();
    redis.kill();
    let counters = Counters::open(
        &redis.url(),
        &RedisAccess::default(),
        Uuid::new_v4(),
        TIMEOUT,
    )
    .await;
    let counters = counters.expect("it opens all the same");
    assert!(!counters.is_available());
    redis.restart();
    eventually("Redis is found", || async { counters.is_available() }).await;
}

#[tokio::test]
async fn a_redis_that_may_evict_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let redis = Redis::start_with(&["--maxmemory-policy", policy]);
        let opened = Counters::open(
            &redis.url(),
            &RedisAccess::default(),
            Uuid::new_v4(),
            TIMEOUT,
        )
        .await;
        let Err(error @ CounterError::Evicts { .. }) = opened else {
            panic!("{policy} is accepted");
        };
        let text = error.to_string();
        assert!(
            text.contains(policy) && text.contains("noeviction"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_refused() {
    for url in [
        "",
        "localhost",
        "http://127.0.0.1:1",
        "redis://127.0.0.1:junk",
    ] {
        let opened = Counters::open(url, &RedisAccess::default(), Uuid::new_v4(), TIMEOUT).await;
        assert!(matches!(opened, Err(CounterError::Url(_))), "{url}");
    }
}

/// Neither found at the start nor one that its primary became: nothing can be settled there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_unavailable_until_it_is_promoted() {
    let primary = Redis::start();
    let redis = Redis::start();
    let mut bench = Bench::on(&redis.url(), Uuid::new_v4()).await;
    bench.settle(all(1, [])).await;
    let port = primary.port().to_string();
    let _: () = bench.run(&["REPLICAOF", "127.0.0.1", &port]).await;
    // READONLY to the first settlement.
    let settled = bench.counters.settle(&[all(2, [])]).await;
    assert!(matches!(settled, Err(Unavailable)));
    assert!(!bench.counters.is_available());
    let late = Counters::open(
        &redis.url(),
        &RedisAccess::default(),
        Uuid::new_v4(),
        TIMEOUT,
    )
    .await;
    let late = late.expect("it opens all the same");
    assert!(!late.is_available());
    let _: () = bench.run(&["REPLICAOF", "NO", "ONE"]).await;
    eventually("the primary is found", || async {
        late.is_available() && bench.counters.is_available()
    })
    .await;
    bench.settle(all(2, [])).await;
    assert_eq!(bench.number().await, Some(2));
}
