//! Compares the simulator's Redis with a real one. The same random commands must give the same
//! answers, the same counters and the same queue. A history is a list of numbers. Each number
//! selects a command.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use perdiem::counter::{
    Ask, Count, Counted, CountedGrant, Counters, LedgerWord, Queued, QueuedGrant, RecordedGrants,
    RedisAccess, SettledKeys, Settlement,
};
use perdiem::domain::claim::{Metadata, Subject, Units};
use perdiem::domain::grant::Line;
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::limit::total::{LimitState, Total, WindowUse};
use perdiem::domain::policy::PolicyId;
use perdiem::domain::window::{Division, Length, PartOfDay, WeekRun, Weeks, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use super::clients::account;
use super::redis::Redis;
use super::world::SUBJECTS;
use super::{Planted, histories};
use crate::support::app::{NOON, instant};
use crate::support::dice::Dice;
use crate::support::servers;

const MAX: [u64; 2] = [5, 12];
const HOURS: [i64; 2] = [1, 24];

/// A real Redis and the simulator's Redis.
struct Pair {
    real: Counters,
    model: Redis,
    now: DateTime<Utc>,
    /// The limits of the policy: an hour and a day, or windows whose texts have parameters.
    divisions: [Division; 2],
    /// The grants that left the queue last, in each Redis.
    recorded: [Vec<QueuedGrant>; 2],
}

impl Pair {
    async fn new(divisions: [Division; 2]) -> Self {
        let url = servers::redis().url();
        let access = RedisAccess::default();
        let real = Counters::open(&url, &access, Uuid::new_v4(), Duration::from_secs(10)).await;
        Self {
            real: real.expect("counters"),
            divisions,
            model: Redis::new(Planted::Nothing),
            now: instant(NOON),
            recorded: [Vec::new(), Vec::new()],
        }
    }

    /// Executes the command that a number selects.
    async fn step(&mut self, choice: u64) -> Result<(), TestCaseError> {
        let dice = &mut Dice::new(choice);
        match dice.below(16) {
            0..4 => {
                // An account is treated as new for three seconds.
                let seconds = [3, 4, 4, dice.between(60, 2400)][dice.below(4)];
                self.now += TimeDelta::seconds(seconds.cast_signed());
            }
            4..12 => self.count(dice).await?,
            12..14 => {
                let settlement = self.settlement(dice);
                self.model.settle(&settlement, Duration::ZERO);
                self.real.settle(&[settlement]).await.expect("settled");
            }
            _ => self.record(dice).await,
        }
        self.compare().await
    }

    async fn count(&mut self, dice: &mut Dice) -> Result<(), TestCaseError> {
        let subject = dice.below(SUBJECTS.into()) as u8;
        // Claims with the same number have the same id.
        let number = u64::from(subject) << 8 | dice.between(0, 11);
        let word = maybe(dice, 50, |dice| [0, 0, 0, 1, 2, 3][dice.below(6)]);
        let grant = CountedGrant {
            account: account(subject),
            entry: EntryId::new(instant(NOON), 0, number),
            key: maybe(dice, 50, key_id),
            policy: PolicyId(5),
            policy_version: 3,
            subject: Some(Subject::new("member-42").expect("a subject")),
            units: Units::new(dice.between(1, 3).into()).expect("units"),
            metadata: maybe(dice, 20, |_| {
                Metadata::from_stored(r#"{"order":"A\u0022-17"}"#.to_owned())
            }),
            claimed_by: KeyNumber(7),
        };
        let count = Count {
            account: grant.account,
            policy_version: 3,
            now: self.now,
            observes: dice.percent(10),
            totals: totals(self.divisions, self.now, word.unwrap_or_default()),
            ledger: match word {
                Some(number) => LedgerWord::Line(number),
                None if dice.percent(50) => LedgerWord::Silent,
                None => LedgerWord::NotAsked,
            },
            grant: Some(grant),
        };
        // An answer of the ledger from before the connection began may have been rolled back with
        // Redis.
        let differ = TimeDelta::days([-400, -400, 400][dice.below(3)]);
        let real = self.real.count(std::slice::from_ref(&count), differ).await;
        let real = real.expect("an answer").remove(0).expect("a decision");
        let model = self.model.count(&count, self.now + differ, Duration::ZERO);
        prop_assert_eq!(without_place(real), without_place(model), "{:?}", count);
        Ok(())
    }

    /// Removes grants of the first account from the queue, or removes the same grants again, as a
    /// client library does when it sends a script twice. It does not once a grant with the same id waits
    /// again, which ids that are used once never do: the real Redis may have given that grant the place
    /// of the first one, in the same millisecond, and the model never gives a place twice.
    async fn record(&mut self, dice: &mut Dice) {
        let [_, recorded] = &self.recorded;
        let is_recorded = |queued: &QueuedGrant| {
            let mut ids = recorded.iter().map(|recorded| recorded.grant.entry);
            ids.any(|id| id == queued.grant.entry)
        };
        if dice.percent(50) || self.model.queue.iter().any(is_recorded) {
            let most = 1 + dice.below(3);
            let model = self.model.queue.clone();
            self.recorded = [self.queued().await, model].map(|queued| first(queued, most));
        }
        let [real, model] = &self.recorded;
        let Some(queued) = real.first() else { return };
        let settlement = Settlement {
            account: queued.grant.account,
            only_existing: false,
            ..self.settlement(dice)
        };
        self.model.record(&settlement, model, Duration::ZERO);
        let grants = real.iter().collect();
        let recorded = RecordedGrants { settlement, grants };
        self.real
            .record(&[recorded])
            .await
            .expect("the grants are recorded");
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

    fn settlement(&self, dice: &mut Dice) -> Settlement {
        let lapses_at = maybe(dice, 20, |dice| {
            self.now + TimeDelta::minutes(dice.between(0, 120).cast_signed() - 30)
        });
        // When the windows have changed, a line may contain other windows than those of its
        // instant.
        let told_of = self.now - TimeDelta::minutes([0, 0, 0, 90][dice.below(4)]);
        let used = dice.between(0, 3);
        let line = |number| Line {
            number,
            at: self.now,
            policy_version: 3 + u32::from(number == 4),
            lapses_at,
            calendar: None,
            top_ups: None,
            totals: totals(self.divisions, told_of, used).into(),
        };
        let keys = maybe(dice, 50, key_id).into_iter().collect();
        Settlement {
            account: account(dice.below(SUBJECTS.into()) as u8),
            line: line(dice.between(1, 4)),
            confirmed_at: self.now - TimeDelta::minutes(dice.between(0, 60).cast_signed()),
            seen: maybe(dice, 50, |dice| dice.between(0, 3)),
            only_existing: dice.percent(50),
            keys: match dice.below(8) {
                0..4 => SettledKeys::Unknown,
                4 => SettledKeys::All(keys),
                number => SettledKeys::After(line(number as u64 - 4), keys),
            },
            ttl: Duration::from_secs(3600),
        }
    }
}

/// Returns a value in so many percent of the calls.
fn maybe<T>(dice: &mut Dice, percent: u64, it: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    dice.percent(percent).then(|| it(dice))
}

/// The first grants of the first account.
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

fn key_id(dice: &mut Dice) -> KeyId {
    KeyId(Uuid::from_u64_pair(7, dice.between(0, 2)))
}

fn totals(divisions: [Division; 2], at: DateTime<Utc>, used: u64) -> Vec<Total> {
    let total = |(division, (hours, max))| {
        let seconds = hours * 3600;
        let start = at.timestamp().div_euclid(seconds) * seconds;
        let instant = |seconds| DateTime::from_timestamp(seconds, 0).expect("an instant");
        Total {
            max,
            reset_at: None,
            state: LimitState::Calendar(WindowUse {
                division: Some(division),
                used,
                window: Window {
                    start: instant(start),
                    end: instant(start + seconds),
                },
            }),
        }
    };
    let limits = divisions.into_iter().zip(HOURS.into_iter().zip(MAX));
    limits.map(total).collect()
}

#[test]
fn the_scripts_do_as_the_simulators_redis_does() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut runner = TestRunner::new(Config {
        cases: histories() / 6,
        failure_persistence: None,
        ..Config::default()
    });
    let part = PartOfDay::new("15m".parse().expect("a time")).expect("a part");
    let run = WeekRun {
        weeks: Weeks::new(2).expect("weeks"),
        from: NaiveDate::from_ymd_opt(1969, 12, 29).expect("a date"),
    };
    let divisions = [
        [Length::Hour.into(), Length::Day.into()],
        [Division::PartOfDay(part), Division::Weeks(run)],
        [Division::Weeks(run), Division::PartOfDay(part)],
    ];
    let choices = proptest::collection::vec(any::<u64>(), 1..40);
    let histories = (proptest::sample::select(divisions.to_vec()), choices);
    let result = runner.run(&histories, |(divisions, choices)| {
        runtime.block_on(async {
            let mut pair = Pair::new(divisions).await;
            for choice in choices {
                pair.step(choice).await?;
            }
            Ok(())
        })
    });
    result.expect("the same answers");
}
