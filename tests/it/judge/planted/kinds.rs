//! Breaches in limits of every kind, except calendar windows that end.

use super::super::Breach::*;
use super::super::history::{History, Outcome};
use super::super::judge;
use super::super::stores::{Entry, Kind, Stores};
use super::super::totals::{RuleLimit, RuleReturn, State, Total};
use super::{at, entry, fourth, id, planted, sound};
use crate::plain::{PlainBucket, PlainLimit, PlainState, Return};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;

fn micros(second: u64) -> i64 {
    at(second).timestamp_micros()
}

/// Three a minute. These units were taken at these seconds.
fn log(step: Option<i64>, taken: &[(u64, u64)]) -> Total {
    let returns = Return::Sliding { step };
    let pairs = taken
        .iter()
        .map(|(second, units)| (micros(*second), *units));
    let limit = PlainLimit {
        max: 3,
        per: MINUTE,
        returns,
    };
    Total::returning(limit, PlainState::Log(pairs.collect()))
}

/// Three a minute. One unit was taken at each of these seconds.
fn units(seconds: &[u64]) -> Total {
    let taken: Vec<(u64, u64)> = seconds.iter().map(|second| (*second, 1)).collect();
    log(None, &taken)
}

/// Three a minute, in steps of ten seconds.
fn cells(taken: &[(u64, u64)]) -> Total {
    log(Some(10 * SECOND), taken)
}

/// Three a minute from the first claim on. The window was opened at a second.
fn opened(second: u64, used: u64) -> Total {
    let returns = Return::FromFirstClaim;
    let limit = PlainLimit {
        max: 3,
        per: MINUTE,
        returns,
    };
    let at = Some(micros(second));
    Total::returning(limit, PlainState::Opened { at, used })
}

/// One in ten seconds and three at once. `owed` is what the bucket lacks at a second, in
/// microseconds of refill.
fn bucket(second: u64, owed: i128) -> Total {
    bucket_of(
        3,
        PlainBucket {
            at: micros(second),
            owed,
            since: 0,
        },
    )
}

fn bucket_of(burst: u64, bucket: PlainBucket) -> Total {
    let returns = Return::Rate { burst };
    let limit = PlainLimit {
        max: 1,
        per: 10 * SECOND,
        returns,
    };
    Total::returning(limit, PlainState::Bucket(bucket))
}

fn ever(used: u64) -> Total {
    Total {
        per: "ever".to_owned(),
        max: 3,
        used,
        state: State::Ever,
    }
}

fn limit(max: u64, per: &str, returns: RuleReturn) -> RuleLimit {
    RuleLimit {
        per: per.to_owned(),
        max,
        returns,
    }
}

fn sliding_limit() -> RuleLimit {
    limit(3, "1m", RuleReturn::Sliding(None))
}

fn rate_limit() -> RuleLimit {
    limit(1, "10s", RuleReturn::Rate(Some(3)))
}

/// [`sound`] under another limit.
fn sound_under(limit: RuleLimit, totals: [Total; 3]) -> (History, Stores) {
    let (mut history, mut stores) = sound();
    for rule in stores.rules.values_mut() {
        rule.limits = vec![limit.clone()];
    }
    for (entry, total) in stores.entries.iter_mut().zip(totals) {
        let limits = vec![(total.per.clone(), total.max, total.used)];
        for attempt in &mut history.attempts {
            if let Outcome::Granted(told) | Outcome::Repeated(told) = &mut attempt.outcome
                && told.id == entry.id
            {
                told.limits.clone_from(&limits);
            }
        }
        entry.totals = vec![total];
    }
    (history, stores)
}

fn sliding() -> (History, Stores) {
    sound_under(
        sliding_limit(),
        [units(&[1]), units(&[1, 2]), units(&[1, 2, 3])],
    )
}

fn stepped() -> (History, Stores) {
    let limit = limit(3, "1m", RuleReturn::Sliding(Some(10 * SECOND)));
    sound_under(limit, [1, 2, 3].map(|units| cells(&[(10, units)])))
}

fn from_first_claim() -> (History, Stores) {
    let limit = limit(3, "1m", RuleReturn::FromFirstClaim);
    sound_under(limit, [1, 2, 3].map(|used| opened(1, used)))
}

fn rate() -> (History, Stores) {
    let totals = [(1, 10_000_000), (2, 19_000_000), (3, 28_000_000)];
    sound_under(
        rate_limit(),
        totals.map(|(second, owed)| bucket(second, owed)),
    )
}

fn for_ever() -> (History, Stores) {
    let limit = limit(3, "ever", RuleReturn::Calendar);
    sound_under(limit, [1, 2, 3].map(ever))
}

/// The third line has another total.
fn third(stores: &mut Stores, total: Total) {
    stores.entries[2].totals = vec![total];
}

/// Adds a fourth grant at a second, with its total.
fn grant(history: &mut History, stores: &mut Stores, second: u64, total: Total) {
    fourth(history, stores, |told, entry| {
        told.limits = vec![(total.per.clone(), total.max, total.used)];
        (entry.at, entry.counted_at) = (at(second), at(second));
        entry.totals = vec![total];
    });
}

/// Adds a fourth grant, the first one under another limit.
fn change(history: &mut History, stores: &mut Stores, to: RuleLimit, second: u64, total: Total) {
    let mut rule = stores.rules.values().next().cloned().expect("a rule");
    rule.limits = vec![to];
    stores.rules.insert(("benefit".to_owned(), 2), rule);
    grant(history, stores, second, total);
    stores.entries[3].policy_version = 2;
}

/// Adds a reversal of a grant at the fourth second.
fn reverse(stores: &mut Stores, of: u64, total: Total) {
    stores.counters.clear();
    stores.entries.push(Entry {
        kind: Kind::Reversal,
        of: Some(id(of)),
        counted_at: at(of),
        wish: None,
        totals: vec![total],
        ..entry(4)
    });
}

/// The bucket at the fourth second, after a reversal.
fn after_reversal(owed: i128) -> Total {
    bucket_of(
        3,
        PlainBucket {
            at: micros(4),
            owed,
            since: 0,
        },
    )
}

planted! { in sliding;
    a_sliding_limit {
        |_, _| {} => { nothing }
        // Each unit returns at its own time.
        |history, stores| grant(history, stores, 61, units(&[2, 3, 61])) => { nothing }
        |history, stores| grant(history, stores, 60, units(&[1, 2, 3, 60])) => { Over { .. } }
        |history, stores| grant(history, stores, 60, units(&[2, 3, 60]))
            => { NotTheSum { sum: 4, .. }, Over { .. } }
        // Too few units, units of an earlier instant, and another step.
        |_, stores| third(stores, units(&[2, 3])) => { NotTheSum { sum: 3, .. } }
        |_, stores| third(stores, units(&[0, 2, 3])) => { only NotTheState { .. } }
        |_, stores| third(stores, log(Some(SECOND), &[(1, 1), (2, 1), (3, 1)]))
            => { NotTheRule { .. } }
        |_, stores| stores.entries[2].totals[0].used = 2 => { NotTheSum { sum: 3, .. } }
        // A reversal takes off the units of its grant, and no others.
        |_, stores| reverse(stores, 2, units(&[1, 3])) => { nothing }
        |_, stores| reverse(stores, 2, units(&[2, 3])) => { only NotTheState { .. } }
        |_, stores| reverse(stores, 2, units(&[3])) => { only NotTheSum { sum: 2, .. } }
    }
}

planted! { in stepped;
    a_sliding_limit_with_a_step {
        |_, _| {} => { nothing }
        |history, stores| grant(history, stores, 70, cells(&[(70, 1)])) => { nothing }
        // The units count at the end of their step.
        |history, stores| grant(history, stores, 61, cells(&[(10, 3), (70, 1)])) => { Over { .. } }
        |_, stores| third(stores, cells(&[(1, 1), (2, 1), (3, 1)])) => { only NotTheState { .. } }
        |_, stores| third(stores, cells(&[(10, 2)])) => { NotTheSum { sum: 3, .. } }
        |_, stores| third(stores, units(&[1, 2, 3])) => { NotTheRule { .. } }
        // The lines agree, but a minute has more than three units: a reversal gave back too much.
        |_, stores| {
            reverse(stores, 1, cells(&[(10, 1)]));
            stores.entries[3].units = 2;
            let totals = vec![cells(&[(10, 3)])];
            stores.entries.push(Entry { units: 2, totals, ..entry(5) });
        } => { NotItsGrant { .. }, Over { .. } }
    }
}

planted! { in from_first_claim;
    a_limit_from_the_first_claim {
        |_, _| {} => { nothing }
        |history, stores| grant(history, stores, 61, opened(61, 1)) => { nothing }
        |history, stores| grant(history, stores, 60, opened(1, 4)) => { only Over { .. } }
        // A second window before the end of the first, a window that the last claim moves, and a
        // window that continues after its end.
        |history, stores| grant(history, stores, 60, opened(60, 1))
            => { NotTheWindow { .. }, NotTheSum { sum: 4, .. }, Over { .. } }
        |_, stores| third(stores, opened(3, 3)) => { only NotTheWindow { .. } }
        |history, stores| grant(history, stores, 61, opened(1, 4)) => { NotTheWindow { .. } }
        |_, stores| third(stores, opened(1, 2)) => { NotTheSum { sum: 3, .. } }
        // After a reversal, the opened window stays open.
        |_, stores| reverse(stores, 1, opened(1, 2)) => { nothing }
        |_, stores| reverse(stores, 1, opened(2, 2)) => { only NotTheWindow { .. } }
    }
}

planted! { in rate;
    a_rate {
        |_, _| {} => { nothing }
        // A unit returns after ten seconds, and not before.
        |history, stores| grant(history, stores, 11, bucket(11, 30_000_000)) => { nothing }
        |history, stores| grant(history, stores, 10, bucket(10, 31_000_000)) => { only Over { .. } }
        |history, stores| grant(history, stores, 10, bucket(10, 30_000_000))
            => { NotTheSum { sum: 4, .. }, Over { .. } }
        |_, stores| third(stores, bucket(3, 27_999_999)) => { only NotTheState { .. } }
        |_, stores| third(stores, bucket(3, 20_000_000)) => { NotTheSum { sum: 3, .. } }
        |_, stores| third(stores, bucket(2, 28_000_000)) => { only NotTheState { .. } }
        |_, stores| {
            let told = PlainBucket { at: micros(3), owed: 28_000_000, since: 2 };
            third(stores, bucket_of(4, told));
        } => { only NotTheRule { .. } }
        |_, stores| {
            let told = PlainBucket { at: micros(3), owed: 28_000_000, since: 1 };
            third(stores, bucket_of(3, told));
        } => { only NotTheState { .. } }
        // The bucket lacks what it would lack without the grant, in any order of reversals.
        |_, stores| reverse(stores, 2, after_reversal(17_000_000)) => { nothing }
        |_, stores| reverse(stores, 1, after_reversal(18_000_000)) => { nothing }
        |_, stores| {
            reverse(stores, 1, after_reversal(18_000_000));
            reverse(stores, 3, after_reversal(8_000_000));
            reverse(stores, 2, after_reversal(0));
            let numbers = (4..).zip(&mut stores.entries[3..]);
            numbers.for_each(|(number, entry)| (entry.id, entry.number) = (id(number as u64), number));
        } => { nothing }
        |_, stores| reverse(stores, 1, after_reversal(17_000_000)) => { only NotTheState { .. } }
        |_, stores| reverse(stores, 1, after_reversal(27_000_000)) => { NotTheSum { sum: 2, .. } }
    }
}

planted! { in for_ever;
    a_limit_for_ever {
        |_, _| {} => { nothing }
        |history, stores| grant(history, stores, 80_000, ever(4)) => { only Over { .. } }
        |history, stores| grant(history, stores, 80_000, ever(1))
            => { NotTheSum { sum: 4, .. }, Over { .. } }
        |_, stores| third(stores, ever(2)) => { NotTheSum { sum: 3, .. } }
        |_, stores| third(stores, super::total(3)) => { NotTheRule { .. } }
        |_, stores| reverse(stores, 1, ever(2)) => { nothing }
    }
}

/// Changes from three a day to limits that look back.
fn to_sliding(history: &mut History, stores: &mut Stores, second: u64, total: Total) {
    change(history, stores, sliding_limit(), second, total);
}

fn to_rate(history: &mut History, stores: &mut Stores, second: u64, owed: i128) {
    let bucket = PlainBucket {
        at: micros(second),
        owed,
        since: 3,
    };
    change(history, stores, rate_limit(), second, bucket_of(3, bucket));
}

planted! {
    a_limit_over_an_old_account {
        // The units of the last minute count.
        |history, stores| to_sliding(history, stores, 61, units(&[2, 3, 61])) => { nothing }
        |history, stores| to_sliding(history, stores, 61, units(&[61]))
            => { only NotTheSum { sum: 3, .. } }
        |history, stores| to_sliding(history, stores, 60, units(&[60]))
            => { NotTheSum { sum: 4, .. }, Over { .. } }
        // A rate begins with a bucket that was empty one refill time before the last line.
        |history, stores| to_rate(history, stores, 34, 10_000_000) => { nothing }
        |history, stores| to_rate(history, stores, 13, 30_000_000) => { nothing }
        |history, stores| to_rate(history, stores, 13, 40_000_000) => { NotTheSum { sum: 3, .. } }
        |history, stores| to_rate(history, stores, 12, 31_000_000) => { only Over { .. } }
        |history, stores| to_rate(history, stores, 12, 10_000_000)
            => { NotTheSum { sum: 4, .. }, Over { .. } }
    }
}
