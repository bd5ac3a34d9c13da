//! What must hold of each entry that is appended, after those before it.

use chrono::DateTime;
use perdiem::domain::grant::{Entry, EntryKind, Provisional};

use super::{Broken, closes, nonce, open_until, promise, used, window};
use crate::sim::instance::LAPSE_NONCES;
use crate::sim::ledger::names;
use crate::sim::{VERSIONS, Version};

/// Looks at the last of some entries.
pub fn check(entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let before = &with_it[..with_it.len() - 1];
    check_order(entry, before)?;
    check_totals(entry, with_it)?;
    check_follower(entry, before)?;
    check_holds(entry, with_it)
}

/// Numbers without gaps or forks, time and versions that never run backwards, keys and claims with
/// one entry.
fn check_order(entry: &Entry, before: &[Entry]) -> Result<(), Broken> {
    let own = before.iter().filter(|other| other.account == entry.account);
    let last = own.clone().max_by_key(|other| other.line.number);
    let number = last.map_or(0, |last| last.line.number);
    promise(entry.line.number == number + 1, || {
        let next = entry.line.number;
        format!("numbers without gaps or forks: {next} after {number}")
    })?;
    let goes_on = |last: &Entry| last.line.at <= entry.line.at;
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
    // A claim that is counted again in another window has another id, and its first script may come late.
    let is_other_day = |other: &Entry| other.id.at().date_naive() != entry.id.at().date_naive();
    let is_twice = |other: &Entry| {
        let is_counted = entry.provisional.is_some() && other.provisional.is_some();
        let is_own = nonce(other) == nonce(entry) && nonce(entry) < LAPSE_NONCES;
        is_own && !(is_counted && is_other_day(other))
    };
    promise(!before.iter().any(is_twice), || {
        "a claim has one entry".to_owned()
    })
}

/// An entry's totals are sums in the windows of its version, and a grant is within every `max`.
fn check_totals(entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let line = &entry.line;
    let Version {
        hours_east, limits, ..
    } = VERSIONS[line.policy_version as usize - 1];
    promise(line.totals.len() == limits.len(), || {
        "an entry has its version's limits".to_owned()
    })?;
    for (total, (max, per)) in line.totals.iter().zip(limits) {
        let own = window(per, hours_east, line.at);
        promise(
            [total.window().unwrap().start, total.window().unwrap().end] == own,
            || "an entry is in its windows".to_owned(),
        )?;
        // What is due lapses in an entry of its own.
        let sum = used(with_it, entry.account, own, DateTime::UNIX_EPOCH);
        promise(total.used() == sum && total.max == *max, || {
            format!(
                "totals are sums: a {per} says {} and has {sum}",
                total.used()
            )
        })?;
        let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
        promise(
            !is_grant || entry.provisional.is_some() || sum <= *max,
            || format!("never over: {sum} of {max} a {per}"),
        )?;
    }
    let Some(provisional) = entry.provisional else {
        return Ok(());
    };
    let is_over = limits.iter().any(|(max, per)| {
        let own = window(per, hours_east, entry.id.at());
        used(with_it, entry.account, own, DateTime::UNIX_EPOCH) > *max
    });
    promise((provisional == Provisional::Over) == is_over, || {
        format!("what Redis counted is marked over where it is, and here it is: {is_over}")
    })
}

/// A grant is given back once; a hold is confirmed once and in time, and lapses only then.
fn check_follower(entry: &Entry, before: &[Entry]) -> Result<(), Broken> {
    let Some(of) = names(entry.kind) else {
        return Ok(());
    };
    let grant = before.iter().find(|other| other.id == of);
    let grant = grant.ok_or("a grant is committed before what names it")?;
    let is_named = |kind| before.iter().any(|other| other.kind == kind);
    let is_closed = before.iter().any(|other| closes(other.kind) == Some(of));
    promise(!is_closed, || "a grant is given back once".to_owned())?;
    let (until, at) = (grant.held_until(), entry.line.at);
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
            let is_due = until.is_some_and(|until| until <= at);
            promise(is_due && !is_named(EntryKind::Confirmation { of }), || {
                "what is held or confirmed does not lapse".to_owned()
            })
        }
        _ => Ok(()),
    }
}

/// A line tells when its first hold lapses, and holds that are due lapse before the next decision.
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
    // What was counted without those holds is recorded at its own instant.
    let is_counted = entry.provisional.is_some();
    promise(is_lapse || is_counted || entry.line.at < first, || {
        "holds lapse before the next decision".to_owned()
    })
}
