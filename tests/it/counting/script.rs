//! The script that counts, case by case. `sim/scripts.rs` compares it with the simulator's Redis, whose
//! counts the simulator compares with plain sums.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::counter::{
    Count, Counted, CountedGrant, Counters, LedgerWord, Looked, Queued, QueuedGrant,
    RecordedGrants, RedisAccess, SettledKeys, Settlement,
};
use perdiem::domain::claim::{Metadata, Subject, Units};
use perdiem::domain::grant::{Line, Total};
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::policy::PolicyId;
use perdiem::domain::window::{Per, Window};
use uuid::Uuid;

use crate::support::app::{NOON, instant};
use crate::support::hand::Hand;
use crate::support::servers;

/// An account of a ledger that nobody else has.
struct Bench {
    counters: Counters,
    hand: Hand,
    account: AccountId,
    /// Whether the policy only observes.
    observes: bool,
    now: DateTime<Utc>,
    clocks_differ: TimeDelta,
}

impl Bench {
    async fn new() -> Self {
        let (url, ledger) = (servers::redis().url(), Uuid::new_v4());
        let timeout = Duration::from_secs(10);
        let counters = Counters::open(&url, &RedisAccess::default(), ledger, timeout).await;
        Self {
            counters: counters.expect("counters"),
            hand: Hand::at(&url, ledger).await,
            account: AccountId(Uuid::new_v4()),
            observes: false,
            now: instant(NOON),
            // As if the connection had begun long before.
            clocks_differ: TimeDelta::days(-400),
        }
    }

    fn grant(&self, number: u64, key: Option<u64>, units: u64, at: DateTime<Utc>) -> CountedGrant {
        CountedGrant {
            account: self.account,
            entry: EntryId::new(at, 0, number),
            key: key.map(|key| KeyId(Uuid::from_u64_pair(7, key))),
            policy: PolicyId(5),
            policy_version: 3,
            subject: Some(Subject::new("member-42").expect("a subject")),
            units: Units::new(units.into()).expect("units"),
            metadata: Some(Metadata::from_stored(
                r#"{"order":"A\u0022-17"}"#.to_owned(),
            )),
            claimed_by: Some(KeyNumber(7)),
        }
    }

    async fn count(
        &self,
        grant: Option<CountedGrant>,
        totals: &[Total],
        ledger: LedgerWord,
    ) -> Counted {
        let count = Count {
            account: self.account,
            policy_version: 3,
            now: self.now,
            observes: self.observes,
            totals: totals.to_vec(),
            ledger,
            grant,
        };
        let answers = self.counters.count(&[count], self.clocks_differ).await;
        let answers = answers.expect("an answer");
        let answer = answers.into_iter().next().expect("one answer");
        answer.expect("a decision")
    }

    async fn look(&self, totals: &[Total], ledger: LedgerWord) -> Looked {
        match self.count(None, totals, ledger).await {
            Counted::Looked(looked) => looked,
            other => panic!("{other:?}"),
        }
    }

    async fn queued(&self) -> Vec<QueuedGrant> {
        let queued = self.counters.queued(&[self.account.bucket()], 1000).await;
        let queued = queued.expect("the queue").into_iter();
        queued
            .map(|queued| match queued {
                Queued::Grant(grant) => grant,
                Queued::Unreadable(..) => panic!("it can be read"),
            })
            .collect()
    }

    fn settlement(&self, line: Line) -> Settlement {
        Settlement {
            account: self.account,
            line,
            confirmed_at: instant(NOON),
            only_existing: false,
            seen: None,
            keys: SettledKeys::All(Vec::new()),
            ttl: Duration::from_secs(3600),
        }
    }

    async fn settle(&self, settlement: Settlement) {
        let settled = self.counters.settle(&[settlement]).await;
        settled.expect("it is settled");
    }

    async fn set_aside(&self, queued: &Queued) {
        let done = self.counters.set_aside(queued).await;
        done.expect("it is set aside");
    }

    /// Tells Redis, twice, that the ledger has queued grants up to a line: a client library may
    /// send it again.
    async fn record(&self, taken: &[QueuedGrant], line: Line) {
        let record = RecordedGrants {
            settlement: self.settlement(line),
            grants: taken.iter().collect(),
        };
        let recorded = self.counters.record(&[record.clone(), record]).await;
        recorded.expect("it is recorded");
    }
}

/// The window of so many seconds that contains an instant, in UTC.
fn window(seconds: i64, at: DateTime<Utc>) -> Window {
    let start = at.timestamp().div_euclid(seconds) * seconds;
    let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("an instant");
    Window {
        start: at(start),
        end: at(start + seconds),
    }
}

fn hour(at: DateTime<Utc>) -> Window {
    window(3600, at)
}

fn day(at: DateTime<Utc>) -> Window {
    window(86_400, at)
}

fn totals(at: DateTime<Utc>, max: [u64; 2], used: [u64; 2]) -> Vec<Total> {
    let total = |per, max, used, window| Total {
        per,
        max,
        used,
        window,
    };
    vec![
        total(Per::Hour, max[0], used[0], hour(at)),
        total(Per::Day, max[1], used[1], day(at)),
    ]
}

fn line(number: u64, at: DateTime<Utc>, totals: Vec<Total>) -> Line {
    Line {
        number,
        at,
        policy_version: 3,
        lapses_at: None,
        totals: totals.into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_observes_denies_nothing() {
    const MOST: u64 = 9_007_199_254_740_991;
    let at = instant(NOON);
    let mut bench = Bench::new().await;
    let count = async |bench: &Bench, number, units| {
        let grant = bench.grant(number, None, units, at);
        let totals = totals(at, [2, 10], [0, 0]);
        bench.count(Some(grant), &totals, LedgerWord::Line(0)).await
    };
    let denied = count(&bench, 1, 3).await;
    assert_eq!(denied, Counted::Denied(vec![0, 0], None));
    bench.observes = true;
    assert_eq!(count(&bench, 1, 3).await, Counted::Granted(vec![3, 3]));
    assert_eq!(count(&bench, 2, 8).await, Counted::Granted(vec![11, 11]));
    let totals: Vec<u64> = bench.queued().await[1]
        .totals
        .iter()
        .map(|total| total.used)
        .collect();
    assert_eq!(totals, [11, 11]);
    // But for what a double does not count exactly.
    assert_eq!(
        count(&bench, 3, MOST - 11).await,
        Counted::Granted(vec![MOST, MOST])
    );
    assert_eq!(
        count(&bench, 4, 1).await,
        Counted::Waits(vec![MOST, MOST], None)
    );
}

/// What the ledger told before the connection began may have been rolled back with Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_before_the_connection_are_not_all() {
    let at = instant(NOON);
    let mut bench = Bench::new().await;
    let total = totals(at, [5, 10], [1, 1]);
    let settlement = bench.settlement(line(1, at, total.clone()));
    bench.settle(settlement).await;
    for (number, key) in [(1, None), (2, Some(1))] {
        let trusts = |bench: &Bench| bench.grant(number, key, 1, at);
        bench.clocks_differ = TimeDelta::seconds(20);
        let counted = bench.count(Some(trusts(&bench)), &total, LedgerWord::NotAsked);
        let used = vec![number + 1; 2];
        match key {
            Some(_) => assert_eq!(counted.await, Counted::AskLedger(Some(1))),
            None => assert_eq!(counted.await, Counted::Granted(used.clone())),
        }
        bench.clocks_differ = TimeDelta::seconds(-20);
        let counted = bench.count(Some(trusts(&bench)), &total, LedgerWord::NotAsked);
        match key {
            Some(_) => assert_eq!(counted.await, Counted::Granted(used)),
            None => assert!(matches!(counted.await, Counted::Queued(_))),
        }
    }
}

const MAX: [u64; 2] = [5, 12];

#[tokio::test]
async fn a_claim_that_is_sent_twice_is_counted_once() {
    let bench = Bench::new().await;
    let now = instant(NOON);
    let totals = totals(now, MAX, [0, 0]);
    let new = LedgerWord::Line(0);
    let first = bench.grant(1, Some(17), 2, now);
    let answer = bench.count(Some(first.clone()), &totals, new).await;
    assert_eq!(answer, Counted::Granted(vec![2, 2]));
    // By its entry's id; by its key, whatever else it says; and not at all another one.
    for again in [first.clone(), bench.grant(2, Some(17), 3, now)] {
        let Counted::Queued(queued) = bench.count(Some(again), &totals, new).await else {
            panic!("it waits already")
        };
        assert_eq!(queued.grant, first);
        let mut after = totals.clone();
        after.iter_mut().for_each(|total| total.used = 2);
        assert_eq!(queued.totals, after);
    }
    let other = bench.grant(3, None, 1, now);
    let answer = bench.count(Some(other), &totals, new).await;
    assert_eq!(answer, Counted::Granted(vec![3, 3]));
    assert_eq!(bench.queued().await.len(), 2);
}

#[tokio::test]
async fn what_only_the_ledger_can_tell_is_not_guessed() {
    let bench = Bench::new().await;
    let now = instant(NOON);
    let claim = |number, key| bench.grant(number, key, 1, now);
    let ask = async |grant, word| {
        let totals = totals(now, MAX, [0, 0]);
        bench.count(Some(grant), &totals, word).await
    };
    // No counter, no line.
    let answer = ask(claim(1, None), LedgerWord::NotAsked).await;
    assert!(matches!(answer, Counted::AskLedger(_)), "{answer:?}");
    // A counter that does not hold every key cannot tell that a key is new.
    let incomplete = Settlement {
        keys: SettledKeys::After(line(9, now, Vec::new()), Vec::new()),
        ..bench.settlement(line(4, now, totals(now, MAX, [1, 1])))
    };
    bench.settle(incomplete).await;
    let answer = ask(claim(2, Some(1)), LedgerWord::NotAsked).await;
    assert!(matches!(answer, Counted::AskLedger(_)), "{answer:?}");
    let answer = ask(claim(3, None), LedgerWord::NotAsked).await;
    assert_eq!(answer, Counted::Granted(vec![2, 2]));
    // The ledger's word about a line that is not the last one any more.
    let answer = ask(claim(4, None), LedgerWord::Line(3)).await;
    assert!(matches!(answer, Counted::AskLedger(_)), "{answer:?}");
    // Nor is a denial while the ledger does not answer: the key's grant may stand there.
    for (number, key, denied) in [(7, Some(2), false), (8, None, true)] {
        let full = totals(now, [0, 0], [0, 0]);
        let grant = claim(number, key);
        let answer = bench.count(Some(grant), &full, LedgerWord::Silent).await;
        assert_ne!(matches!(answer, Counted::AskLedger(_)), denied);
    }
    // A key whose grant stands in the ledger.
    let known = Settlement {
        keys: SettledKeys::All(vec![KeyId(Uuid::from_u64_pair(7, 5))]),
        ..bench.settlement(line(5, now, totals(now, MAX, [1, 1])))
    };
    bench.settle(known).await;
    for word in [LedgerWord::NotAsked, LedgerWord::Silent] {
        assert_eq!(
            ask(claim(5, Some(5)), word).await,
            Counted::AskLedger(Some(5))
        );
    }
    // Windows that the line does not tell, though it came after their beginning.
    let yesterday = line(6, now, totals(now - TimeDelta::days(1), MAX, [1, 1]));
    bench.settle(bench.settlement(yesterday)).await;
    let answer = ask(claim(6, None), LedgerWord::NotAsked).await;
    assert!(matches!(answer, Counted::AskLedger(_)), "{answer:?}");
    let answer = ask(claim(6, None), LedgerWord::Silent).await;
    assert_eq!(answer, Counted::Granted(vec![2, 2]));
}

#[tokio::test]
async fn the_ledger_is_asked_once_about_an_account_without_entries() {
    let mut bench = Bench::new().await;
    let now = instant(NOON);
    let claim = async |bench: &Bench, number, key, word| {
        let grant = bench.grant(number, key, 1, now);
        bench
            .count(Some(grant), &totals(now, MAX, [0, 0]), word)
            .await
    };
    let answer = claim(&bench, 1, None, LedgerWord::Line(0)).await;
    assert_eq!(answer, Counted::Granted(vec![1, 1]));
    for (number, key) in [(2, Some(2)), (3, None)] {
        let answer = claim(&bench, number, key, LedgerWord::NotAsked).await;
        assert_eq!(answer, Counted::Granted(vec![number; 2]));
    }
    // After a while others may have written there.
    bench.now = now + TimeDelta::seconds(4);
    let answer = claim(&bench, 4, None, LedgerWord::NotAsked).await;
    assert_eq!(answer, Counted::AskLedger(None));
    bench.now = now;
    // Once the ledger has some, it must be asked where there is no counter.
    let queued = bench.queued().await;
    let line = line(1, now, totals(now, MAX, [1, 1]));
    bench.record(&queued[..1], line).await;
    bench.hand.forget(bench.account).await;
    let answer = claim(&bench, 4, None, LedgerWord::NotAsked).await;
    assert_eq!(answer, Counted::AskLedger(None));
}

#[tokio::test]
async fn a_look_changes_nothing_and_the_largest_numbers_are_exact() {
    let bench = Bench::new().await;
    let now = instant(NOON);
    let most = (1 << 53) - 1;
    let totals = totals(now, [most, most], [0, 0]);
    let new = LedgerWord::Line(0);
    let nearly = bench.grant(1, None, most - 1, now);
    let answer = bench.count(Some(nearly), &totals, new).await;
    assert_eq!(answer, Counted::Granted(vec![most - 1; 2]));
    for _ in 0..2 {
        let looked = bench.look(&totals, new).await;
        assert_eq!(looked.units, [(0, most - 1); 2]);
        assert_eq!(looked.waiting.len(), 1);
    }
    let two = bench.grant(2, None, 2, now);
    let answer = bench.count(Some(two), &totals, new).await;
    assert_eq!(answer, Counted::Waits(vec![most - 1; 2], None));
    let one = bench.grant(3, None, 1, now);
    let answer = bench.count(Some(one), &totals, new).await;
    assert_eq!(answer, Counted::Granted(vec![most; 2]));
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_the_queue_goes_on() {
    let bench = Bench::new().await;
    let now = instant(NOON);
    let grant = bench.grant(1, None, 1, now);
    let totals = totals(now, MAX, [0, 0]);
    let answer = bench.count(Some(grant), &totals, LedgerWord::Silent).await;
    assert_eq!(answer, Counted::Granted(vec![1, 1]));
    let counter = bench.hand.counter(bench.account);
    let (bucket, _) = counter.rsplit_once(':').expect("an account");
    let queue = format!("{bucket}:queue");
    let words = ["XADD", &queue, "*", "grant", "junk"];
    bench.hand.run::<String>(&words).await;
    let queued = bench.counters.queued(&[bench.account.bucket()], 10).await;
    let queued = queued.expect("the queue");
    let [grant @ Queued::Grant(_), junk @ Queued::Unreadable(..)] = queued.as_slice() else {
        panic!("{queued:?}")
    };
    for _ in 0..2 {
        bench.set_aside(junk).await;
    }
    assert_eq!(bench.queued().await.len(), 1);
    let aside = format!("{bucket}:aside");
    let length: u64 = bench.hand.run(&["XLEN", &aside]).await;
    assert_eq!(length, 1);
    // A grant that the ledger refuses takes its units along.
    let two = bench.grant(2, None, 1, now);
    let answer = bench.count(Some(two), &totals, LedgerWord::Silent).await;
    assert_eq!(answer, Counted::Granted(vec![2, 2]));
    bench.set_aside(grant).await;
    let looked = bench.look(&totals, LedgerWord::Silent).await;
    assert_eq!(looked.units, [(0, 1); 2]);
    // What somebody deletes with its queue waits no more.
    bench.hand.run::<()>(&["DEL", &queue]).await;
    let looked = bench.look(&totals, LedgerWord::Silent).await;
    assert_eq!(looked.units, [(0, 0); 2]);
}

/// As after a key of Redis was deleted by hand.
#[tokio::test]
async fn a_grant_leaves_the_queue_without_the_hash_of_what_waits() {
    let bench = Bench::new().await;
    let at = instant(NOON);
    let limits = totals(at, MAX, [0, 0]);
    let grant = bench.grant(1, None, 1, at);
    let answer = bench.count(Some(grant), &limits, LedgerWord::Line(0)).await;
    assert_eq!(answer, Counted::Granted(vec![1, 1]));
    let waiting = format!("{}:waiting", bench.hand.counter(bench.account));
    let deleted: usize = bench.hand.run(&["DEL", &waiting]).await;
    assert_eq!(deleted, 1);
    let queued = bench.queued().await;
    assert_eq!(queued.len(), 1);
    let line = line(1, at, totals(at, MAX, [1, 1]));
    bench.record(&queued, line).await;
    assert_eq!(bench.queued().await.len(), 0);
}
