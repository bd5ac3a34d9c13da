//! The plain model of limits: what is used of each kind, recomputed from all entries for each
//! question, by the definitions alone; and the rule against it.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::sample::Index;

use super::account::{Verdict, decide, instant_after, totals_at};
use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::histories::{History, What};
use super::limit::per::Elapsed;
use super::limit::shape::{Limit, LimitKind, Shape};
use super::limit::total::{LimitState, Total};
use super::policy::Policy;
use super::refusal::Refusal;
use super::samples::policy_of;
use super::window::Window;

/// The entries of an account, and the limits under which each of them was decided.
#[derive(Default)]
struct Book {
    history: History,
    limits: Vec<Vec<Limit>>,
}

/// What an entry does to what is used.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Take,
    /// Of the entry with this place.
    GiveBack(usize),
    TakeOff,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    place: usize,
    effect: Effect,
    units: u64,
    /// The entry's instant, in microseconds.
    at: i64,
    /// The instant at which its units count.
    counted_at: i64,
}

/// A rate's bucket, in parts: a unit has as many as `per` has microseconds.
struct PlainBucket {
    parts: i128,
    owed: i128,
    given_back: i128,
    /// Of each grant under the same max: when its last unit returns, on the scale of what returned.
    returns: BTreeMap<usize, i128>,
    /// What returned so far, and where in the queue each grant's parts are that did not.
    returned: i128,
    queue: Vec<(Option<usize>, i128)>,
}

/// What returns in a microsecond; a max of 0 blocks, and returns as 1 does.
fn back_in_micro(max: u64) -> i128 {
    max.max(1).into()
}

fn burst_of(limit: &Limit) -> u64 {
    limit.shape.burst().unwrap_or(limit.max)
}

/// Whether a limit goes on from a line that was decided under another.
fn goes_on(one: &Limit, two: &Limit) -> bool {
    let step = one.shape.step() == two.shape.step();
    one.per() == two.per() && one.shape.kind() == two.shape.kind() && step
}

impl Book {
    fn event(&self, place: usize) -> Event {
        let entry = &self.history.entries[place];
        let effect = match entry.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => Effect::Take,
            EntryKind::Adjustment(Direction::Down) => Effect::TakeOff,
            EntryKind::Confirmation { .. } => Effect::Nothing,
            EntryKind::Reversal { of } | EntryKind::Lapse { of } => {
                let is_it = |other: &Entry| other.id == of;
                Effect::GiveBack(self.history.entries.iter().position(is_it).unwrap())
            }
        };
        Event {
            place,
            effect,
            units: entry.units.get(),
            at: entry.line.at.timestamp_micros(),
            counted_at: entry.counted_at().timestamp_micros(),
        }
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        (0..self.history.entries.len()).map(|place| self.event(place))
    }

    /// The place from which on all lines tell the limit; the number of lines where the last one
    /// does not.
    fn kept_from(&self, limit: &Limit) -> usize {
        let tells = |limits: &&Vec<Limit>| limits.iter().any(|other| goes_on(other, limit));
        self.limits.len() - self.limits.iter().rev().take_while(tells).count()
    }

    fn told(&self, place: usize, limit: &Limit) -> Limit {
        let limits = self.limits[place].iter();
        *limits
            .into_iter()
            .find(|other| goes_on(other, limit))
            .unwrap()
    }

    /// The entries that count for a limit, which is kept from a line on: of those before it only what
    /// counts after an instant.
    fn counting(&self, kept_from: usize, since: i64) -> impl Iterator<Item = Event> {
        let counts = move |event: &Event| event.place >= kept_from || event.counted_at > since;
        self.events().filter(counts)
    }

    /// The instant before which nothing is known of a limit that begins with a line, or now.
    fn begins_at(&self, kept_from: usize, at: i64, ago: i64) -> i64 {
        let line = self.history.entries.get(kept_from);
        line.map_or(at, |entry| entry.line.at.timestamp_micros()) - ago
    }

    fn used_in(&self, window: Window) -> u64 {
        let contains = |event: &Event| {
            let counted_at = DateTime::from_timestamp_micros(event.counted_at).unwrap();
            window.contains(counted_at)
        };
        let inside = self.events().filter(contains);
        inside.fold(0, |used: u64, event| match event.effect {
            Effect::Take => used + event.units,
            Effect::GiveBack(_) | Effect::TakeOff => used.saturating_sub(event.units),
            Effect::Nothing => used,
        })
    }

    /// The window's first instant, and what is used in it.
    fn from_first_claim(&self, limit: &Limit, per: Elapsed, at: i64) -> (Option<i64>, u64) {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let since = self.begins_at(kept_from, at, per);
        let mut windows: Vec<(i64, u64)> = Vec::new();
        for event in self.counting(kept_from, since) {
            let is_open = |(start, _): &(i64, u64)| event.at < start + per;
            let is_new = !windows.last().is_some_and(is_open);
            if is_new && matches!(event.effect, Effect::Take) && event.at < event.counted_at + per {
                windows.push((event.counted_at, 0));
            }
            let current = windows.last_mut();
            let Some((start, used)) = current.filter(|window| is_open(window)) else {
                continue;
            };
            match event.effect {
                _ if event.counted_at < *start => {}
                Effect::Take => *used += event.units,
                Effect::GiveBack(_) | Effect::TakeOff => *used = used.saturating_sub(event.units),
                Effect::Nothing => {}
            }
        }
        let current = windows.last().filter(|(start, _)| at < start + per);
        current.map_or((None, 0), |(start, used)| (Some(*start), *used))
    }

    /// The units by the instants at which they count, of those that count as of an instant.
    fn sliding(&self, limit: &Limit, per: Elapsed, at: i64) -> BTreeMap<i64, u64> {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let step = limit.shape.step().map_or(1, Elapsed::micros);
        let since = self.begins_at(kept_from, at, per).div_euclid(step) * step;
        let cell = |instant: i64| (instant + step - 1).div_euclid(step) * step;
        let mut taken: BTreeMap<i64, u64> = BTreeMap::new();
        for event in self.counting(kept_from, since) {
            let own = cell(event.counted_at);
            if own + per <= event.at {
                continue;
            }
            match event.effect {
                Effect::Take => *taken.entry(own).or_default() += event.units,
                Effect::GiveBack(_) => {
                    let mut from_own = taken.range_mut(own..);
                    if let Some((_, units)) = from_own.find(|(_, units)| **units > 0) {
                        *units = units.saturating_sub(event.units);
                    }
                }
                Effect::TakeOff => {
                    let mut rest = event.units;
                    for (_, units) in taken.range_mut(event.at - per + 1..) {
                        let off = rest.min(*units);
                        *units -= off;
                        rest -= off;
                    }
                }
                Effect::Nothing => {}
            }
        }
        taken.retain(|instant, units| *units > 0 && at < instant + per);
        taken
    }

    fn rate(&self, limit: &Limit, per: Elapsed, at: i64) -> PlainBucket {
        let kept_from = self.kept_from(limit);
        let parts = i128::from(per.micros());
        let first = match kept_from < self.limits.len() {
            true => self.told(kept_from, limit),
            false => *limit,
        };
        let full = i128::from(burst_of(&first)) * parts;
        let back = back_in_micro(first.max);
        let refill = i64::try_from((full + back - 1) / back).unwrap();
        let since = self.begins_at(kept_from, at, refill);
        let mut bucket = PlainBucket {
            parts,
            owed: full,
            given_back: 0,
            returns: BTreeMap::new(),
            returned: 0,
            queue: vec![(None, full)],
        };
        // Under another max all returns by that one from the line before on.
        let (mut clock, mut max) = (since, first.max);
        for event in self.counting(kept_from, since) {
            let is_kept = event.place >= kept_from;
            if is_kept && self.told(event.place, limit).max != max {
                max = self.told(event.place, limit).max;
                bucket.returns.clear();
                bucket.given_back = 0;
            }
            bucket.pass(max, event.at - clock);
            clock = event.at;
            bucket.meet(&event, max, is_kept);
        }
        bucket.pass(limit.max, at - clock);
        bucket
    }

    /// What is used of a limit and what is left, at an instant that is not before the last entry's.
    fn used_and_left(&self, policy: &Policy, limit: &Limit, now: DateTime<Utc>) -> (u64, u64) {
        let at = now.timestamp_micros();
        let used = match limit.shape {
            Shape::Calendar(length) => self.used_in(policy.rule.calendar.window(length, now)),
            Shape::Ever => self.used_in(Window::EVER),
            Shape::FromFirstClaim(per) => self.from_first_claim(limit, per, at).1,
            Shape::Sliding { per, .. } => self.sliding(limit, per, at).values().sum(),
            Shape::Rate { per, .. } => {
                let bucket = self.rate(limit, per, at);
                let used = (bucket.owed + bucket.parts - 1) / bucket.parts;
                u64::try_from(used).unwrap()
            }
        };
        let left = match limit.max {
            0 => 0,
            _ => limit.shape.at_once(limit.max).saturating_sub(used),
        };
        (used, left)
    }

    /// Grants that were decided and not given back, with their places.
    fn standing(&self) -> impl Iterator<Item = Event> {
        let is_given_back = |place: usize| {
            let mut events = self.events();
            events.any(|event| matches!(event.effect, Effect::GiveBack(of) if of == place))
        };
        let is_decided = |event: &Event| {
            let entry = &self.history.entries[event.place];
            matches!(entry.kind, EntryKind::Grant { .. }) && entry.provisional.is_none()
        };
        self.events()
            .filter(move |event| is_decided(event) && !is_given_back(event.place))
    }

    /// After a grant: no span of time has more than a limit allows. What was granted and given back
    /// since does not count, and neither does what was entered by hand.
    fn is_never_over(&self, limit: &Limit) -> Result<(), TestCaseError> {
        let now = self.event(self.limits.len() - 1).at;
        let grants: Vec<Event> = self.standing().collect();
        let sum = |from: i64| {
            let inside = grants.iter().filter(|event| event.counted_at >= from);
            inside.map(|event| event.units).sum::<u64>()
        };
        match limit.shape {
            Shape::Sliding { per, .. } => {
                prop_assert!(sum(now - per.micros() + 1) <= limit.max);
            }
            Shape::Rate { per, .. } => {
                let same = |limits: &&Vec<Limit>| limits.contains(limit);
                let kept = self.limits.iter().rev().take_while(same).count();
                let kept_from = self.limits.len() - kept;
                for grant in grants.iter().filter(|event| event.place >= kept_from) {
                    let span = i128::from(now - grant.counted_at) * i128::from(limit.max);
                    let most = i128::from(burst_of(limit)) * i128::from(per.micros()) + span;
                    let of_span = i128::from(sum(grant.counted_at)) * i128::from(per.micros());
                    prop_assert!(of_span <= most, "{limit:?}: {of_span} of {most}");
                }
            }
            Shape::Calendar(_) | Shape::Ever | Shape::FromFirstClaim(_) => {}
        }
        Ok(())
    }
}

impl PlainBucket {
    fn pass(&mut self, max: u64, micros: i64) {
        let mut back = back_in_micro(max) * i128::from(micros.max(0));
        self.owed = (self.owed - back).max(0);
        self.returned += back;
        // The queue is served in its order.
        for (_, parts) in &mut self.queue {
            let served = back.min(*parts);
            *parts -= served;
            back -= served;
        }
        self.queue.retain(|(_, parts)| *parts > 0);
    }

    fn meet(&mut self, event: &Event, max: u64, is_known: bool) {
        let cost = i128::from(event.units) * self.parts;
        let late = back_in_micro(max) * i128::from((event.at - event.counted_at).max(0));
        let not_refilled = (cost - late).max(0);
        match event.effect {
            Effect::Take => {
                self.owed += if self.owed == 0 { not_refilled } else { cost };
                let queued = match self.queue.is_empty() {
                    true => not_refilled,
                    false => cost,
                };
                self.queue.push((Some(event.place), queued));
                if is_known {
                    let returns = self.owed + self.given_back + self.returned;
                    self.returns.insert(event.place, returns);
                }
            }
            Effect::GiveBack(of) => {
                let returns = self.returns.get(&of);
                let outstanding = returns.map_or(0, |returns| {
                    (returns - self.given_back - self.returned).clamp(0, cost)
                });
                let off = outstanding.min(self.owed);
                self.owed -= off;
                self.given_back += off;
                self.queue.retain(|(grant, _)| *grant != Some(of));
            }
            Effect::TakeOff => {
                let off = not_refilled.min(self.owed);
                self.owed -= off;
                self.given_back += off;
            }
            Effect::Nothing => {}
        }
    }

    /// What is still owed if each grant that is given back takes along what time has not refilled of
    /// its own units.
    fn queued(&self) -> i128 {
        self.queue.iter().map(|(_, parts)| parts).sum()
    }
}

/// A step of a history: time that passes, which rule holds then, perhaps with another max, and what
/// is done with how many units.
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
    ];
    match by_hand {
        true => prop_oneof![4 => decided, 1 => hand].boxed(),
        false => decided.boxed(),
    }
}

fn model_steps(by_hand: bool) -> impl Strategy<Value = Vec<ModelStep>> {
    let other_max = proptest::option::weighted(0.15, 0u64..9);
    // The same rule holds for a while.
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
        (10u64..60).prop_map(|max| format!("{max} per ever")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} from_first_claim")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} sliding")),
        (1u64..9, step).prop_map(|(max, step)| format!("{max} per 10s sliding {step}")),
        (1u64..9, per()).prop_map(|(max, per)| format!("{max} per {per} rate")),
        (1u64..9, per(), 1u64..13)
            .prop_map(|(max, per, burst)| format!("{max} per {per} rate {burst}")),
    ]
}

/// One to three limits, no two of one name.
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

/// The totals after the account's entries at an instant that is not before the last one.
fn totals(history: &History, policy: &Policy, at: DateTime<Utc>) -> Vec<Total> {
    history.ask(|past| totals_at(policy, history.last(), past, at))
}

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

/// Whether it is known when units return. Where the last line was decided under other limits, a window
/// from the first claim and a bucket are recomputed from the past until the next line keeps them.
fn is_foretold(history: &History, total: &Total) -> bool {
    let kept = |line: &Line| {
        line.totals
            .iter()
            .any(|other| other.is_of_same_limit(total))
    };
    let is_recomputed = matches!(total.kind(), LimitKind::FromFirstClaim | LimitKind::Rate);
    !is_recomputed || history.last().is_none_or(kept)
}

/// What the totals tell of later instants is so.
fn tells_the_future(
    history: &History,
    policy: &Policy,
    at: DateTime<Utc>,
) -> Result<(), TestCaseError> {
    let later = |place: usize, at| totals(history, policy, at).swap_remove(place);
    for (place, total) in totals(history, policy, at).into_iter().enumerate() {
        if !is_foretold(history, &total) {
            continue;
        }
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

/// A claim that was denied is granted as soon as it is told, and not before.
fn is_granted_when_told(
    history: &History,
    policy: &Policy,
    units: Units,
    denied: &[Total],
) -> Result<(), TestCaseError> {
    if !denied.iter().all(|total| is_foretold(history, total)) {
        return Ok(());
    }
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

/// Runs a history, and compares all that the rule says with the plain model.
fn follows_the_model(rules: &[Vec<String>], steps: &[ModelStep]) -> Result<(), TestCaseError> {
    let mut book = Book::default();
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    let mut has_taken_off = false;
    for (version, step) in (1..).zip(steps) {
        now += TimeDelta::microseconds(step.passes);
        let policy = policy_then(rules, step, version);
        let units = Units::new(step.units.into()).unwrap();
        let limits = &policy.rule.limits;
        // The lapses come first; they are made here so that the model knows them too.
        book.history.lapse(&policy, now);
        book.limits
            .resize(book.history.entries.len(), limits.clone());
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

        let verdict = book.history.step(&policy, units, &step.what, now);
        book.limits
            .resize(book.history.entries.len(), limits.clone());
        has_taken_off |= matches!(step.what, What::Adjust(Direction::Down, _));
        let fits = model.iter().all(|(_, left)| step.units <= *left);
        match verdict {
            Some(Verdict::Granted(_)) => {
                prop_assert!(fits);
                if !has_taken_off {
                    limits
                        .iter()
                        .try_for_each(|limit| book.is_never_over(limit))?;
                }
            }
            Some(Verdict::Refused(refusal)) => {
                prop_assert!(!fits);
                if let Refusal::Denied(denied) = refusal
                    && book.history.open.is_empty()
                {
                    is_granted_when_told(&book.history, &policy, units, &denied)?;
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
        // The line, entry by entry.
        for (limit, total) in limits.iter().zip(line.totals.iter()) {
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
                    prop_assert_eq!(start, book.from_first_claim(limit, per, at).0);
                }
                (LimitState::Rate(bucket), Shape::Rate { per, .. }) => {
                    let model = book.rate(limit, per, at);
                    let owed = i128::try_from(bucket.owed).unwrap();
                    prop_assert_eq!(owed, model.owed);
                    prop_assert!(has_taken_off || model.queued() <= owed);
                }
                _ => prop_assert_eq!(total.kind(), LimitKind::Calendar),
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

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
