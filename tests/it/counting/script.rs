//! The script that counts, in cases that `sim/scripts.rs` does not reach: looks, the largest
//! numbers, and changes in Redis by hand.

use std::time::Duration;

use chrono::DateTime;
use perdiem::counter::{
    Count, Counted, CountedGrant, Counters, LedgerWord, Looked, Queued, QueuedGrant,
    RecordedGrants, RedisAccess, SettledKeys, Settlement,
};
use perdiem::domain::claim::{Subject, Units};
use perdiem::domain::grant::Line;
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::limit::total::{LimitState, Total, WindowUse};
use perdiem::domain::policy::PolicyId;
use perdiem::domain::window::Length;
use perdiem::domain::window::Window;
use uuid::Uuid;

use crate::support::app::{NOON, instant};
use crate::support::hand::Hand;
use crate::support::servers;

/// The most units that may be used in a window: the largest count that a double holds exactly.
const MOST: u64 = (1 << 53) - 1;

/// An account of a new ledger, under a policy with this `max` a day.
struct Bench {
    counters: Counters,
    hand: Hand,
    account: AccountId,
    max: u64,
    /// Whether the policy only observes.
    observes: bool,
}

impl Bench {
    async fn new(max: u64) -> Self {
        let url = servers::redis().url();
        let ledger = Uuid::new_v4();
        let timeout = Duration::from_secs(10);
        let counters = Counters::open(&url, &RedisAccess::default(), ledger, timeout).await;
        Self {
            counters: counters.expect("counters"),
            hand: Hand::at(&url, ledger).await,
            account: AccountId(Uuid::new_v4()),
            max,
            observes: false,
        }
    }

    fn totals(&self) -> Vec<Total> {
        let at = |text: &str| text.parse::<DateTime<_>>().expect("an instant");
        vec![Total {
            max: self.max,
            reset_at: None,
            state: LimitState::Calendar(WindowUse {
                division: Some(Length::Day.into()),
                used: 0,
                window: Window {
                    start: at("2026-11-21T00:00:00Z"),
                    end: at("2026-11-22T00:00:00Z"),
                },
            }),
        }]
    }

    async fn ask(&self, grant: Option<CountedGrant>) -> Counted {
        let count = Count {
            account: self.account,
            policy_version: 3,
            now: instant(NOON),
            observes: self.observes,
            totals: self.totals(),
            ledger: LedgerWord::Line(0),
            grant,
        };
        let answers = self.counters.count(&[count], Default::default()).await;
        let answer = answers.expect("an answer").remove(0);
        answer.expect("a decision")
    }

    async fn claim(&self, number: u64, units: u64) -> Counted {
        self.ask(Some(CountedGrant {
            account: self.account,
            entry: EntryId::new(instant(NOON), 0, number),
            key: None,
            policy: PolicyId(5),
            policy_version: 3,
            subject: Some(Subject::new("member-42").expect("a subject")),
            units: Units::new(units.into()).expect("units"),
            metadata: None,
            claimed_by: KeyNumber(7),
        }))
        .await
    }

    async fn look(&self) -> Looked {
        match self.ask(None).await {
            Counted::Looked(looked) => looked,
            other => panic!("{other:?}"),
        }
    }

    async fn queued(&self) -> Vec<Queued> {
        let queued = self.counters.queued(&[self.account.bucket()], 10).await;
        queued.expect("the queue")
    }

    /// The only grant that waits.
    async fn grant(&self) -> QueuedGrant {
        let queued = self.queued().await;
        let [Queued::Grant(grant)] = queued.as_slice() else {
            panic!("{queued:?}")
        };
        grant.clone()
    }

    /// As after the ledger has a grant, in its first line.
    async fn record(&self, grant: &QueuedGrant) {
        let settlement = Settlement {
            account: self.account,
            line: Line {
                number: 1,
                at: instant(NOON),
                policy_version: 3,
                lapses_at: None,
                calendar: None,
                top_ups: None,
                totals: grant.totals.clone().into(),
            },
            confirmed_at: instant(NOON),
            only_existing: false,
            seen: None,
            keys: SettledKeys::All(Vec::new()),
            ttl: Duration::from_secs(3600),
        };
        let grants = vec![grant];
        let recorded = RecordedGrants { settlement, grants };
        let recorded = self.counters.record(&[recorded]).await;
        recorded.expect("the grants are recorded");
    }
}

#[tokio::test]
async fn a_look_changes_nothing_and_the_largest_numbers_are_exact() {
    let mut bench = Bench::new(MOST).await;
    assert_eq!(
        bench.claim(1, MOST - 1).await,
        Counted::Granted(vec![MOST - 1])
    );
    for _ in 0..2 {
        let looked = bench.look().await;
        assert_eq!(looked.units, [(0, MOST - 1)]);
        assert_eq!(looked.waiting.len(), 1);
    }
    assert_eq!(
        bench.claim(2, 2).await,
        Counted::Waits(vec![MOST - 1], None)
    );
    assert_eq!(bench.claim(3, 1).await, Counted::Granted(vec![MOST]));
    // An observing policy denies only a count that a double does not hold exactly.
    bench.observes = true;
    assert_eq!(bench.claim(4, 1).await, Counted::Waits(vec![MOST], None));
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_the_queue_goes_on() {
    let bench = Bench::new(5).await;
    assert_eq!(bench.claim(1, 1).await, Counted::Granted(vec![1]));
    let queue = bench.hand.of_bucket(bench.account, "queue");
    let words = ["XADD", &queue, "*", "grant", "junk"];
    bench.hand.run::<String>(&words).await;
    let queued = bench.queued().await;
    let [grant @ Queued::Grant(_), junk @ Queued::Unreadable(..)] = queued.as_slice() else {
        panic!("{queued:?}")
    };
    let set_aside = async |queued| {
        let done = bench.counters.set_aside(queued).await;
        done.expect("the entries are set aside");
    };
    for _ in 0..2 {
        set_aside(junk).await;
    }
    assert_eq!(bench.queued().await.len(), 1);
    let aside = bench.hand.of_bucket(bench.account, "aside");
    let length: u64 = bench.hand.run(&["XLEN", &aside]).await;
    assert_eq!(length, 1);
    // When the ledger refuses a grant, its units are removed too.
    assert_eq!(bench.claim(2, 1).await, Counted::Granted(vec![2]));
    set_aside(grant).await;
    assert_eq!(bench.look().await.units, [(0, 1)]);
    // Grants whose queue was deleted by hand no longer wait.
    bench.hand.run::<()>(&["DEL", &queue]).await;
    assert_eq!(bench.look().await.units, [(0, 0)]);
}

/// An empty queue is deleted. In the same millisecond, or after its clock was set back, Redis may
/// then give a place to a second grant.
#[tokio::test]
async fn a_grant_at_the_place_of_another_is_another() {
    let bench = Bench::new(5).await;
    assert_eq!(bench.claim(1, 1).await, Counted::Granted(vec![1]));
    let first = bench.grant().await;
    bench.record(&first).await;
    bench.hand.forget(bench.account).await;
    assert_eq!(bench.claim(2, 1).await, Counted::Granted(vec![1]));
    let second = bench.grant().await;
    let at_its_place = QueuedGrant {
        place: second.place.clone(),
        ..first
    };
    bench.record(&at_its_place).await;
    assert_eq!(bench.grant().await, second);
    let at_its_place = Queued::Grant(at_its_place);
    let set_aside = bench.counters.set_aside(&at_its_place).await;
    set_aside.expect("nothing is set aside");
    assert_eq!(bench.grant().await, second);
    // The hash of what waits may be older than the queue.
    let queue = bench.hand.of_bucket(bench.account, "queue");
    bench.hand.forget(bench.account).await;
    bench.hand.run::<()>(&["DEL", &queue]).await;
    let words = ["XADD", &queue, &second.place, "id", "another", "key", ""];
    bench.hand.run::<String>(&words).await;
    assert_eq!(bench.claim(2, 1).await, Counted::Granted(vec![2]));
}

/// As after a key of Redis was deleted by hand.
#[tokio::test]
async fn a_grant_leaves_the_queue_without_the_hash_of_what_waits() {
    let bench = Bench::new(5).await;
    assert_eq!(bench.claim(1, 1).await, Counted::Granted(vec![1]));
    let waiting = format!("{}:waiting", bench.hand.counter(bench.account));
    let deleted: usize = bench.hand.run(&["DEL", &waiting]).await;
    assert_eq!(deleted, 1);
    let grant = bench.grant().await;
    bench.record(&grant).await;
    assert_eq!(bench.queued().await.len(), 0);
}
