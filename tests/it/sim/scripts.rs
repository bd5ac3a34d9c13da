//! The simulator's Redis against a real one: the same random commands, the same answers, the same
//! counters and the same queue.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::counter::{
    Ask, Count, Counted, CountedGrant, Counters, LedgerWord, Queued, QueuedGrant, RecordedGrants,
    RedisAccess, SettledKeys, Settlement,
};
use perdiem::domain::claim::{Subject, Units};
use perdiem::domain::grant::{Line, Total};
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::policy::PolicyId;
use perdiem::domain::window::{Per, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use super::clients::account;
use super::redis::Redis;
use super::world::SUBJECTS;
use super::{Planted, histories};
use crate::support::app::{NOON, instant};
use crate::support::servers;

const MAX: [u64; 2] = [5, 12];
const HOURS: [i64; 2] = [1, 24];

#[derive(Debug, Clone)]
enum Command {
    /// Minutes pass.
    Wait(i64),
    Count {
        subject: u8,
        /// Claims with the same number have the same id.
        number: u64,
        key: Option<u64>,
        units: u64,
        word: Option<u64>,
        is_silent: bool,
        trusts_keys: bool,
    },
    Settle(Settled),
    /// So many grants leave the queue, of the account that comes first; or those that left it before do
    /// once more.
    Record {
        most: usize,
        is_again: bool,
        settled: Settled,
    },
}

#[derive(Debug, Clone)]
struct Settled {
    subject: u8,
    number: u64,
    used: u64,
    seen: Option<u64>,
    only_existing: bool,
    /// `None` for none, `Some(0)` for all, and else those that come after a line.
    after: Option<u64>,
    key: Option<u64>,
    lapses_in: Option<i64>,
    confirmed_before: i64,
}

fn settled() -> impl Strategy<Value = Settled> {
    let (small, key) = (0..4u64, proptest::option::of(0..3u64));
    let of_line = (0..SUBJECTS, 1..5u64, small.clone(), any::<bool>());
    let of_keys = (
        proptest::option::of(small.clone()),
        proptest::option::of(small),
        key,
    );
    let times = (proptest::option::weighted(0.2, -30..90i64), 0..60i64);
    (of_line, of_keys, times).prop_map(|(of_line, (seen, after, key), times)| Settled {
        subject: of_line.0,
        number: of_line.1,
        used: of_line.2,
        only_existing: of_line.3,
        seen,
        after,
        key,
        lapses_in: times.0,
        confirmed_before: times.1,
    })
}

fn command() -> impl Strategy<Value = Command> {
    let key = proptest::option::of(0..3u64);
    let claim = (0..SUBJECTS, 0..12u64, key, 1..4u64);
    let word = (proptest::option::of(0..4u64), any::<bool>(), any::<bool>());
    let count = (claim, word).prop_map(|((subject, number, key, units), word)| Command::Count {
        subject,
        number,
        key,
        units,
        word: word.0,
        is_silent: word.1,
        trusts_keys: word.2,
    });
    let record = (1..4usize, any::<bool>(), settled());
    prop_oneof![
        2 => (1i64..40).prop_map(Command::Wait),
        8 => count,
        3 => settled().prop_map(Command::Settle),
        3 => record.prop_map(|(most, is_again, settled)| Command::Record { most, is_again, settled }),
    ]
}

/// A real Redis and the simulator's.
struct Pair {
    real: Counters,
    model: Redis,
    now: DateTime<Utc>,
    /// The grants that left the queue last, in each Redis.
    recorded: [Vec<QueuedGrant>; 2],
}

impl Pair {
    async fn new() -> Self {
        let (url, access) = (servers::redis().url(), RedisAccess::default());
        let real = Counters::open(&url, &access, Uuid::new_v4(), Duration::from_secs(10)).await;
        Self {
            real: real.expect("counters"),
            model: Redis::new(Planted::Nothing),
            now: instant(NOON),
            recorded: [Vec::new(), Vec::new()],
        }
    }

    async fn run(&mut self, command: Command) -> Result<(), TestCaseError> {
        match command {
            Command::Wait(minutes) => self.now += TimeDelta::minutes(minutes),
            Command::Count { trusts_keys, .. } => {
                let count = self.count(&command);
                let differ = TimeDelta::days(if trusts_keys { -400 } else { 400 });
                let real = self.real.count(std::slice::from_ref(&count), differ).await;
                let real = real.expect("an answer").remove(0).expect("a decision");
                let model = self.model.count(&count, self.now + differ, Duration::ZERO);
                prop_assert_eq!(without_place(real), without_place(model));
            }
            Command::Settle(settled) => {
                let settlement = self.settlement(&settled);
                self.model.settle(&settlement, Duration::ZERO);
                self.real.settle(&[settlement]).await.expect("settled");
            }
            Command::Record {
                most,
                is_again,
                settled,
            } => {
                if !is_again {
                    let model = self.model.queue.clone();
                    self.recorded = [self.queued().await, model].map(|queued| first(queued, most));
                }
                let [real, model] = &self.recorded;
                let Some(queued) = real.first() else {
                    return Ok(());
                };
                let settlement = Settlement {
                    account: queued.grant.account,
                    only_existing: false,
                    ..self.settlement(&settled)
                };
                self.model.record(&settlement, model, Duration::ZERO);
                let grants = real.iter().collect();
                let recorded = RecordedGrants { settlement, grants };
                self.real.record(&[recorded]).await.expect("recorded");
            }
        }
        self.compare().await
    }

    async fn compare(&self) -> Result<(), TestCaseError> {
        let ask = |subject| Ask {
            account: account(subject),
            looks_at_queue: true,
        };
        let asks: Vec<Ask> = (0..SUBJECTS).map(ask).collect();
        let real = self.real.ask(&asks).await.expect("answers");
        let model = asks.iter().map(|ask| self.model.ask(ask, Duration::ZERO));
        prop_assert_eq!(real, model.collect::<Vec<_>>());
        let grants = |queued: Vec<QueuedGrant>| -> Vec<_> {
            let queued = queued.into_iter();
            queued.map(|queued| (queued.grant, queued.totals)).collect()
        };
        prop_assert_eq!(
            grants(self.queued().await),
            grants(self.model.queue.clone())
        );
        Ok(())
    }

    async fn queued(&self) -> Vec<QueuedGrant> {
        let queued = self.real.queued(&[account(0).bucket()], 1000).await;
        let queued = queued.expect("the queue").into_iter();
        let grants = queued.filter_map(|queued| match queued {
            Queued::Grant(grant) => Some(grant),
            Queued::Unreadable(..) => None,
        });
        grants.collect()
    }

    fn count(&self, command: &Command) -> Count {
        let Command::Count {
            subject,
            number,
            key,
            units,
            word,
            is_silent,
            ..
        } = command
        else {
            panic!("not a count");
        };
        let grant = CountedGrant {
            account: account(*subject),
            entry: EntryId::new(instant(NOON), 0, u64::from(*subject) << 8 | number),
            key: key.map(key_id),
            policy: PolicyId(5),
            policy_version: 3,
            subject: Some(Subject::new("member-42").expect("a subject")),
            units: Units::new((*units).into()).expect("units"),
            metadata: None,
            claimed_by: Some(KeyNumber(7)),
        };
        Count {
            account: grant.account,
            policy_version: 3,
            now: self.now,
            observes: false,
            totals: totals(self.now, word.unwrap_or_default()),
            ledger: match word {
                Some(number) => LedgerWord::Line(*number),
                None if *is_silent => LedgerWord::Silent,
                None => LedgerWord::NotAsked,
            },
            grant: Some(grant),
        }
    }

    fn settlement(&self, settled: &Settled) -> Settlement {
        let line = |number| Line {
            number,
            at: self.now,
            policy_version: 3 + u32::from(number == 4),
            lapses_at: settled
                .lapses_in
                .map(|it| self.now + TimeDelta::minutes(it)),
            totals: totals(self.now, settled.used).into(),
        };
        let keys = settled.key.map(key_id).into_iter().collect();
        Settlement {
            account: account(settled.subject),
            line: line(settled.number),
            confirmed_at: self.now - TimeDelta::minutes(settled.confirmed_before),
            seen: settled.seen,
            only_existing: settled.only_existing,
            keys: match settled.after {
                None => SettledKeys::Unknown,
                Some(0) => SettledKeys::All(keys),
                Some(number) => SettledKeys::After(line(number), keys),
            },
            ttl: Duration::from_secs(3600),
        }
    }
}

/// The first grants of the account that comes first.
fn first(mut queued: Vec<QueuedGrant>, most: usize) -> Vec<QueuedGrant> {
    let account: Option<AccountId> = queued.first().map(|queued| queued.grant.account);
    queued.retain(|queued| Some(queued.grant.account) == account);
    queued.truncate(most);
    queued
}

fn without_place(answer: Counted) -> Counted {
    match answer {
        Counted::Queued(queued) => Counted::Queued(QueuedGrant {
            place: String::new(),
            ..queued
        }),
        other => other,
    }
}

fn key_id(key: u64) -> KeyId {
    KeyId(Uuid::from_u64_pair(7, key))
}

fn totals(at: DateTime<Utc>, used: u64) -> Vec<Total> {
    let total = |(per, (hours, max))| {
        let length = hours * 3600;
        let start = at.timestamp().div_euclid(length) * length;
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).expect("an instant");
        Total {
            per,
            max,
            used,
            window: Window {
                start: instant(start),
                end: instant(start + length),
            },
        }
    };
    let limits = [Per::Hour, Per::Day]
        .into_iter()
        .zip(HOURS.into_iter().zip(MAX));
    limits.map(total).collect()
}

#[test]
fn the_scripts_do_as_the_simulators_redis_does() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut runner = TestRunner::new(Config {
        cases: histories() / 20,
        failure_persistence: None,
        ..Config::default()
    });
    let commands = proptest::collection::vec(command(), 1..40);
    let result = runner.run(&commands, |commands| {
        runtime.block_on(async {
            let mut pair = Pair::new().await;
            for command in commands {
                pair.run(command).await?;
            }
            Ok(())
        })
    });
    result.expect("the same answers");
}
