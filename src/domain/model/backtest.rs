//! Compares a backtest of a draft of any kind with the decisions of the rule, step by step.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::NaiveDate;
use uuid::Uuid;

use super::*;
use crate::backtest::{Backtest, DayRange, Replayed};
use crate::correction::{Hold, carry_on, give_back};
use crate::exceptions::{ExceptionHistory, ExceptionVersions};
use crate::identity::{AccountId, EntryId};
use crate::limit::rate::Afterwards;
use crate::limit::shape::{Limit, OtherMax};
use crate::overrides::{Override, OverrideTerms};
use crate::past::{Movement, Past};
use crate::top_up::{Returned, TopUp};

/// The rule, applied to one entry after the other.
#[derive(Default)]
struct Stepwise {
    lines: HashMap<AccountId, Line>,
    /// The entries of each account that were not denied.
    movements: HashMap<AccountId, Vec<Movement>>,
    /// What is left of the grants that were not denied.
    grants: HashMap<EntryId, Hold>,
}

impl Stepwise {
    /// Whether a grant would have been denied.
    fn denies(&mut self, policy: &Policy, entry: &Replayed) -> bool {
        let at = entry.id.at();
        let none = Past::default();
        let movements = self.movements.entry(entry.account).or_default();
        let last = self.lines.get(&entry.account);
        let mut line = carry_on(policy, last, &none, at).unwrap();
        let units = entry.units.get();
        match entry.kind {
            EntryKind::Grant { .. } => {
                match decide(policy, entry.units, last, &none, at).unwrap() {
                    Verdict::Granted(granted) => line = granted,
                    _ => return true,
                }
                let grant = Hold {
                    grant: entry.id,
                    units: entry.units,
                    granted: entry.units,
                    top_ups: line.top_ups.clone(),
                    until: at,
                    version: 1,
                };
                self.grants.insert(entry.id, grant);
            }
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => {
                if !movements.iter().any(|movement| movement.id == of) {
                    return false;
                }
                let mut past = Past::default();
                past.insert_tail(DateTime::<Utc>::MIN_UTC, movements.clone());
                let grant = self.grants.get_mut(&of).unwrap();
                let before = grant.granted.get() - grant.units.get();
                let top_ups = grant.top_ups.as_deref();
                let returned = Returned::new(of, top_ups, before, entry.units);
                line = give_back(policy, &returned, last, &past, at).unwrap();
                if let Some(left) = grant.units.less(entry.units.get()) {
                    grant.units = left;
                }
            }
            EntryKind::Adjustment(direction) => {
                for total in Arc::make_mut(&mut line.totals) {
                    match direction {
                        Direction::Up => total.add(units, at, at),
                        Direction::Down => total.lower(units, at, at, &Afterwards::NOTHING),
                    }
                }
            }
            EntryKind::Reset { .. } => {
                let totals = Arc::make_mut(&mut line.totals).iter_mut();
                let named = totals.filter(|total| entry.kind.resets(total.per()));
                named.for_each(|total| total.reset(at));
            }
            EntryKind::TopUp => {
                let mut top_ups = line.top_ups_at(at);
                top_ups.add(TopUp {
                    left: units,
                    ..entry_top_up(entry)
                });
                line.top_ups = top_ups.on_line();
            }
            EntryKind::TopUpReversal { of } => {
                let mut top_ups = line.top_ups_at(at);
                top_ups.remove(of);
                line.top_ups = top_ups.on_line();
            }
            EntryKind::Confirmation { .. } | EntryKind::Calendar => {}
        }
        let aside = line.topped_up_units();
        movements.push(Movement {
            number: line.number,
            id: entry.id,
            kind: entry.kind,
            units: units - aside,
            at,
        });
        self.lines.insert(entry.account, line);
        false
    }
}

/// The top-up of an entry, as its line has it.
fn entry_top_up(entry: &Replayed) -> TopUp {
    let mut told = entry.top_ups.iter().flat_map(|told| &told.each);
    told.find(|top_up| top_up.id == entry.id).unwrap().clone()
}

/// The entries that a ledger has of some accounts, in order, and the overrides that the accounts had meanwhile.
/// Nothing was denied there.
fn history_of(draft: &Policy, steps: &[(bool, ModelStep)]) -> (Vec<Replayed>, ExceptionHistory) {
    let policy = policy_of(1, "UTC", &["1000 per ever"]);
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    let accounts = [1, 2].map(|number| AccountId(Uuid::from_u128(number)));
    let mut histories = accounts.map(History::of);
    let mut entries: Vec<Entry> = Vec::new();
    let mut overrides: Vec<Override> = Vec::new();
    for (version, (is_second, step)) in (1..).zip(steps) {
        now += TimeDelta::microseconds(step.passes);
        let history = &mut histories[usize::from(*is_second)];
        let limits = draft.rule.limits.iter().map(Limit::per);
        let limits = |max| limits.clone().map(move |per| OtherMax { max, per });
        overrides.push(Override {
            account: history.account,
            policy: draft.id,
            subject: None,
            version,
            revision: version.into(),
            terms: step.other_max.map(|max| OverrideTerms {
                limits: limits(max).collect(),
                until: None,
            }),
            changed_at: now,
            changed_by: String::new(),
            reason: None,
        });
        let known = history.entries.len();
        let what = match &step.what {
            // A backtest takes an adjustment at its own instant.
            What::Adjust(direction, _) => What::Adjust(*direction, TimeDelta::zero()),
            What::Record(_) => What::Grant,
            what => what.clone(),
        };
        let units = Units::new(step.units.into()).unwrap();
        history.step(&policy, units, &what, now);
        entries.extend_from_slice(&history.entries[known..]);
    }
    // A lapse is before entries of other accounts that were made after the end of its hold.
    entries.sort_by_key(|entry| entry.id);
    let gives_back = |kind: EntryKind| match kind {
        EntryKind::Reversal { .. }
        | EntryKind::PartialReversal { .. }
        | EntryKind::Lapse { .. } => true,
        EntryKind::Grant { .. }
        | EntryKind::Confirmation { .. }
        | EntryKind::Adjustment(_)
        | EntryKind::Reset { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp
        | EntryKind::TopUpReversal { .. } => false,
    };
    let names = |of: EntryId| {
        let mut giving = entries.iter().filter(|entry| gives_back(entry.kind));
        giving.any(|entry| entry.kind.of() == Some(of))
    };
    let replayed = entries.iter().map(|entry| Replayed {
        account: entry.account,
        id: entry.id,
        kind: entry.kind,
        units: entry.units,
        is_given_back: names(entry.id),
        calendar: entry.line.calendar.clone(),
        top_ups: entry.line.top_ups.clone(),
    });
    let overrides = ExceptionVersions {
        overrides,
        ..ExceptionVersions::default()
    };
    (replayed.collect(), ExceptionHistory::of(overrides))
}

fn steps_of_two() -> impl Strategy<Value = Vec<(bool, ModelStep)>> {
    (
        model_steps(true),
        proptest::collection::vec(any::<bool>(), 50),
    )
        .prop_map(|(steps, accounts)| accounts.into_iter().zip(steps).collect())
}

proptest! {
    /// Accounts without usage are removed meanwhile: this changes nothing.
    #[test]
    fn a_backtest_is_what_the_rule_decides(rule in any_rule(), steps in steps_of_two()) {
        let draft = policy_of(1, "Asia/Kolkata", &rule);
        let from: NaiveDate = "2026-10-20".parse().unwrap();
        let range = DayRange::new(from, from + TimeDelta::days(2)).unwrap();
        let (entries, exceptions) = history_of(&draft, &steps);
        let draft = Arc::new(draft);
        let mut backtest = Backtest::new(draft.rule.clone(), range, exceptions.clone());
        let mut stepwise = Stepwise::default();
        let mut denied: Vec<(AccountId, EntryId)> = Vec::new();
        let mut grants = 0;
let mut denied_units = 0;
        for entry in entries {
            let of_account = exceptions.at(entry.account, entry.id.at()).unwrap_or_default();
            let draft = of_account.apply(&draft);
            backtest.meet(&entry);
            grants += u64::from(matches!(entry.kind, EntryKind::Grant { .. }));
            if stepwise.denies(&draft, &entry) {
                denied.push((entry.account, entry.id));
                denied_units += entry.units.get();
            }
        }
        let report = backtest.report();
        prop_assert_eq!(report.total.grants, grants);
        prop_assert_eq!(report.total.denied_grants, denied.len() as u64);
        prop_assert_eq!(report.total.denied_units, denied_units);
        for told in report.first_denied {
            let own: Vec<_> = denied.iter().filter(|(account, _)| *account == told.account).collect();
            prop_assert_eq!(told.first, own[0].1);
            prop_assert_eq!(told.grants, own.len() as u64);
        }
    }
}
