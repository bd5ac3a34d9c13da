//! What the ledger shows by itself: numbers, instants, limits, windows and sums of each account.

use chrono::{DateTime, Utc};

use super::Breach;
use super::corrections::Holds;
use super::stores::{Entry, Kind, Limits, Provisional, Rule, Stores, Total};

pub fn check(stores: &Stores) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (account, entries) in stores.accounts() {
        let overrides = stores.overrides.iter();
        let overrides: Vec<&Limits> = overrides
            .filter_map(|(of, limits)| (*of == account).then_some(limits))
            .collect();
        let mut holds = Holds::default();
        for (index, entry) in entries.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| entries[before]);
            check_order(entry, before, index as i64 + 1, &mut breaches);
            let rule = (entry.policy.clone(), entry.policy_version);
            check_limits(entry, stores.rules.get(&rule), &overrides, &mut breaches);
            check_totals(
                entry,
                stores.rules.get(&rule),
                &entries[..=index],
                &mut breaches,
            );
            holds.follow(entry, &mut breaches);
        }
    }
    breaches
}

fn check_order(entry: &Entry, before: Option<&Entry>, number: i64, breaches: &mut Vec<Breach>) {
    if entry.number != number {
        breaches.push(Breach::Gap {
            entry: entry.id,
            number: entry.number,
        });
    }
    let goes_back =
        |before: &Entry| before.at > entry.at || before.policy_version > entry.policy_version;
    if before.is_some_and(goes_back) {
        breaches.push(Breach::Backwards { entry: entry.id });
    }
}

/// An entry has its version's limits, each with the version's `max` or an override's.
fn check_limits(
    entry: &Entry,
    rule: Option<&Rule>,
    overrides: &[&Limits],
    breaches: &mut Vec<Breach>,
) {
    let is_limit = |(total, limit): (&Total, &(String, u64))| {
        let told = (total.per.clone(), total.max);
        total.per == limit.0
            && (told == *limit || overrides.iter().any(|limits| limits.contains(&told)))
    };
    let has_limits = |rule: &Rule| {
        let mut limits = entry.totals.iter().zip(&rule.limits);
        entry.totals.len() == rule.limits.len() && limits.all(is_limit)
    };
    if !rule.is_some_and(has_limits) {
        breaches.push(Breach::NotTheRule { entry: entry.id });
    }
}

fn check_totals(entry: &Entry, rule: Option<&Rule>, so_far: &[&Entry], breaches: &mut Vec<Breach>) {
    for total in &entry.totals {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("an instant");
        let is_window = rule.is_none_or(|rule| {
            rule.calendar
                .has_window(&total.per, at(total.start), at(total.end))
        });
        if !total.contains(entry.at) || !is_window {
            breaches.push(Breach::NotTheWindow {
                entry: entry.id,
                total: total.clone(),
            });
        }
        let sum = sum(so_far, |other| total.contains(other.counted_at));
        if sum != i128::from(total.used) {
            breaches.push(Breach::NotTheSum {
                entry: entry.id,
                total: total.clone(),
                sum,
            });
        }
    }
    if let (Kind::Grant, Some(rule)) = (entry.kind, rule) {
        check_fit(entry, rule, so_far, breaches);
    }
}

/// A grant fits, or has the mark that says why not: Redis alone decided it, or the policy only
/// observes. A policy that observes marks just those that do not fit.
fn check_fit(entry: &Entry, rule: &Rule, so_far: &[&Entry], breaches: &mut Vec<Breach>) {
    // The windows in which it counts: its line's, or, for one that was appended late, perhaps
    // those before.
    let is_over = |total: &&Total| {
        let name = |of: &Entry| rule.calendar.name(&total.per, of.counted_at);
        let own = name(entry);
        let sum = match total.contains(entry.counted_at) {
            true => sum(so_far, |other| total.contains(other.counted_at)),
            false => sum(so_far, |other| name(other) == own),
        };
        sum > i128::from(total.max)
    };
    let over = entry.totals.iter().find(is_over);
    match (entry.provisional, over) {
        (None, over) if entry.would_deny || rule.observes => {
            if !rule.observes || entry.would_deny != over.is_some() {
                breaches.push(Breach::Marked { entry: entry.id });
            }
        }
        (Some(_), _) if entry.would_deny || rule.observes => {}
        (Some(Provisional::Over), Some(_)) | (None | Some(Provisional::Within), None) => {}
        (None, Some(total)) => breaches.push(Breach::Over {
            entry: entry.id,
            total: total.clone(),
        }),
        (Some(_), _) => breaches.push(Breach::Marked { entry: entry.id }),
    }
}

impl Stores {
    /// How many units fit at a subject now, by the newest version of `benefit` alone: each limit's `max`
    /// less what is used in its window.
    pub fn room(&self, subject: &str, now: DateTime<Utc>) -> u64 {
        let rules = self.rules.iter();
        let mut rules = rules.filter(|((policy, _), _)| policy == "benefit");
        let rule = rules.next_back().expect("a version").1;
        let entries = self.entries.iter();
        let entries: Vec<&Entry> = entries.filter(|entry| entry.subject == subject).collect();
        let room = rule.limits.iter().map(|(per, max)| {
            let name = |at| rule.calendar.name(per, at);
            let used = sum(&entries, |entry| name(entry.counted_at) == name(now));
            max.saturating_sub(used as u64)
        });
        room.min().expect("a limit")
    }
}

/// What some entries leave used: it never falls below zero.
fn sum(entries: &[&Entry], is_inside: impl Fn(&Entry) -> bool) -> i128 {
    let inside = entries.iter().filter(|entry| is_inside(entry));
    inside.fold(0, |used: i128, entry| (used + entry.added()).max(0))
}
