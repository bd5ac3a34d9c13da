//! Counters on a real Redis. A settled line is returned. Other content of Redis has no effect. An
//! unavailable Redis is found within the timeout.

mod keys;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::counter::{Ask, Counter, Counters, RedisAccess, SettledKeys, Settlement};
use perdiem::domain::grant::Line;
use perdiem::domain::identity::{AccountId, KeyId};
use perdiem::domain::limit::total::{LimitState, Total, WindowUse};
use perdiem::domain::window::Length;
use perdiem::domain::window::Window;
use redis::aio::MultiplexedConnection;
use uuid::Uuid;

use crate::support::app::{NOON, instant};
use crate::support::servers::{redis, redis_at};

const TIMEOUT: Duration = Duration::from_secs(10);
const ACCOUNT: AccountId = AccountId(Uuid::from_u128(0xab << 120 | 1));

/// Counters can be opened without a running Redis.
async fn open(url: &str, ledger: Uuid, timeout: Duration) -> Counters {
    let counters = Counters::open(url, &RedisAccess::default(), ledger, timeout).await;
    counters.expect("counters")
}

/// Counters of a new ledger, and a hand in their Redis.
struct Bench {
    counters: Counters,
    ledger: Uuid,
    redis: MultiplexedConnection,
}

impl Bench {
    async fn new() -> Self {
        Self::on(&redis().url(), Uuid::new_v4()).await
    }

    async fn on(url: &str, ledger: Uuid) -> Self {
        Self {
            counters: open(url, ledger, TIMEOUT).await,
            ledger,
            redis: redis_at(url).await,
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
        settled.expect("settled");
    }

    async fn ask(&self) -> Option<Counter> {
        let ask = Ask {
            account: ACCOUNT,
            looks_at_queue: false,
        };
        let answers = self.counters.ask(&[ask]).await.expect("an answer");
        answers.into_iter().next().expect("one answer").counter
    }

    /// The counter's number.
    async fn number(&self) -> Option<u64> {
        self.ask().await.map(|counter| counter.line.number)
    }

    /// Which of the keys 1 to `count` the counter knows. Returns `None` when it does not have all
    /// keys.
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
    let total = |length: Length, used, days| Total {
        max: 9_007_199_254_740_991,
        reset_at: None,
        state: LimitState::Calendar(WindowUse {
            division: Some(length.into()),
            used,
            window: Window {
                start: day,
                end: day + TimeDelta::days(days),
            },
        }),
    };
    Line {
        number,
        at: now() + TimeDelta::microseconds(i64::try_from(number).expect("a number")),
        policy_version: 3,
        lapses_at: None,
        calendar: None,
        top_ups: None,
        totals: Arc::new([
            total(Length::Day, number * 2, 1),
            total(Length::Week, number * 3, 7),
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

/// A settlement with the keys of the entries from the line `after` to the line `number`.
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
    // The counter expires when it is of no more use.
    let name = bench.name().await;
    let ttl: i64 = bench.run(&["PTTL", &name]).await;
    assert!((1..=3_600_000).contains(&ttl), "{ttl}");
    // All keys of one account are in one slot: its bucket is the hash tag.
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
    // The answers have the order of the asks, with gaps too.
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
    // A settler that saw 9 and learned 5 from the ledger may lower the counter.
    bench.settle(lower(Some(9))).await;
    assert_eq!(bench.number().await, Some(5));
    assert_eq!(bench.keys(2).await, Some(vec![1]));
    // A higher number is always accepted.
    bench.settle(all(6, [])).await;
    assert_eq!(bench.number().await, Some(6));
}

/// Therefore no counter lags, and none is made where no claim could be denied.
#[tokio::test]
async fn only_a_counter_that_exists_is_kept() {
    let bench = Bench::new().await;
    let kept = |number| Settlement {
        only_existing: true,
        ..all(number, [])
    };
    bench.settle(kept(1)).await;
    assert_eq!(bench.number().await, None);
    // The first settlement of this batch makes the counter.
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

/// Junk under a counter's name is no counter and does no harm. The next settlement replaces it.
#[tokio::test]
async fn junk_is_no_counter_and_is_healed() {
    let mut bench = Bench::new().await;
    bench.settle(all(5, [1])).await;
    let name = bench.name().await;
    // A command, and its words after the name.
    let junk: &[&[&str]] = &[
        &["SET", "junk"],
        &["LPUSH", "junk"],
        &["SADD", "junk"],
        &["HSET", "number", "junk"],
        &["HSET", "number", ""],
        &["HSET", "number", "-9"],
        &["HSET", "number", "9.5"],
        &["HSET", "number", "0x10"],
        &["HSET", "number", " 9"],
        &["HSET", "number", "1e3"],
        &["HSET", "number", "inf"],
        &["HSET", "number", "nan"],
        &["HSET", "number", "99999999999999999999999999"],
        &["HSET", "number", "9", "line", "junk"],
        &["HSET", "number", "9", "line", ""],
        &["HSET", "number", "9", "line", "1 2"],
        &["HSET", "number", "9", "line", "1 -2 []"],
        &["HSET", "number", "9", "confirmed", "junk"],
        &["HSET", "number", "9", "confirmed", "99999999999999999999"],
        &["HDEL", "line"],
        &["HDEL", "number"],
        &["HDEL", "confirmed"],
        &["HDEL", "keys"],
    ];
    for words in junk {
        for settled in [all(6, [1, 2]), after(6, 5, [2])] {
            let _: i64 = bench.run(&["DEL", &name]).await;
            if words[0].starts_with('H') {
                bench.settle(all(5, [1])).await;
            }
            let command = [&words[..1], &[name.as_str()], &words[1..]].concat();
            let _: redis::Value = bench.run(&command).await;
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
