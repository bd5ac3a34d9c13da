//! Tests the rule against a plain model of limits. For each question the model computes the usage
//! of each kind again from all entries.

mod backtest;
mod calendars;
mod folds;
mod forecasts;
mod lapses;
mod parts;
mod plain;
mod top_ups;

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::sample::Index;

use plain::Book;

use super::account::{Verdict, decide, instant_after, totals_at};
use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::histories::{History, What, assert_every_kind_is_made};
use super::kind::Kind;
use super::limit::shape::{LimitKind, Shape};
use super::limit::total::{LimitState, Total};
use super::policy::Policy;
use super::refusal::Refusal;
use super::samples::policy_of;
use super::window::Window;

/// A step of a history: time that passes, the active rule, perhaps another max, the units and the
/// action.
#[derive(Debug, Clone)]
struct ModelStep {
    passes: i64,
    rule: usize,
    other_max: Option<u64>,
    units: u64,
    what: What,
}

const SECOND: i64 = 1_000_000;

fn passes() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        1 => Just(1),
        4 => (0i64..12).prop_map(|seconds| seconds * SECOND),
        4 => 0..3 * SECOND,
        1 => 0..90 * SECOND,
    ]
}

fn what(by_hand: bool) -> BoxedStrategy<What> {
    let time = || passes().prop_map(TimeDelta::microseconds);
    let index = any::<Index>;
    let decided = prop_oneof![
        8 => Just(What::Grant),
        2 => time().prop_map(|lasts| What::Hold(lasts + TimeDelta::microseconds(1))),
        3 => index().prop_map(What::Reverse),
        1 => index().prop_map(What::Confirm),
    ];
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    let hand = prop_oneof![
        1 => time().prop_map(What::Record),
        2 => (direction, time()).prop_map(|(direction, ago)| What::Adjust(direction, ago)),
        1 => proptest::option::of(index()).prop_map(What::Reset),
        2 => time().prop_map(|lasts| What::TopUp(lasts + TimeDelta::microseconds(1))),
        1 => index().prop_map(What::EndTopUp),
    ];
    if by_hand {
        prop_oneof![4 => decided, 1 => hand].boxed()
    } else {
        decided.boxed()
    }
}

fn model_steps(by_hand: bool) -> impl Strategy<Value = Vec<ModelStep>> {
    let other_max = proptest::option::weighted(0.15, 0u64..9);
    // The same rule is active for a while.
    let rule = prop_oneof![3 => Just(None), 1 => (0usize..4).prop_map(Some)];
    let step = (passes(), rule, other_max, 1u64..4, what(by_hand));
    proptest::collection::vec(step, 1..50).prop_map(|steps| {
        let mut holds = 0;
        let steps = steps
            .into_iter()
            .map(|(passes, rule, other_max, units, what)| {
                holds = rule.unwrap_or(holds);
                ModelStep {
                    passes,
                    rule: holds,
                    other_max,
                    units,
                    what,
                }
            });
        steps.collect()
    })
}

/// One limit of any kind.
fn any_limit() -> impl Strategy<Value = String> {
    let per = || prop_oneof![Just("7s"), Just("10s"), Just("1m")];
    let step = prop_oneof![Just("1s"), Just("5s"), Just("10s")];
    prop_oneof![
        (
            1u64..9,
            prop_oneof![Just("minute"), Just("hour"), Just("day")]
        )
            .prop_map(|(max, per)| format!("{max} per {per}")),
        (1u64..9, prop_oneof![Just("10s"), Just("30s")])
            .prop_map(|(max, per)| format!("{max} per {per} calendar")),
        (10u64..60, 19u8..22)
            .prop_map(|(max, day)| format!("{max} per 2 weeks from 2026-10-{day}")),
        (10u64..60).prop_map(|max| format!("{max} per ever")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} from_first_claim")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} sliding")),
        (1u64..9, step).prop_map(|(max, step)| format!("{max} per 10s sliding {step}")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} rate")),
        (1u64..9, per(), 1u64..13)
            .prop_map(|(max, per, burst)| format!("{max} per {per} rate {burst}")),
    ]
}

/// One to three limits with different names.
fn any_rule() -> impl Strategy<Value = Vec<String>> {
    let one = any_limit().prop_map(|limit| vec![limit]);
    let more = proptest::collection::vec(any_limit(), 2..4).prop_map(|limits| {
        let mut names = Vec::new();
        let mut kept = limits;
        kept.retain(|limit| {
            let name = limit.split(' ').nth(2).map(str::to_owned);
            let is_new = !names.contains(&name);
            names.push(name);
            is_new
        });
        kept
    });
    prop_oneof![one, more]
}

fn policy_then(rules: &[Vec<String>], step: &ModelStep, version: u32) -> Policy {
    let policy = policy_of(version, "Asia/Kolkata", &rules[step.rule % rules.len()]);
    policy.with_max(|_| step.other_max)
}

/// The totals after the entries of the account, at an instant that is not before the last entry.
fn totals(history: &History, policy: &Policy, at: DateTime<Utc>) -> Vec<Total> {
    history.ask(|past| totals_at(policy, history.last(), past, at))
}

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

/// Checks what the totals say about later instants.
fn tells_the_future(
    history: &History,
    policy: &Policy,
    at: DateTime<Utc>,
) -> Result<(), TestCaseError> {
    let later = |place: usize, at| totals(history, policy, at).swap_remove(place);
    for (place, total) in totals(history, policy, at).into_iter().enumerate() {
        let left = total.remaining();
        let grows_by = |at| later(place, at).remaining().checked_sub(left);
        match total.more_at() {
            Some(more_at) => {
                prop_assert!(at < more_at);
                prop_assert_eq!(grows_by(more_at - MICROSECOND), Some(0));
                let can_grow = total.used() > 0 && total.max > 0;
                prop_assert_eq!(grows_by(more_at) > Some(0), can_grow, "{:?}", total);
            }
            None => prop_assert_eq!(grows_by(at + TimeDelta::days(4000)), Some(0)),
        }
        match total.resets_at() {
            Some(resets_at) => {
                prop_assert!(at < resets_at);
                prop_assert_eq!(later(place, resets_at).used(), 0);
                let just_before = later(place, resets_at - MICROSECOND).used();
                prop_assert_eq!(just_before > 0, total.used() > 0);
            }
            None => prop_assert!(total.used() == 0 || total.window() == Some(Window::EVER)),
        }
    }
    Ok(())
}

/// Checks that a denied claim is granted at the instant that the denial names, and not before.
fn is_granted_when_told(
    history: &History,
    policy: &Policy,
    units: Units,
    denied: &[Total],
) -> Result<(), TestCaseError> {
    let lacking = denied.iter().filter(|total| !total.fits(units));
    let fits_at: Vec<_> = lacking.map(|total| total.fits_at(units)).collect();
    let fits_at: Option<Vec<_>> = fits_at.into_iter().collect();
    let verdict = |at| history.ask(|past| decide(policy, units, history.last(), past, at));
    let is_granted = |at| matches!(verdict(at), Verdict::Granted(_));
    let Some(fits_at) = fits_at else {
        let never = history.last().map(|line| line.at + TimeDelta::days(4000));
        prop_assert!(!never.is_some_and(is_granted));
        return Ok(());
    };
    let fits_at = fits_at.into_iter().max().unwrap();
    prop_assert!(!is_granted(fits_at - MICROSECOND));
    prop_assert!(is_granted(fits_at));
    Ok(())
}

/// Plays a history, and compares everything that the rule says with the plain model. Returns the
/// entries.
fn follows_the_model(
    rules: &[Vec<String>],
    steps: &[ModelStep],
) -> Result<Vec<Entry>, TestCaseError> {
    let mut book = Book::default();
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    for (version, step) in (1..).zip(steps) {
        now += TimeDelta::microseconds(step.passes);
        let policy = policy_then(rules, step, version);
        let units = Units::new(step.units.into()).unwrap();
        let limits = &policy.rule.limits;
        // The lapses come first. They are made here so that the model knows them too.
        book.history.lapse(now);
        book.meet(0)?;
        if let Some(before) = book.limits.last().cloned() {
            book.limits.resize(book.history.entries.len(), before);
        }
        let at = instant_after(book.history.last(), now);
        let model: Vec<_> = limits
            .iter()
            .map(|limit| book.used_and_left(&policy, limit, at))
            .collect();
        let told = totals(&book.history, &policy, at);
        let told: Vec<_> = told
            .iter()
            .map(|total| (total.used(), total.remaining()))
            .collect();
        prop_assert_eq!(&told, &model, "before {:?}", step);
        tells_the_future(&book.history, &policy, at)?;

        let room = model.iter().map(|(_, left)| *left).min().unwrap();
        let topped_up = book.top_ups.left(at);
        let verdict = book.history.step(&policy, units, &step.what, now);
        book.meet(room)?;
        book.limits
            .resize(book.history.entries.len(), limits.clone());
        let fits = step.units <= room + topped_up;
        match verdict {
            Some(Verdict::Granted(_)) => {
                prop_assert!(fits);
                // A limit can be over after its `max` was lowered: then all units come from top-ups.
                if book.top_ups.own.last() > Some(&0) {
                    limits
                        .iter()
                        .try_for_each(|limit| book.is_never_over(limit))?;
                }
            }
            Some(Verdict::Refused(refusal)) => {
                prop_assert!(!fits);
                if let Refusal::Denied(denied) = refusal
                    && book.history.open.is_empty()
                    && topped_up == 0
                {
                    is_granted_when_told(&book.history, &policy, units, &denied.totals)?;
                }
            }
            Some(Verdict::WouldDeny(_)) => prop_assert!(false, "nothing observes"),
            None => {}
        }
        let Some(line) = book.history.last() else {
            continue;
        };
        if book.limits.last() != Some(limits) {
            continue;
        }
        // The line of each entry.
        for (limit, total) in limits.iter().zip(line.totals.iter()) {
            // A lapse leaves the calendar windows as they were.
            let window = total.window_use().map(|calendar| calendar.window);
            if window.is_some_and(|window| !window.contains(line.at)) {
                continue;
            }
            let (used, left) = book.used_and_left(&policy, limit, line.at);
            prop_assert_eq!(
                (total.used(), total.remaining()),
                (used, left),
                "after {:?}",
                step
            );
            let at = line.at.timestamp_micros();
            match (&total.state, limit.shape) {
                (LimitState::Sliding(log), Shape::Sliding { per, .. }) => {
                    let pairs = log.pairs.iter().map(|pair| (pair.at, pair.units));
                    prop_assert_eq!(
                        pairs.collect::<BTreeMap<_, _>>(),
                        book.sliding(limit, per, at)
                    );
                }
                (LimitState::FromFirstClaim(opened), Shape::FromFirstClaim(per)) => {
                    let start = opened.opened.map(|opened| opened.timestamp_micros());
                    prop_assert_eq!(start, book.opened_by_claims(limit, per, at).0);
                }
                (LimitState::Rate(bucket), Shape::Rate { per, .. }) => {
                    let owed = i128::try_from(bucket.owed).unwrap();
                    prop_assert_eq!(owed, book.rate(limit, per, at));
                }
                _ => prop_assert_eq!(total.kind(), LimitKind::Calendar),
            }
        }
    }
    Ok(book.history.entries)
}

#[test]
fn the_steps_make_every_kind_of_entry() {
    let rules = [vec!["5 per 10s sliding".to_owned()]];
    let follow = |steps: Vec<ModelStep>| follows_the_model(&rules, &steps).unwrap();
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Calendar)
        .collect();
    assert_every_kind_is_made(&kinds, model_steps(true), follow);
}

proptest! {
    /// A confirmation moves no units: an adjustment of before it is still exact after a change of `max`.
    #[test]
    fn a_confirmation_is_no_movement_of_a_bucket(index in any::<Index>()) {
        let step = |seconds, units, other_max, what| ModelStep {
            passes: seconds * SECOND,
            rule: 0,
            other_max,
            units,
            what,
        };
        let steps = [
            step(0, 1, None, What::Grant),
            step(4, 2, None, What::Hold(TimeDelta::seconds(2))),
            step(1, 1, Some(0), What::Confirm(index)),
            step(5, 1, None, What::Adjust(Direction::Down, TimeDelta::seconds(6))),
        ];
        follows_the_model(&[vec!["2 per 7s rate".to_owned()]], &steps)?;
    }
}

proptest! {
    #[test]
    fn each_kind_is_what_the_plain_model_says(limit in any_limit(), steps in model_steps(false)) {
        follows_the_model(&[vec![limit]], &steps)?;
    }

    #[test]
    fn limits_of_all_kinds_follow_the_plain_model(
        rules in proptest::collection::vec(any_rule(), 1..5),
        steps in model_steps(true),
    ) {
        follows_the_model(&rules, &steps)?;
    }
}
