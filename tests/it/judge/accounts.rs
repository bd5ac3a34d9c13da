//! The checks of each account by its own entries: numbers, instants, limits, windows, sums and
//! logs.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Breach;
use super::corrections::Holds;
use super::stores::{Entry, Kind, Limits, Provisional, Rule, Stores};
use super::top_ups::TopUps;
use super::totals::{RuleLimit, State, Total, micros, told_name};
use super::windows::Own;
use crate::plain::{Effect, PlainAccount, PlainEntry, PlainLimit, PlainState};

pub fn check(stores: &Stores) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (account, entries) in stores.accounts() {
        // 1. Collect the account's overrides and tiers.
        let tiers = stores.tiers.iter();
        let tiers: Vec<&str> = tiers
            .filter_map(|(of, tier)| (*of == account).then_some(&**tier))
            .collect();
        let overrides = stores.overrides.iter();
        let overrides: Vec<&Limits> = overrides
            .filter_map(|(of, limits)| (*of == account).then_some(limits))
            .collect();
        // A block has no limits.
        let had_block = overrides.iter().any(|limits| limits.is_empty());
        let mut holds = Holds::default();
        let mut plain = PlainAccount::default();
        let mut top_ups = TopUps::default();
        for (index, entry) in entries.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| entries[before]);
            // 2. Check the number, the time and the version against the entry before.
            check_order(entry, before, index as i64 + 1, &mut breaches);
            // 3. Check that the entry has its version's limits.
            let rule = (entry.policy.clone(), entry.policy_version);
            let rule = stores.rules.get(&rule);
            check_limits(entry, rule, &overrides, &tiers, &mut breaches);
            // 4. Compute the usage again, and compare it with the totals. The plain model does this
            //    for limits whose units return after a time, and a sum does it for calendar limits.
            let so_far = &entries[..=index];
            let is_over = check_returning(entry, so_far, &mut plain, &mut breaches);
            check_totals(entry, before, rule, so_far, &mut breaches);
            check_calendar(entry, before, rule, &mut breaches);
            top_ups.follow(entry, &mut breaches);
            if let Some(rule) = rule {
                check_levels(entry, rule, &mut breaches);
            }
            // 5. Check that a grant fits, or has a mark.
            if let (Kind::Grant, Some(rule)) = (entry.kind, rule) {
                check_fit(entry, rule, so_far, is_over, had_block, &mut breaches);
            }
            // 6. Check that a correction belongs to its grant, and that holds lapse in time.
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
    let goes_back = |before: &Entry| {
        // A reset is later than the entry before it.
        let is_late = before.at < entry.at || before.at == entry.at && entry.kind != Kind::Reset;
        !is_late || before.policy_version > entry.policy_version
    };
    if before.is_some_and(goes_back) {
        breaches.push(Breach::Backwards { entry: entry.id });
    }
}

/// Each entry has the limits of its version, each with the `max` of the version, of one of the account's
/// overrides, or of one of its tiers in the version.
fn check_limits(
    entry: &Entry,
    rule: Option<&Rule>,
    overrides: &[&Limits],
    tiers: &[&str],
    breaches: &mut Vec<Breach>,
) {
    let is_limit = |(total, limit): (&Total, &RuleLimit)| {
        let told = (told_name(&total.per).to_owned(), total.max);
        let in_tier = |rule: &Rule| {
            let of_account = rule
                .tiers
                .iter()
                .filter(|(name, _)| tiers.contains(&&**name));
            of_account
                .flat_map(|(_, limits)| limits)
                .any(|max| *max == told)
        };
        let is_other_max =
            || overrides.iter().any(|limits| limits.contains(&told)) || rule.is_some_and(in_tier);
        total.is_of(limit) && (total.max == limit.max || is_other_max())
    };
    let has_limits = |rule: &Rule| {
        let mut limits = entry.totals.iter().zip(&rule.limits);
        entry.totals.len() == rule.limits.len() && limits.all(is_limit)
    };
    if !rule.is_some_and(has_limits) {
        breaches.push(Breach::NotTheRule { entry: entry.id });
    }
}

/// Turns an entry into the plain model's form.
fn plain_entry(entry: &Entry, before: &[&Entry]) -> PlainEntry {
    let is_decided = entry.provisional.is_none() && !entry.would_deny;
    let place = |of: Option<Uuid>| before.iter().position(|other| Some(other.id) == of);
    let effect = match entry.kind {
        _ if entry.own_units() == 0 => Effect::Nothing,
        Kind::Grant if is_decided => Effect::Grant,
        Kind::Grant | Kind::AdjustmentUp => Effect::Take,
        Kind::AdjustmentDown => Effect::TakeOff,
        Kind::Confirmation | Kind::Calendar | Kind::TopUp | Kind::TopUpReversal => Effect::Nothing,
        Kind::Reset => reset(entry),
        Kind::Reversal | Kind::PartialReversal | Kind::Lapse => {
            place(entry.of).map_or(Effect::Nothing, Effect::GiveBack)
        }
    };
    PlainEntry {
        effect,
        units: entry.own_units(),
        at: entry.at.timestamp_micros(),
        counted_at: entry.counted_at.timestamp_micros(),
    }
}

/// A reset of a calendar limit changes nothing in the plain model.
fn reset(entry: &Entry) -> Effect {
    match &entry.per {
        None => Effect::Reset(None),
        Some(per) => micros(per).map_or(Effect::Nothing, |per| Effect::Reset(Some(per))),
    }
}

/// The limits of a line whose units return after a time, with their usage.
fn returning(entry: &Entry) -> impl Iterator<Item = (&Total, &PlainLimit, &PlainState)> {
    entry.totals.iter().filter_map(|total| match &total.state {
        State::Returns(limit, state) => Some((total, limit, state)),
        State::Window { .. } | State::Ever => None,
    })
}

/// Compares the limits of a line whose units return after a time with the plain model, and adds the
/// entry to the plain model. Returns the first of these limits that had no room for the entry.
fn check_returning<'a>(
    entry: &'a Entry,
    so_far: &[&Entry],
    plain: &mut PlainAccount,
    breaches: &mut Vec<Breach>,
) -> Option<&'a Total> {
    let at = entry.at.timestamp_micros();
    // 1. Before the entry: which limit has no room?
    let lacks_room = |(_, limit, _): &(&Total, &PlainLimit, &PlainState)| {
        plain.state(limit, at).left(limit) < entry.own_units()
    };
    let over = returning(entry).find(lacks_room).map(|(total, ..)| total);
    // 2. Add the entry to the plain model.
    let limits = returning(entry).map(|(_, limit, _)| *limit).collect();
    plain.push(plain_entry(entry, so_far), limits);
    let mut has_span_over = None;
    // 3. After the entry: compare each total with the plain model, and check every span of time.
    for (total, limit, told) in returning(entry) {
        let model = plain.state(limit, at);
        let used = total.used;
        let sum = model.used(limit);
        if opened_at(told) != opened_at(&model) {
            breaches.push(Breach::NotTheWindow {
                entry: entry.id,
                total: total.clone(),
            });
        } else if used == sum && *told != model {
            breaches.push(Breach::NotTheState {
                entry: entry.id,
                total: total.clone(),
            });
        }
        if used != sum {
            breaches.push(Breach::NotTheSum {
                entry: entry.id,
                total: total.clone(),
                sum: sum.into(),
            });
        }
        if plain.has_span_over(limit) {
            has_span_over = Some(total);
        }
    }
    over.or(has_span_over)
}

fn opened_at(state: &PlainState) -> Option<i64> {
    match state {
        PlainState::Opened { at, .. } => *at,
        PlainState::Log(_) | PlainState::Bucket(_) => None,
    }
}

fn check_totals(
    entry: &Entry,
    before: Option<&Entry>,
    rule: Option<&Rule>,
    so_far: &[&Entry],
    breaches: &mut Vec<Breach>,
) {
    // A lapse leaves the windows of the line before it.
    let is_left = |total: &Total| {
        let mut left = before.iter().flat_map(|before| &before.totals);
        entry.kind == Kind::Lapse && left.any(|left| left.has_same_window(total))
    };
    let of_calendar = |total: &&Total| !matches!(total.state, State::Returns(..));
    for total in entry.totals.iter().filter(of_calendar) {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("an instant");
        let is_window = match (&total.state, rule) {
            (State::Window { start, end }, Some(rule)) => {
                match begun(before, rule, total, entry.at) {
                    Some(begun) => begun.has_same_window(total),
                    None => {
                        let calendar = rule.calendar_of(&entry.own);
                        calendar.has_window(&total.per, at(*start), at(*end))
                    }
                }
            }
            _ => true,
        };
        if !(is_left(total) || total.contains(entry.at) && is_window) {
            breaches.push(Breach::NotTheWindow {
                entry: entry.id,
                total: total.clone(),
            });
        }
        let is_inside = |other: &Entry| total.contains(other.counted_at);
        let sum = sum(so_far, &total.per, is_inside);
        if sum != i128::from(total.used) {
            breaches.push(Breach::NotTheSum {
                entry: entry.id,
                total: total.clone(),
                sum,
            });
        }
    }
}

/// A window of the line before that goes on, whatever the calendar of the account is now.
fn begun<'a>(
    before: Option<&'a Entry>,
    rule: &Rule,
    total: &Total,
    at: DateTime<Utc>,
) -> Option<&'a Total> {
    let before = before.filter(|_| rule.owner != "policy")?;
    let mut totals = before.totals.iter();
    totals.find(|begun| {
        let is_window = matches!(begun.state, State::Window { .. });
        is_window && begun.per == total.per && begun.contains(at)
    })
}

/// Only a claim and an admin move the calendar of an account. Any entry can begin its anchor,
/// on the day of the entry.
fn check_calendar(
    entry: &Entry,
    before: Option<&Entry>,
    rule: Option<&Rule>,
    breaches: &mut Vec<Breach>,
) {
    let had = before.map_or_else(Own::default, |before| before.own.clone());
    let stays = entry.own == had;
    let is_right = match rule {
        Some(rule) if rule.owner != "policy" && entry.kind != Kind::Lapse => {
            let of_zone = Own {
                anchor: None,
                ..entry.own.clone()
            };
            let today = rule.calendar_of(&of_zone).date(entry.at);
            let has_begun = entry.own.zone == had.zone && entry.own.anchor == Some(today);
            let must_begin = rule.owner == "first_grant" && had.anchor.is_none();
            match entry.kind {
                Kind::Grant | Kind::Calendar => !must_begin || entry.own.anchor.is_some(),
                _ if must_begin => has_begun,
                _ => stays,
            }
        }
        Some(_) | None => stays,
    };
    if !is_right {
        breaches.push(Breach::NotItsCalendar { entry: entry.id });
    }
}

/// An entry is marked with the levels of use that it reached. Only limits of windows are computed here.
fn check_levels(entry: &Entry, rule: &Rule, breaches: &mut Vec<Breach>) {
    let has_reached = |total: &Total, percent: u64| {
        let is_counted = total.contains(entry.counted_at);
        let most = u128::from(total.max) * u128::from(percent);
        let after = u128::from(total.used);
        let before = after.saturating_sub(entry.own_units().into());
        is_counted && most > 0 && before * 100 < most && most <= after * 100
    };
    // An adjustment may count before a reset, which only sums show.
    let takes = entry.kind == Kind::Grant;
    let windows = entry
        .totals
        .iter()
        .filter(|total| !matches!(total.state, State::Returns(..)));
    let must = rule
        .warn_at
        .iter()
        .copied()
        .filter(|percent| takes && windows.clone().any(|total| has_reached(total, *percent)));
    let must: Vec<u64> = must.collect();
    let is_certain = takes && windows.clone().count() == entry.totals.len();
    let is_right = must.iter().all(|level| entry.crossed.contains(level))
        && entry
            .crossed
            .iter()
            .all(|level| rule.warn_at.contains(level))
        && (!is_certain || entry.crossed == must);
    if !is_right {
        breaches.push(Breach::NotItsLevels { entry: entry.id });
    }
}

/// A grant fits, or has a mark that says why not: Redis alone decided it, or the policy only
/// observes. An observing policy marks exactly the grants that do not fit, and grants of a blocked
/// subject. `lacked_room` is a limit
/// whose units return after a time and that had no room.
fn check_fit(
    entry: &Entry,
    rule: &Rule,
    so_far: &[&Entry],
    lacked_room: Option<&Total>,
    had_block: bool,
    breaches: &mut Vec<Breach>,
) {
    // The windows in which the grant counts: those of its line, or, for a grant that was appended
    // late, possibly earlier ones.
    let is_over = |total: &&Total| {
        let calendar = rule.calendar_of(&entry.own);
        let name = |of: &Entry| calendar.name(&total.per, of.counted_at);
        let own = name(entry);
        let is_inside = |other: &Entry| {
            if total.contains(entry.counted_at) {
                total.contains(other.counted_at)
            } else {
                name(other) == own
            }
        };
        let was_reset = reset_at(so_far, &total.per, is_inside) > Some(entry.counted_at);
        !was_reset && sum(so_far, &total.per, is_inside) > i128::from(total.max)
    };
    let mut of_calendar = entry
        .totals
        .iter()
        .filter(|total| !matches!(total.state, State::Returns(..)));
    let takes = entry.own_units() > 0;
    let over = of_calendar.find(is_over).or(lacked_room);
    let over = over.filter(|_| takes);
    match (entry.provisional, over) {
        (None, over) if entry.would_deny || rule.observes => {
            let is_of_blocked = had_block && entry.would_deny;
            // What all subjects share can deny too.
            let may_be_denied_by_all = entry.would_deny && !rule.total.is_empty();
            let is_explained = is_of_blocked || may_be_denied_by_all;
            if !rule.observes || entry.would_deny != over.is_some() && !is_explained {
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
    /// How many units a subject can take now, by the newest version of `benefit` alone: each
    /// limit's `max` minus the usage of its window.
    pub fn room(&self, subject: &str, now: DateTime<Utc>) -> u64 {
        let rules = self.rules.iter();
        let mut rules = rules.filter(|((policy, _), _)| policy == "benefit");
        let rule = rules.next_back().expect("a version").1;
        let entries = self.of_subject("benefit", subject);
        let room = rule.limits.iter().map(|limit| match limit.returning() {
            Some(limit) => state_now(&entries, &limit, now).left(&limit),
            None => {
                let used = used_now(&entries, rule, limit, now);
                limit.max.saturating_sub(used as u64)
            }
        });
        room.min().expect("a limit")
    }

    /// A subject's entries under a policy, in order.
    pub fn of_subject(&self, policy: &str, subject: &str) -> Vec<&Entry> {
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.policy == policy && entry.subject == subject)
            .collect()
    }
}

/// The usage that an account's entries make of a limit of a version now.
pub fn used_now(entries: &[&Entry], rule: &Rule, limit: &RuleLimit, now: DateTime<Utc>) -> i128 {
    match limit.returning() {
        Some(limit) => state_now(entries, &limit, now).used(&limit).into(),
        None => {
            let own = entries
                .last()
                .map_or_else(Own::default, |last| last.own.clone());
            let calendar = rule.calendar_of(&own);
            let name = |at| calendar.name(&limit.per, at);
            let mut totals = entries.last().into_iter().flat_map(|last| &last.totals);
            let begun = totals.find(|it| it.per == limit.per && it.contains(now));
            let is_inside = |entry: &Entry| match begun.filter(|_| rule.owner != "policy") {
                Some(begun) => begun.contains(entry.counted_at),
                None => name(entry.counted_at) == name(now),
            };
            sum(entries, &limit.per, is_inside)
        }
    }
}

/// The plain model's usage of a limit whose units return after a time.
fn state_now(entries: &[&Entry], limit: &PlainLimit, now: DateTime<Utc>) -> PlainState {
    let mut plain = PlainAccount::default();
    for (index, entry) in entries.iter().enumerate() {
        let limits = returning(entry).map(|(_, limit, _)| *limit).collect();
        plain.push(plain_entry(entry, &entries[..index]), limits);
    }
    plain.state(limit, now.timestamp_micros())
}

/// The last reset of a limit among some entries.
fn reset_at(
    entries: &[&Entry],
    per: &str,
    is_inside: impl Fn(&Entry) -> bool,
) -> Option<DateTime<Utc>> {
    let resets = |entry: &&&Entry| {
        let is_named = entry
            .per
            .as_ref()
            .is_none_or(|named| named == told_name(per));
        entry.kind == Kind::Reset && is_named && is_inside(entry)
    };
    entries.iter().rev().find(resets).map(|entry| entry.at)
}

/// The usage of a limit that some entries leave. It never falls below zero. Only what counts at the last
/// reset or later counts.
fn sum(entries: &[&Entry], per: &str, is_inside: impl Fn(&Entry) -> bool) -> i128 {
    let reset_at = reset_at(entries, per, &is_inside);
    let counts = |entry: &&&Entry| is_inside(entry) && reset_at <= Some(entry.counted_at);
    let inside = entries.iter().filter(counts);
    inside.fold(0, |used: i128, entry| (used + entry.own_added()).max(0))
}
