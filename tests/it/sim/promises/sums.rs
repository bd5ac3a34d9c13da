//! The usage of an account's limits, by the judge's own sums and windows and by the plain model.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::elapsed::Elapsed;
use perdiem::domain::grant::{Direction, Entry, EntryKind, Line};
use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::limit::per::Per;
use perdiem::domain::limit::total::{LimitState, Total};
use perdiem::domain::window::Window;
use perdiem::domain::zone::Zone;

use super::grants::{open_until, units_left};
use super::top_ups;
use crate::plain::{Effect, PlainAccount, PlainBucket, PlainEntry, PlainLimit, PlainState, Return};
use crate::sim::clients::ZONES;
use crate::sim::courses::{Course, Version, VersionLimit};
use crate::sim::ledger::names;

/// How many units fit after an account's entries, for a claim that tells no zone.
pub fn room(
    course: Course,
    entries: &[Entry],
    account: AccountId,
    version: u32,
    now: DateTime<Utc>,
) -> u64 {
    room_in(&[None], course, entries, account, version, now)
}

/// How many units fit after an account's entries, whatever zone a claim tells.
pub fn least_room(
    course: Course,
    entries: &[Entry],
    account: AccountId,
    version: u32,
    now: DateTime<Utc>,
) -> u64 {
    let told = ZONES.iter().map(|(_, hours_east)| Some(*hours_east));
    let zones: Vec<Option<i64>> = told.chain([None]).collect();
    room_in(&zones, course, entries, account, version, now)
}

fn room_in(
    zones: &[Option<i64>],
    course: Course,
    entries: &[Entry],
    account: AccountId,
    version: u32,
    now: DateTime<Utc>,
) -> u64 {
    let own = entries.iter().filter(|entry| entry.account == account);
    let own: Vec<&Entry> = own.collect();
    let last = own.iter().max_by_key(|entry| entry.line.number);
    let last = last.map(|entry| &entry.line);
    let at = last.map_or(now, |line| now.max(line.at));
    let version = last.map_or(version, |line| version.max(line.policy_version));
    let version = version_of(course, version);
    let mut plain = plain_account(course, &own);
    lapse(&mut plain, course, &own, entries, at);
    let rooms = version.limits.iter().map(|limit| match limit {
        VersionLimit::Returns(limit) => plain.state(limit, at.timestamp_micros()).left(limit),
        VersionLimit::Calendar(max, per) => {
            let windows = zones
                .iter()
                .map(|told| window_of(version, per, last, *told, at));
            let used = windows.map(|window| used(entries, account, per, window, at));
            max.saturating_sub(used.max().expect("a window"))
        }
        VersionLimit::Ever(max) => max.saturating_sub(used(entries, account, "ever", EVER, at)),
    });
    let shared = version.total.map(|total| {
        let used = used_by_all(course, version, entries, at, Some((account, at)));
        u64::try_from(i64::try_from(total.max).expect("few") - used).unwrap_or(0)
    });
    let own = rooms.min().expect("a limit") + top_ups::left(entries, account, at);
    shared.into_iter().chain([own]).min().expect("a limit")
}

/// The units of all subjects that count in the window of a version's total that contains an instant, without the
/// holds of an account that lapsed before one. What versions with another total decided does not count.
pub fn used_by_all(
    course: Course,
    version: &Version,
    entries: &[Entry],
    at: DateTime<Utc>,
    without: Option<(AccountId, DateTime<Utc>)>,
) -> i64 {
    let total = version.total.expect("a total");
    let window = match total.per {
        "ever" => EVER,
        per => window(per, version.hours_east, at),
    };
    let since = |version: u32| version_of(course, version).total.map(|total| total.since);
    let granted = |entry: &Entry| {
        let grant = names(entry.kind);
        let grant = grant.map(|id| entries.iter().find(|it| it.id == id));
        grant.map_or(entry.line.policy_version, |grant| {
            grant.expect("the grant").line.policy_version
        })
    };
    let counts = |entry: &&Entry| {
        let counted_at = names(entry.kind).unwrap_or(entry.id).at();
        let is_inside = (window[0]..window[1]).contains(&counted_at);
        let is_decided = since(entry.line.policy_version) == Some(total.since);
        is_inside && is_decided && granted(entry) >= total.since
    };
    let inside: Vec<&Entry> = entries.iter().filter(counts).collect();
    let sum: i64 = inside.iter().map(|entry| entry.units_added()).sum();
    let lapsed = without.map_or(0, |(account, at)| {
        let is_due = |grant: &&&Entry| {
            grant.account == account && open_until(grant, entries).is_some_and(|until| until <= at)
        };
        let due = inside.iter().filter(is_due);
        due.map(|grant| units_left(grant, entries)).sum()
    });
    sum - lapsed.cast_signed()
}

/// The fewest units that a limit of a version has after an account's entries: now, or in the windows
/// of some instants, up to the latest of them.
pub fn fewest_used(
    course: Course,
    entries: &[Entry],
    account: AccountId,
    version: u32,
    instants: &[DateTime<Utc>],
    now: DateTime<Utc>,
) -> u64 {
    let own: Vec<&Entry> = entries.iter().filter(|it| it.account == account).collect();
    let version = version_of(course, version);
    let mut plain = plain_account(course, &own);
    lapse(&mut plain, course, &own, entries, now);
    let until = instants.iter().max().expect("an instant");
    let used = version.limits.iter().flat_map(|limit| match limit {
        VersionLimit::Calendar(_, per) => {
            let last = own.last().map(|entry| &entry.line);
            let windows = instants
                .iter()
                .map(|at| window_of(version, per, last, None, *at));
            windows
                .map(|window| used(entries, account, per, window, now))
                .collect()
        }
        VersionLimit::Ever(_) => vec![used(entries, account, "ever", EVER, now)],
        VersionLimit::Returns(limit) => match plain.state(limit, now.timestamp_micros()) {
            PlainState::Log(pairs) => {
                let counted = pairs
                    .iter()
                    .filter(|(at, _)| *at <= until.timestamp_micros());
                vec![counted.map(|(_, units)| units).sum()]
            }
            state => vec![state.used(limit)],
        },
    });
    used.min().expect("a limit")
}

/// The usage of each limit of a version at an instant, or at the last entry if that is later, with the
/// name of the limit.
pub fn used_by_limit(
    course: Course,
    entries: &[Entry],
    account: AccountId,
    version: u32,
    at: DateTime<Utc>,
) -> Vec<(String, u64)> {
    let own: Vec<&Entry> = entries.iter().filter(|it| it.account == account).collect();
    let at = own.last().map_or(at, |last| at.max(last.line.at));
    let version = version_of(course, version);
    let mut plain = plain_account(course, &own);
    lapse(&mut plain, course, &own, entries, at);
    let limits = version.limits.iter().map(|limit| match limit {
        VersionLimit::Calendar(_, per) => {
            let last = own.last().map(|entry| &entry.line);
            let window = window_of(version, per, last, None, at);
            (per.to_string(), used(entries, account, per, window, at))
        }
        VersionLimit::Ever(_) => {
            let per = "ever".to_owned();
            let used = used(entries, account, &per, EVER, at);
            (per, used)
        }
        VersionLimit::Returns(limit) => {
            let state = plain.state(limit, at.timestamp_micros());
            (name_of(limit), state.used(limit))
        }
    });
    limits.collect()
}

/// The name of a limit whose units return after a time.
pub fn name_of(limit: &PlainLimit) -> String {
    let per = Elapsed::from_seconds(limit.per.unsigned_abs() / 1_000_000);
    per.expect("a time").to_string()
}

pub fn version_of(course: Course, version: u32) -> &'static Version {
    &course[version as usize - 1]
}

/// Whether so many units fit into an unused account at once.
pub fn fits_at_once(version: &Version, units: u64) -> bool {
    let fits_into_all = version.total.is_none_or(|total| units <= total.max);
    fits_into_all
        && version.limits.iter().all(|limit| match limit {
            VersionLimit::Calendar(max, _) | VersionLimit::Ever(max) => units <= *max,
            VersionLimit::Returns(limit) => units <= limit.at_once(),
        })
}

/// All time.
pub const EVER: [DateTime<Utc>; 2] = [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC];

/// The window of a limit that contains an instant, in a zone without clock changes.
pub fn window(per: &str, hours_east: i64, at: DateTime<Utc>) -> [DateTime<Utc>; 2] {
    let seconds = match per {
        "day" => 24 * 60 * 60,
        "hour" => 60 * 60,
        other => panic!("no limit per {other}"),
    };
    let east = hours_east * 60 * 60;
    let into = (at.timestamp() + east).rem_euclid(seconds);
    let start = DateTime::from_timestamp(at.timestamp() - into, 0).expect("an instant");
    [start, start + TimeDelta::seconds(seconds)]
}

/// The window of a limit that contains an instant, after the last line of an account. `told` has the hours of
/// the zone that a claim tells.
pub fn window_of(
    version: &Version,
    per: &str,
    last: Option<&Line>,
    told: Option<i64>,
    at: DateTime<Utc>,
) -> [DateTime<Utc>; 2] {
    if !version.has_own_zones {
        return window(per, version.hours_east, at);
    }
    let is_begun = |total: &&Total| {
        let is_it = |window: Window| window.contains(at);
        total.per().to_string() == per && total.window().is_some_and(is_it)
    };
    let begun = last.and_then(|last| last.totals.iter().find(is_begun));
    if let Some(Window { start, end }) = begun.and_then(Total::window) {
        return [start, end];
    }
    let kept = last.and_then(|last| last.calendar.as_ref()?.zone.as_ref());
    let kept = kept.map(|zone| {
        let is_it = |(name, _): &&(&str, i64)| Zone::parse(name).as_ref() == Ok(zone);
        ZONES.iter().find(is_it).expect("a zone").1
    });
    window(per, told.or(kept).unwrap_or(version.hours_east), at)
}

/// The last reset of a limit of an account that counts in a window.
pub fn reset_at(
    entries: &[Entry],
    account: AccountId,
    limit: &str,
    window: [DateTime<Utc>; 2],
) -> Option<DateTime<Utc>> {
    let is_it = |entry: &&Entry| match entry.kind {
        EntryKind::Reset { per } => {
            let is_named = per.is_none_or(|per| per.to_string() == limit);
            is_named && entry.account == account && (window[0]..window[1]).contains(&entry.line.at)
        }
        _ => false,
    };
    let resets = entries.iter().filter(is_it);
    resets.map(|entry| entry.line.at).max()
}

/// The units that an account's entries add in a window of a limit since its last reset, one after the
/// other and never below zero, without the holds that lapsed before an instant.
pub fn used(
    entries: &[Entry],
    account: AccountId,
    limit: &str,
    window: [DateTime<Utc>; 2],
    at: DateTime<Utc>,
) -> u64 {
    let reset_at = reset_at(entries, account, limit, window);
    let counts = |entry: &&Entry| {
        let counted_at = names(entry.kind).unwrap_or(entry.id).at();
        let is_inside = (window[0]..window[1]).contains(&counted_at);
        entry.account == account && is_inside && reset_at <= Some(counted_at)
    };
    let mut own: Vec<&Entry> = entries.iter().filter(counts).collect();
    own.sort_by_key(|entry| entry.line.number);
    let used = own.iter().fold(0, |used: u64, entry| {
        let units = entry.own_units();
        match entry.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => used + units,
            EntryKind::Confirmation { .. }
            | EntryKind::Reset { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => used,
            EntryKind::Reversal { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Lapse { .. }
            | EntryKind::Adjustment(Direction::Down) => used.saturating_sub(units),
        }
    });
    let is_due = |grant: &&Entry| open_until(grant, entries).is_some_and(|until| until <= at);
    let due = own.into_iter().filter(is_due);
    let lapsed: u64 = due.map(|grant| top_ups::own_left(grant, entries)).sum();
    used.saturating_sub(lapsed)
}

/// Turns an account's entries into the plain model's form.
pub fn plain_account(course: Course, own: &[&Entry]) -> PlainAccount {
    let mut plain = PlainAccount::default();
    for (index, entry) in own.iter().enumerate() {
        let place = |of| own[..index].iter().position(|other| other.id == of);
        let effect = match entry.kind {
            _ if entry.own_units() == 0 => Effect::Nothing,
            EntryKind::Grant { .. } if entry.provisional.is_none() => Effect::Grant,
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => Effect::Take,
            EntryKind::Adjustment(Direction::Down) => Effect::TakeOff,
            EntryKind::Confirmation { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => Effect::Nothing,
            EntryKind::Reset { per: None } => Effect::Reset(None),
            EntryKind::Reset {
                per: Some(Per::Elapsed(per)),
            } => Effect::Reset(Some(per.micros())),
            EntryKind::Reset { per: Some(_) } => Effect::Nothing,
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => place(of).map_or(Effect::Nothing, Effect::GiveBack),
        };
        let counted_at = names(entry.kind).unwrap_or(entry.id).at();
        let told = version_of(course, entry.line.policy_version);
        plain.push(
            PlainEntry {
                effect,
                units: entry.own_units(),
                at: entry.line.at.timestamp_micros(),
                counted_at: counted_at.timestamp_micros(),
            },
            told.returning(),
        );
    }
    plain
}

/// Appends lapses for the account's holds that are due, the earliest hold first. Each is at the end
/// of its hold, under the limits of the last line.
fn lapse(
    plain: &mut PlainAccount,
    course: Course,
    own: &[&Entry],
    entries: &[Entry],
    at: DateTime<Utc>,
) {
    let Some(Entry { line, .. }) = own.iter().max_by_key(|entry| entry.line.number) else {
        return;
    };
    let open = own.iter().enumerate().filter_map(|(place, grant)| {
        let until = open_until(grant, entries).filter(|until| *until <= at)?;
        Some((until, grant.id, place))
    });
    let mut due: Vec<(DateTime<Utc>, EntryId, usize)> = open.collect();
    due.sort_unstable();
    for (until, id, place) in due {
        if top_ups::own_left(own[place], entries) == 0 {
            continue;
        }
        let lapse = PlainEntry {
            effect: Effect::GiveBack(place),
            units: top_ups::own_left(own[place], entries),
            at: until.max(line.at).timestamp_micros(),
            counted_at: id.at().timestamp_micros(),
        };
        plain.push(lapse, version_of(course, line.policy_version).returning());
    }
}

/// The usage in a line for a limit whose units return after a time.
pub fn told(total: &Total) -> Option<(PlainLimit, PlainState)> {
    let (per, returns, state) = match &total.state {
        LimitState::Calendar(_) => return None,
        LimitState::FromFirstClaim(opened) => {
            let at = opened.opened.map(|at| at.timestamp_micros());
            let used = opened.used;
            let state = PlainState::Opened { at, used };
            (opened.per, Return::FromFirstClaim, state)
        }
        LimitState::Sliding(log) => {
            let step = log.step.map(|step| step.micros());
            let pairs = log.pairs.iter().map(|pair| (pair.at, pair.units));
            let state = PlainState::Log(pairs.collect());
            (log.per, Return::Sliding { step }, state)
        }
        LimitState::Rate(bucket) => {
            let burst = bucket.burst;
            let state = PlainState::Bucket(PlainBucket {
                at: bucket.at,
                owed: i128::try_from(bucket.owed).expect("few units"),
                since: usize::try_from(bucket.since - 1).expect("a place"),
            });
            (bucket.per, Return::Rate { burst }, state)
        }
    };
    let max = total.max;
    let per = per.micros();
    Some((PlainLimit { max, per, returns }, state))
}
