//! The checks of each appended entry against the entries before it.

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind, Provisional};
use perdiem::domain::window::Window;
use perdiem::domain::zone::Zone;

use super::counted::Counts;
use super::grants::{closes, open_until};
use super::sums::{
    EVER, name_of, plain_account, reset_at, told, used, used_by_all, version_of, window, window_of,
};
use super::{Broken, nonce, parts, promise, top_ups};
use crate::sim::clients::ZONES;
use crate::sim::courses::{Course, Version, VersionLimit};
use crate::sim::instance::LAPSE_NONCES;
use crate::sim::ledger::names;

/// Checks the last of the given entries.
pub fn check(
    course: Course,
    entry: &Entry,
    with_it: &[Entry],
    counts: &Counts,
) -> Result<(), Broken> {
    let before = &with_it[..with_it.len() - 1];
    check_order(entry, before, counts)?;
    check_follower(entry, before)?;
    check_totals(course, entry, with_it)?;
    check_total_of_all(course, entry, with_it)?;
    check_returning(course, entry, with_it)?;
    check_mark(course, entry, with_it)?;
    check_calendar(entry, with_it)?;
    top_ups::check(entry, with_it)?;
    check_holds(entry, with_it)
}

/// Numbers have no gaps and no forks. Time and versions never go back. A key and a claim have one
/// entry.
fn check_order(entry: &Entry, before: &[Entry], counts: &Counts) -> Result<(), Broken> {
    let own = before.iter().filter(|other| other.account == entry.account);
    let last = own.clone().max_by_key(|other| other.line.number);
    let number = last.map_or(0, |last| last.line.number);
    promise(entry.line.number == number + 1, || {
        let next = entry.line.number;
        format!("numbers without gaps or forks: {next} after {number}")
    })?;
    let is_reset = matches!(entry.kind, EntryKind::Reset { .. });
    let goes_on =
        |last: &Entry| last.line.at < entry.line.at || !is_reset && last.line.at == entry.line.at;
    promise(last.is_none_or(goes_on), || {
        "time never runs backwards in an account".to_owned()
    })?;
    let goes_on = |last: &Entry| last.line.policy_version <= entry.line.policy_version;
    promise(last.is_none_or(goes_on), || {
        "versions never run backwards in an account".to_owned()
    })?;
    let has_key = |other: &Entry| entry.key.is_some() && other.key == entry.key;
    promise(!before.iter().any(has_key), || {
        "a key has one entry".to_owned()
    })?;
    // A claim that is counted again in another window has another id. Its first script can arrive
    // late.
    let is_other_day = |other: &Entry| other.id.at().date_naive() != entry.id.at().date_naive();
    let is_twice = |other: &Entry| {
        let is_counted = entry.provisional.is_some() && other.provisional.is_some();
        let is_own = nonce(other) == nonce(entry) && nonce(entry) < LAPSE_NONCES;
        let may_be = is_counted && is_other_day(other)
            || counts.may_be_twice(entry, other)
            || parts::is_rest(other, entry);
        is_own && !may_be
    };
    promise(!before.iter().any(is_twice), || {
        "a claim has one entry".to_owned()
    })
}

/// An entry has the limits of its version. Each total of a calendar limit is the sum in its window.
/// A grant stays within every `max`.
fn check_totals(course: Course, entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let line = &entry.line;
    let version = version_of(course, line.policy_version);
    promise(line.totals.len() == version.limits.len(), || {
        "an entry has its version's limits".to_owned()
    })?;
    for (place, (total, limit)) in line.totals.iter().zip(version.limits).enumerate() {
        let (max, mut own, per) = match limit {
            VersionLimit::Returns(limit) => {
                promise(told(total).is_some_and(|(told, _)| told == *limit), || {
                    "an entry has its version's limits: another kind".to_owned()
                })?;
                continue;
            }
            VersionLimit::Calendar(max, per) => {
                (max, own_window(version, per, entry, with_it), *per)
            }
            VersionLimit::Ever(max) => (max, EVER, "ever"),
        };
        // A lapse leaves the windows of the line before it.
        if let (EntryKind::Lapse { .. }, Some(window)) =
            (entry.kind, window_before(entry, place, with_it))
        {
            own = [window.start, window.end];
        }
        let is_told = |it: Window| own == EVER && it == Window::EVER || [it.start, it.end] == own;
        promise(total.window().is_some_and(is_told), || {
            "an entry is in its windows".to_owned()
        })?;
        // Holds that are due lapse in an entry of their own.
        let sum = used(with_it, entry.account, per, own, DateTime::UNIX_EPOCH);
        promise(total.used() == sum && total.max == *max, || {
            format!(
                "totals are sums: a {per} says {} and has {sum}",
                total.used()
            )
        })?;
        promise(!takes(entry) || sum <= *max, || {
            format!("never over: {sum} of {max} a {per}")
        })?;
    }
    Ok(())
}

/// A grant stays within what all subjects share.
fn check_total_of_all(course: Course, entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let version = version_of(course, entry.line.policy_version);
    let Some(total) = version.total.filter(|_| is_decided(entry)) else {
        return Ok(());
    };
    let sum = used_by_all(course, version, with_it, entry.id.at(), None);
    promise(sum <= total.max.cast_signed(), || {
        format!(
            "never over: all subjects have {sum} of {} a {}",
            total.max, total.per
        )
    })
}

/// The window of a limit in which an entry must be. Only a claim and an admin move the zone of an account.
fn own_window(
    version: &Version,
    per: &str,
    entry: &Entry,
    with_it: &[Entry],
) -> [DateTime<Utc>; 2] {
    let mut own = of_account(entry, with_it).into_iter();
    let before = own.find(|other| other.line.number + 1 == entry.line.number);
    let before = before.map(|before| &before.line);
    let has = entry
        .line
        .calendar
        .as_ref()
        .and_then(|own| own.zone.as_ref());
    let is_its = |(name, _): &&(&str, i64)| Zone::parse(name).ok().as_ref() == has;
    let moves = matches!(entry.kind, EntryKind::Grant { .. } | EntryKind::Calendar);
    let told = ZONES.iter().find(is_its).filter(|_| moves);
    window_of(
        version,
        per,
        before,
        told.map(|(_, hours)| *hours),
        entry.line.at,
    )
}

/// An entry that moves no calendar leaves it as it is.
fn check_calendar(entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let mut own = of_account(entry, with_it).into_iter();
    let before = own.find(|other| other.line.number + 1 == entry.line.number);
    let before = before.and_then(|before| before.line.calendar.as_ref());
    let moves = matches!(entry.kind, EntryKind::Grant { .. } | EntryKind::Calendar);
    promise(moves || entry.line.calendar.as_ref() == before, || {
        "only a claim and an admin move a calendar".to_owned()
    })
}

/// The window of a limit on the line before an entry.
fn window_before(entry: &Entry, place: usize, entries: &[Entry]) -> Option<Window> {
    let mut own = of_account(entry, entries).into_iter();
    let before = own.find(|other| other.line.number + 1 == entry.line.number)?;
    before.line.totals.get(place)?.window()
}

/// Totals whose units return after a time equal the plain model's. After a grant, no span of time
/// exceeds its limit.
fn check_returning(course: Course, entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let own = of_account(entry, with_it);
    let before = plain_account(course, &own[..own.len() - 1]);
    let after = plain_account(course, &own);
    let at = entry.line.at.timestamp_micros();
    for (limit, said) in entry.line.totals.iter().filter_map(told) {
        let model = after.state(&limit, at);
        promise(said == model, || {
            format!("totals are sums: {limit:?} says {said:?} and has {model:?}")
        })?;
        let fits = before.state(&limit, at).left(&limit) >= entry.own_units();
        let is_over = !fits || after.has_span_over(&limit);
        promise(!takes(entry) || !is_over, || {
            format!("never over: {said:?} of {limit:?}")
        })?;
    }
    Ok(())
}

/// A grant that Redis counted has the mark "over a limit" only if it is over a limit.
fn check_mark(course: Course, entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let Some(provisional) = entry.provisional else {
        return Ok(());
    };
    let version = version_of(course, entry.line.policy_version);
    let own = of_account(entry, with_it);
    let before = plain_account(course, &own[..own.len() - 1]);
    let at = entry.line.at.timestamp_micros();
    // What counts before a reset is over no limit.
    let is_over = |max: u64, per: &str, window| {
        let counts = reset_at(with_it, entry.account, per, window) <= Some(entry.id.at());
        counts && used(with_it, entry.account, per, window, DateTime::UNIX_EPOCH) > max
    };
    let is_over = version.limits.iter().any(|limit| match limit {
        VersionLimit::Calendar(max, per) => {
            // Redis counts no calendars of subjects.
            is_over(*max, per, window(per, version.hours_east, entry.id.at()))
        }
        VersionLimit::Ever(max) => is_over(*max, "ever", EVER),
        VersionLimit::Returns(limit) => {
            let reset_at = reset_at(with_it, entry.account, &name_of(limit), EVER);
            let lacks_room = before.state(limit, at).left(limit) < entry.units.get();
            lacks_room && reset_at <= Some(entry.id.at())
        }
    });
    promise((provisional == Provisional::Over) == is_over, || {
        format!("what Redis counted is marked over where it is, and here it is: {is_over}")
    })
}

/// Whether the ledger's rule granted the entry units of its windows.
fn takes(entry: &Entry) -> bool {
    is_decided(entry) && entry.own_units() > 0
}

/// Whether the ledger's rule granted the entry.
fn is_decided(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Grant { .. }) && entry.provisional.is_none()
}

fn of_account<'a>(entry: &Entry, entries: &'a [Entry]) -> Vec<&'a Entry> {
    let own = entries
        .iter()
        .filter(|other| other.account == entry.account);
    own.collect()
}

/// A grant is closed once. A hold is confirmed once and in time. A hold lapses at its end, whenever
/// the lapse is appended.
fn check_follower(entry: &Entry, before: &[Entry]) -> Result<(), Broken> {
    let Some(of) = names(entry.kind) else {
        return Ok(());
    };
    let grant = before.iter().find(|other| other.id == of);
    let grant = grant.ok_or("a grant is committed before what names it")?;
    let is_named = |kind| before.iter().any(|other| other.kind == kind);
    let is_closed = before.iter().any(|other| closes(other.kind) == Some(of));
    promise(!is_closed, || "a grant is given back once".to_owned())?;
    if matches!(entry.kind, EntryKind::TopUpReversal { .. }) {
        return top_ups::check_end(entry, of, before);
    }
    parts::check(entry, grant, before)?;
    let until = grant.held_until();
    let at = entry.line.at;
    match entry.kind {
        EntryKind::Confirmation { of } => {
            promise(!is_named(EntryKind::Confirmation { of }), || {
                "a hold is confirmed once".to_owned()
            })?;
            promise(until.is_some_and(|until| at < until), || {
                "a hold is confirmed in time or never".to_owned()
            })
        }
        EntryKind::Lapse { of } => {
            let before = before.iter().filter(|other| other.account == entry.account);
            let before = before.max_by_key(|other| other.line.number);
            let Some(Entry { line: before, .. }) = before else {
                return Err("a lapse follows an entry".to_owned());
            };
            promise(entry.line.policy_version == before.policy_version, || {
                "a lapse is under the terms of the line before it".to_owned()
            })?;
            let is_due = until.is_some_and(|until| at == until.max(before.at));
            promise(is_due && !is_named(EntryKind::Confirmation { of }), || {
                "what is held or confirmed does not lapse".to_owned()
            })
        }
        _ => Ok(()),
    }
}

/// A line contains the instant at which its first hold lapses. Holds that are due lapse before the
/// next decision.
fn check_holds(entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let own = with_it
        .iter()
        .filter(|other| other.account == entry.account);
    let open = own.filter_map(|other| open_until(other, with_it));
    let Some(first) = open.min() else {
        return Ok(());
    };
    promise(
        entry.line.lapses_at.is_some_and(|told| told <= first),
        || "a line tells when its first hold lapses".to_owned(),
    )?;
    let is_lapse = matches!(entry.kind, EntryKind::Lapse { .. });
    // Redis counted this grant without those holds. The entry has the grant's own instant.
    let is_counted = entry.provisional.is_some();
    promise(is_lapse || is_counted || entry.line.at < first, || {
        "holds lapse before the next decision".to_owned()
    })
}
