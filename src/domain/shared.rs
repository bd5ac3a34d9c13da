//! Limits that all subjects of a policy share: "the first 1,000 of each day". The API calls them `total`.
//!
//! The usage of such a limit is a number for each window, beside the entries. An append changes it in the
//! transaction of the entries, while it holds a lock on it: so it is always the sum of the entries that
//! count, and no two writers take the same room.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::claim::Units;
use super::fault::Fault;
use super::grant::Entry;
use super::limit::per::Per;
use super::limit::shape::Shape;
use super::policy::{Policy, PolicyId, Rule};
use super::shared_limit::SharedLimit;
use super::window::Calendar;

/// A window of a shared limit: its place in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedKey {
    pub policy: PolicyId,
    /// See [`SharedLimit::since`].
    pub since: u32,
    pub per: Per,
    /// The start of the window. The window without an end has the epoch.
    pub start: DateTime<Utc>,
}

/// The units that count in windows of shared limits. What is missing is 0.
pub type SharedUse = HashMap<SharedKey, i64>;

/// What an entry does to the usage of a shared limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedChange {
    pub key: SharedKey,
    /// Negative if units are given back. 0 for a denial, which changes nothing.
    pub units: i64,
    /// What must be true of the room before. `None` for an entry that may go over a limit.
    pub room: Option<Room>,
}

/// What a decision found of the room in a shared limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub max: u64,
    pub asked: Units,
    /// Whether there was too little: the claim was denied, or the policy only observes.
    pub is_missing: bool,
}

/// The state of a shared limit at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedTotal {
    pub limit: SharedLimit,
    pub key: SharedKey,
    /// The end of the window; `None` for the one without an end.
    pub ends_at: Option<DateTime<Utc>>,
    used: i64,
}

impl SharedTotal {
    /// The units that count. Adjustments can take off more than was counted: then it is 0.
    pub fn used(&self) -> u64 {
        self.used.try_into().unwrap_or(0)
    }

    pub fn remaining(&self) -> u64 {
        self.limit.max.saturating_sub(self.used())
    }

    /// The instant from which entries can count: the start of the window, or the first version with the limit.
    pub fn begun_at(&self, versions: &[Policy]) -> DateTime<Utc> {
        let mut versions = versions.iter();
        let first = versions.find(|version| version.version == self.limit.since);
        let begun = first.map(|first| first.effective_at);
        begun.map_or(self.key.start, |begun| begun.max(self.key.start))
    }

    /// The room for units, as a decision finds it.
    pub fn room(&self, units: Units) -> Room {
        Room {
            max: self.limit.max,
            asked: units,
            is_missing: !self.fits(units),
        }
    }

    pub fn fits(&self, units: Units) -> bool {
        has_room(self.used, units, self.limit.max)
    }
}

impl SharedChange {
    /// Whether the change may be made after `used` units.
    pub fn holds_after(&self, used: i64) -> bool {
        let has_room = |room: Room| has_room(used, room.asked, room.max);
        self.room
            .is_none_or(|room| has_room(room) != room.is_missing)
    }
}

/// The usage after some changes, one after the other; `None` if one of them has not the room that it needs.
pub fn after<'c>(
    used: &SharedUse,
    changes: impl IntoIterator<Item = &'c SharedChange>,
) -> Option<SharedUse> {
    let mut after = used.clone();
    for change in changes {
        let used = after.entry(change.key).or_insert(0);
        if !change.holds_after(*used) {
            return None;
        }
        *used = used.saturating_add(change.units);
    }
    Some(after)
}

fn has_room(used: i64, units: Units, max: u64) -> bool {
    i128::from(used) + i128::from(units.get()) <= i128::from(max)
}

/// The limit of a version that goes on in the windows of the calendar.
fn earlier<'l>(
    limit: &SharedLimit,
    calendar: &Calendar,
    before: &'l Policy,
) -> Option<&'l SharedLimit> {
    let has_its_windows = limit.shape == Shape::Ever || *calendar == *before.rule.calendar;
    let known = before.rule.shared.iter();
    let mut known = known.filter(|_| has_its_windows);
    known.find(|known| known.shape == limit.shape)
}

/// The shared limits of a rule, as the version with this number has them: those of the version that is in force
/// before it go on counting, and the others begin.
pub fn carried_on(rule: &Rule, before: Option<&Policy>, version: u32) -> Vec<SharedLimit> {
    let carried = |limit: &SharedLimit| {
        let earlier = before.and_then(|before| earlier(limit, &rule.calendar, before));
        SharedLimit {
            since: earlier.map_or(version, |earlier| earlier.since),
            ..*limit
        }
    };
    rule.shared.iter().map(carried).collect()
}

/// Whether shared limits are the same, whenever they began.
pub fn says_the_same(one: &[SharedLimit], other: &[SharedLimit]) -> bool {
    let said = |limit: &SharedLimit| (limit.max, limit.shape);
    one.iter().map(said).eq(other.iter().map(said))
}

/// The rule, with the shared limits of another version if it says the same of them.
pub fn as_carried(rule: Rule, version: &Policy) -> Rule {
    Rule {
        shared: if says_the_same(&rule.shared, &version.rule.shared) {
            version.rule.shared.clone()
        } else {
            rule.shared
        },
        ..rule
    }
}

/// What is wrong with the calendar of a rule: a shared limit would begin again in the middle of its windows.
pub fn calendar_faults(rule: &Rule, before: &Policy) -> Vec<Fault> {
    let known = |limit: &SharedLimit| {
        let mut earlier = before.rule.shared.iter();
        limit.shape != Shape::Ever && earlier.any(|earlier| earlier.shape == limit.shape)
    };
    if !rule.shared.iter().any(known) {
        return Vec::new();
    }
    let own = &before.rule.calendar;
    let new = &rule.calendar;
    let fields = [
        ("/time_zone", own.zone != new.zone),
        ("/day_starts_at", own.day_starts_at != new.day_starts_at),
        ("/week_starts_on", own.week_starts_on != new.week_starts_on),
    ];
    let detail = "the total counts by the calendar that it began with: keep this field, or take the total out";
    let differ = fields.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(place, _)| Fault::new(place, detail)).collect()
}

/// The units that some totals say are used in a window; 0 if none of them is of the window.
pub fn used_by(totals: &[SharedTotal], key: &SharedKey) -> i64 {
    let mut totals = totals.iter();
    totals
        .find(|total| total.key == *key)
        .map_or(0, |total| total.used)
}

impl Policy {
    /// The shared limits at an instant.
    pub fn shared_totals(
        &self,
        used: impl Fn(&SharedKey) -> i64,
        at: DateTime<Utc>,
    ) -> Vec<SharedTotal> {
        let total = |limit: &SharedLimit| {
            let (start, ends_at) = match limit.shape {
                Shape::Calendar(division) => {
                    let window = self.rule.calendar.window(division, at);
                    (window.start, Some(window.end))
                }
                _ => (DateTime::UNIX_EPOCH, None),
            };
            let key = SharedKey {
                policy: self.id,
                since: limit.since,
                per: limit.per(),
                start,
            };
            SharedTotal {
                limit: *limit,
                key,
                ends_at,
                used: used(&key),
            }
        };
        self.rule.shared.iter().map(total).collect()
    }

    /// What an entry does to the shared limits. `version` is the one that decided the entry, or the grant
    /// that it names.
    pub fn shared_changes(
        &self,
        entry: &Entry,
        version: u32,
    ) -> impl Iterator<Item = SharedChange> {
        let units = entry.units_added();
        let totals = if units == 0 {
            Vec::new()
        } else {
            self.shared_totals(|_| 0, entry.counted_at())
        };
        let counts = move |total: &SharedTotal| version >= total.limit.since;
        totals
            .into_iter()
            .filter(counts)
            .map(move |total| SharedChange {
                key: total.key,
                units,
                room: None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::window::Length;

    fn shared(max: u64, shape: impl Into<Shape>, since: u32) -> SharedLimit {
        SharedLimit {
            max,
            shape: shape.into(),
            since,
        }
    }

    fn with(version: u32, zone: &str, shared: &[SharedLimit]) -> Policy {
        let mut policy = samples::policy(version, zone, &[(3, "day")]);
        policy.rule.shared = shared.to_vec();
        policy
    }

    #[test]
    fn a_limit_goes_on_while_every_version_has_it() {
        let before = with(4, "UTC", &[shared(10, Length::Day, 2)]);
        let draft = [shared(20, Length::Day, 0), shared(30, Length::Month, 0)];
        let draft = with(0, "UTC", &draft).rule;
        let since = |before| {
            let carried = carried_on(&draft, before, 5).into_iter();
            carried.map(|it| (it.max, it.since)).collect::<Vec<_>>()
        };
        assert_eq!(since(Some(&before)), [(20, 2), (30, 5)]);
        assert_eq!(since(None), [(20, 5), (30, 5)]);
        // Only another `max` or shape is another rule.
        let same = with(0, "UTC", &[shared(10, Length::Day, 0)]).rule;
        assert_eq!(as_carried(same, &before), before.rule);
        assert_ne!(as_carried(draft, &before), before.rule);
    }

    #[test]
    fn a_calendar_stays_while_a_total_counts_by_it() {
        let faults = |before: &[SharedLimit], draft: &[SharedLimit]| {
            let before = with(1, "UTC", before);
            let rule = with(2, "Asia/Tokyo", draft).rule;
            let begun = carried_on(&rule, Some(&before), 2);
            let faults = calendar_faults(&rule, &before).into_iter();
            let places: Vec<String> = faults.map(|fault| fault.pointer).collect();
            (places, begun[0].since)
        };
        let day = [shared(10, Length::Day, 1)];
        assert_eq!(faults(&day, &day), (vec!["/time_zone".to_owned()], 2));
        // Another limit begins, and one without an end does not ask the calendar.
        assert_eq!(
            faults(&day, &[shared(10, Length::Month, 0)]),
            (Vec::new(), 2)
        );
        let ever = [shared(10, Shape::Ever, 1)];
        assert_eq!(faults(&ever, &ever), (Vec::new(), 1));
    }

    #[test]
    fn a_change_needs_the_room_that_its_decision_found() {
        let policy = samples::policy(1, "UTC", &[(3, "day")]);
        let key = SharedKey {
            policy: policy.id,
            since: 1,
            per: Per::Ever,
            start: DateTime::UNIX_EPOCH,
        };
        let change = |units, room| SharedChange { key, units, room };
        let room = |units: i64, is_missing| {
            Some(Room {
                max: 10,
                asked: Units::new(units.into()).unwrap(),
                is_missing,
            })
        };
        for (used, units, is_missing) in
            [(0, 10, false), (9, 1, false), (9, 2, true), (-3, 13, false)]
        {
            assert!(change(units, room(units, is_missing)).holds_after(used));
            assert!(!change(units, room(units, !is_missing)).holds_after(used));
            assert!(change(units, None).holds_after(used));
        }
    }
}
