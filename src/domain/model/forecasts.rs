//! Tests forecasts against the plain model: what is told at an instant is what the model says when
//! that instant comes.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::sample::Index;

use super::plain::Book;
use super::{
    MICROSECOND, ModelStep, SECOND, any_limit, any_rule, model_steps, passes, policy_then,
};
use crate::account::{UnitsAsked, Unknown, instant_after};
use crate::blocks::BlockTerms;
use crate::claim::Units;
use crate::correction::Hold;
use crate::course::Course;
use crate::forecast::{Forecast, Foreknown, HoldsAhead, Returns, foresee};
use crate::histories::History;
use crate::limit::shape::Limit;
use crate::policy::{Mode, Policy};
use crate::window::Window;

/// A later change of the terms: the time until it, another rule, perhaps another max, and whether the
/// subject is blocked, and the policy pauses, observes, ends or is still to begin.
#[derive(Debug, Clone)]
struct ModelChange {
    after: i64,
    rule: usize,
    other_max: Option<u64>,
    is_blocked: bool,
    is_paused: bool,
    observes: bool,
    begins_after: Option<i64>,
    ends_after: Option<i64>,
}

fn changes() -> impl Strategy<Value = Vec<ModelChange>> {
    let bound = || proptest::option::weighted(0.1, 1..90 * SECOND);
    let other_max = proptest::option::weighted(0.4, 0u64..9);
    let is_so = proptest::bool::weighted;
    let terms = (0usize..4, other_max, is_so(0.1), is_so(0.1), is_so(0.05));
    let change = (passes(), terms, bound(), bound()).prop_map(|(passes, terms, begins, ends)| {
        let (rule, other_max, is_blocked, is_paused, observes) = terms;
        ModelChange {
            after: passes + 1,
            rule,
            other_max,
            is_blocked,
            is_paused,
            observes,
            begins_after: begins,
            ends_after: ends.map(|ends| ends + begins.unwrap_or(0)),
        }
    });
    proptest::collection::vec(change, 0..4)
}

/// An account with its past, and the known course of its terms.
struct Case {
    book: Book,
    course: Course,
    now: DateTime<Utc>,
}

impl Case {
    /// The book as it is at a later instant, if nobody claims: each hold has lapsed at its end.
    fn later(&self, at: DateTime<Utc>) -> Book {
        let History {
            account,
            entries,
            open,
        } = &self.book.history;
        let mut later = Book {
            history: History {
                account: *account,
                entries: entries.clone(),
                open: open.clone(),
            },
            limits: self.book.limits.clone(),
            top_ups: self.book.top_ups.clone(),
        };
        let mut ends: Vec<_> = open.iter().map(|hold| hold.until).collect();
        ends.sort_unstable();
        ends.dedup();
        for end in ends.into_iter().filter(|end| *end <= at) {
            let end = instant_after(later.history.last(), end);
            later.history.lapse(end);
            later.meet(0).unwrap();
            let before = later.limits.last().expect("the grant's limits").clone();
            later.limits.resize(later.history.entries.len(), before);
        }
        later
    }

    fn policy(&self, at: DateTime<Utc>) -> Arc<Policy> {
        self.course.policy_at(at).unwrap().clone()
    }

    /// Whether the plain model grants a claim at an instant.
    fn grants(&self, units: Units, at: DateTime<Utc>) -> bool {
        let policy = self.policy(at);
        let book = self.later(at);
        let topped_up = book.top_ups.left(at);
        let most = book.top_ups.most(at);
        let has_room = |limit: &Limit| {
            let (_, left) = book.used_and_left(&policy, limit, at);
            units.get() <= left + topped_up && units.get() <= limit.ceiling + most
        };
        let is_open = policy.rule.inactive(at).is_none();
        let observes = policy.rule.mode == Mode::Observe;
        let is_blocked = policy.blocked.is_some();
        is_open && (observes || !is_blocked && policy.rule.limits.iter().all(has_room))
    }

    /// The used and the remaining units, and the window, of the limit with the name of another one.
    fn limit_at(&self, limit: &Limit, at: DateTime<Utc>) -> Option<(u64, u64, Option<Window>)> {
        let policy = self.policy(at);
        let book = self.later(at);
        let mut limits = policy.rule.limits.iter();
        let limit = limits.find(|other| other.per() == limit.per())?;
        let (used, left) = book.used_and_left(&policy, limit, at);
        let totals = super::totals(&book.history, &policy, at);
        let total = totals.iter().find(|total| total.per() == limit.per());
        Some((used, left, total.unwrap().window()))
    }

    /// What is foretold at an instant, by the entries of another book.
    fn told_at(&self, book: &Book, units: Units, at: DateTime<Utc>) -> Forecast {
        let mut holds: Vec<Hold> = book.history.open.clone();
        holds.sort_by_key(|hold| hold.until);
        let mut known = Foreknown {
            holds: Some(HoldsAhead {
                holds,
                last_ends_at: None,
            }),
            ..Foreknown::default()
        };
        loop {
            match foresee(
                &self.course,
                book.history.last(),
                &known,
                Some(&UnitsAsked::from(units).into()),
                at,
            ) {
                Ok(forecast) => return forecast,
                Err(Unknown::Past(wanted)) => known.past.extend(book.history.past(&wanted)),
                Err(unknown) => panic!("{unknown:?}"),
            }
        }
    }

    /// Instants between now and another one: those at which something happens, and some others.
    fn instants(&self, end: DateTime<Utc>, others: &[Index]) -> Vec<DateTime<Utc>> {
        let holds = self.book.history.open.iter().map(|hold| hold.until);
        let changes = std::iter::successors(Some(self.now), |at| self.course.next_change(*at));
        let span = (end - self.now).num_microseconds().unwrap().max(1);
        let others = others.iter().map(|index| {
            let micros = index.index(usize::try_from(span).unwrap());
            self.now + TimeDelta::microseconds(micros as i64)
        });
        let top_ups = self.book.top_ups.ends();
        let known = holds
            .chain(changes)
            .chain(top_ups)
            .flat_map(|at| [at - MICROSECOND, at]);
        let all = known.chain(others);
        all.filter(|at| (self.now..end).contains(at)).collect()
    }

    fn is_foretold(&self, units: Units, others: &[Index]) -> Result<(), TestCaseError> {
        let forecast = self.told_at(&self.book, units, self.now);
        // 1. Granted at the told instant, and at no instant before it.
        let promised = forecast.fits_at;
        if let Some(promised) = promised {
            prop_assert!(self.grants(units, promised), "not granted at {promised}");
            let is_before = promised > self.now && self.grants(units, promised - MICROSECOND);
            prop_assert!(!is_before, "granted before {promised}");
        }
        let far = self.now + TimeDelta::days(800);
        for at in self.instants(promised.unwrap_or(far), others) {
            prop_assert!(
                !self.grants(units, at),
                "granted at {at}, told {promised:?}"
            );
        }
        // 2. While nothing happens the told instant stays, whether or not lapses are recorded.
        for at in self.instants(promised.unwrap_or(far), others) {
            let later = self.told_at(&self.book, units, at).fits_at;
            prop_assert_eq!(later, promised, "at {}", at);
            let later = self.told_at(&self.later(at), units, at).fits_at;
            prop_assert_eq!(later, promised, "at {}, with the lapses", at);
        }
        // 3. Each limit.
        let limits = self.policy(self.now).rule.limits.clone();
        prop_assert_eq!(forecast.returns.len(), limits.len());
        for (limit, (per, returns)) in limits.iter().zip(&forecast.returns) {
            prop_assert_eq!(limit.per(), *per);
            self.returns_when_told(limit, *returns, others)?;
        }
        Ok(())
    }

    fn returns_when_told(
        &self,
        limit: &Limit,
        returns: Returns,
        others: &[Index],
    ) -> Result<(), TestCaseError> {
        let (used, left, window) = self.limit_at(limit, self.now).unwrap();
        let has_left = |later: Option<Window>| {
            window.is_some() && later.is_none_or(|later| later.start > self.now)
        };
        let has_more = |at| {
            let later = self.limit_at(limit, at);
            later.is_none_or(|(_, now_left, window)| {
                now_left > left || now_left > 0 && has_left(window)
            })
        };
        let has_reset = |at| {
            let later = self.limit_at(limit, at);
            match used {
                0 => has_left(later.and_then(|(_, _, window)| window)),
                _ => later.is_none_or(|(now_used, ..)| now_used == 0),
            }
        };
        let far = self.now + TimeDelta::days(800);
        let both: [(_, &dyn Fn(_) -> bool); 2] = [
            (returns.more_at, &has_more),
            (returns.resets_at, &has_reset),
        ];
        for (promised, is_so) in both {
            if let Some(promised) = promised {
                prop_assert!(is_so(promised), "{limit:?} at {promised}");
            }
            for at in self.instants(promised.unwrap_or(far), others) {
                prop_assert!(!is_so(at), "{limit:?} at {at}, told {promised:?}");
            }
        }
        Ok(())
    }
}

/// Plays a history, and then a course of changes that begins with the last rule.
fn case(rules: &[Vec<String>], steps: &[ModelStep], changes: &[ModelChange], passes: i64) -> Case {
    let mut book = Book::default();
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    let mut policy = policy_then(rules, &steps[0], 1);
    for (version, step) in (1..).zip(steps) {
        now += TimeDelta::microseconds(step.passes);
        policy = policy_then(rules, step, version);
        let units = Units::new(step.units.into()).unwrap();
        book.history.lapse(now);
        book.meet(0).unwrap();
        if let Some(before) = book.limits.last().cloned() {
            book.limits.resize(book.history.entries.len(), before);
        }
        let at = instant_after(book.history.last(), now);
        let limits = policy.rule.limits.iter();
        let left = limits.map(|limit| book.used_and_left(&policy, limit, at).1);
        let room = left.min().unwrap();
        book.history.step(&policy, units, &step.what, now);
        book.meet(room).unwrap();
        let entries = book.history.entries.len();
        book.limits.resize(entries, policy.rule.limits.clone());
    }
    let from = instant_after(book.history.last(), now + TimeDelta::microseconds(passes));
    let mut spans = vec![(from, Arc::new(policy))];
    for (version, change) in (steps.len() as u32 + 1..).zip(changes) {
        let at = spans[spans.len() - 1].0 + TimeDelta::microseconds(change.after);
        let step = ModelStep {
            rule: change.rule,
            other_max: change.other_max,
            ..steps[0].clone()
        };
        let mut policy = policy_then(rules, &step, version);
        let bound = |after: Option<i64>| after.map(|after| at + TimeDelta::microseconds(after));
        policy.blocked = change.is_blocked.then_some(BlockTerms { until: None });
        policy.rule.paused = change.is_paused;
        policy.rule.active_from = bound(change.begins_after);
        policy.rule.active_until = bound(change.ends_after);
        if change.observes {
            policy.rule.mode = Mode::Observe;
        }
        spans.push((at, Arc::new(policy)));
    }
    let course = Course::new(from, spans.iter().map(|(at, _)| *at), |at| {
        let mut begun = spans.iter().rev();
        begun
            .find(|(from, _)| *from <= at)
            .map(|(_, policy)| policy.clone())
    });
    Case {
        book,
        course,
        now: from,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn each_kind_is_foretold(
        limit in any_limit(),
        steps in model_steps(false),
        units in 1u64..6,
        others in proptest::collection::vec(any::<Index>(), 4),
        passes in passes(),
    ) {
        let units = Units::new(units.into()).unwrap();
        case(&[vec![limit]], &steps, &[], passes).is_foretold(units, &others)?;
    }

    #[test]
    fn limits_of_all_kinds_are_foretold_over_changes(
        rules in proptest::collection::vec(any_rule(), 1..5),
        steps in model_steps(false),
        changes in changes(),
        units in 1u64..6,
        others in proptest::collection::vec(any::<Index>(), 4),
        passes in passes(),
    ) {
        let units = Units::new(units.into()).unwrap();
        case(&rules, &steps, &changes, passes).is_foretold(units, &others)?;
    }
}
