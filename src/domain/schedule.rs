//! The times at which the versions of a policy are active.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use super::policy::{Policy, PolicyId, PolicyName, Rule};
use super::window::Length;

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effective {
    Now,
    /// At the start of the next local day of the policy.
    NextWindow,
    /// At the start of this local day of the policy.
    Day(NaiveDate),
    At(DateTime<Utc>),
    /// With the newest version, if that one has not taken effect; otherwise now.
    WithNewest,
}

/// Why a change would never take effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NeverEffective {
    /// The policy has no active version that could continue until then.
    #[error("a new policy takes effect at once; set active_from to let it start later")]
    NewPolicy,
    #[error(
        "{} is not in the future: write now, or a later instant",
        written(*.0)
    )]
    Past(DateTime<Utc>),
    #[error("the change is too far away: write a time before the year 10000")]
    TooFar,
    /// The policy ends before the change.
    #[error(
        "the change would never take effect: it begins at {}, and active_until ends the policy at \
         {}; write now, or an earlier instant",
        written(*.begins_at),
        written(*.ends_at)
    )]
    EndsBefore {
        begins_at: DateTime<Utc>,
        /// The end of the policy, by the active rule or by the new rule.
        ends_at: DateTime<Utc>,
    },
}

fn written(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The last year that RFC 3339 can write.
const YEAR_MOST: i32 = 9999;

impl Effective {
    /// The instant at which a change to `rule` takes effect, while `in_force` is active and `newest` is the
    /// newest version.
    ///
    /// # Errors
    /// [`NeverEffective`].
    pub fn instant(
        self,
        in_force: Option<&Policy>,
        newest: Option<&Policy>,
        rule: &Rule,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>, NeverEffective> {
        if self == Self::Now {
            return Ok(now);
        }
        let current = &in_force.ok_or(NeverEffective::NewPolicy)?.rule;
        let begins_at = match self {
            Self::Now => now,
            Self::NextWindow => current.calendar.window(Length::Day, now).end,
            Self::Day(date) => current.calendar.day_start(date),
            Self::At(at) => at,
            Self::WithNewest => {
                let waits = newest.filter(|newest| !newest.has_effect(now));
                return Ok(waits.map_or(now, |newest| newest.effective_at));
            }
        };
        if begins_at.year() > YEAR_MOST {
            return Err(NeverEffective::TooFar);
        }
        if begins_at <= now {
            return Err(NeverEffective::Past(begins_at));
        }
        let ends = [current.active_until, rule.active_until];
        match ends.into_iter().flatten().min() {
            Some(ends_at) if ends_at <= begins_at => {
                Err(NeverEffective::EndsBefore { begins_at, ends_at })
            }
            _ => Ok(begins_at),
        }
    }
}

/// The times of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionTime {
    pub version: u32,
    /// The instant from which on the version is active, unless a higher version is.
    pub effective_at: DateTime<Utc>,
    pub changed_at: DateTime<Utc>,
}

impl VersionTime {
    fn is_scheduled(&self) -> bool {
        self.effective_at > self.changed_at
    }

    fn has_effect(&self, at: DateTime<Utc>) -> bool {
        !self.is_scheduled() || self.effective_at <= at
    }
}

impl Policy {
    fn time(&self) -> VersionTime {
        VersionTime {
            version: self.version,
            effective_at: self.effective_at,
            changed_at: self.changed_at,
        }
    }

    /// Whether this version was scheduled for a later time when it was created.
    pub fn is_scheduled(&self) -> bool {
        self.time().is_scheduled()
    }

    /// Whether this version has taken effect. A version that takes effect at once always has, even
    /// if the clock here is behind the clock of its creator.
    pub fn has_effect(&self, at: DateTime<Utc>) -> bool {
        self.time().has_effect(at)
    }
}

/// Why this instance cannot decide the claims of a policy: it cannot read a stored version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this instance cannot read {what} of the policy {name} ({why}): newer instances decide its \
     claims; start a newer perdiem here"
)]
pub struct UnreadableTerms {
    pub policy: PolicyId,
    pub name: PolicyName,
    /// Such as `version 3`, or `an override`.
    pub what: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableVersion {
    pub time: VersionTime,
    pub terms: Arc<UnreadableTerms>,
}

/// A version as the ledger stores it.
pub type StoredVersion = Result<Arc<Policy>, UnreadableVersion>;

fn time_of(version: &StoredVersion) -> VersionTime {
    match version {
        Ok(policy) => policy.time(),
        Err(unreadable) => unreadable.time,
    }
}

/// The versions of a policy that are or may become active: the highest version that took effect at
/// once, and the versions scheduled after it.
#[derive(Debug, Clone, Default)]
pub struct Versions {
    in_order: Vec<StoredVersion>,
    may_be_counted: bool,
}

impl Versions {
    /// Adds a version. The order of the calls does not matter.
    pub fn insert(&mut self, version: StoredVersion) {
        // Redis may count under a rule that this instance cannot read.
        self.may_be_counted |= version
            .as_ref()
            .map_or(true, |policy| policy.rule.may_be_counted());
        // 1. The version is sorted in by its number, once.
        let number = time_of(&version).version;
        if self.get(number).is_some() {
            return;
        }
        self.in_order.push(version);
        self.in_order
            .sort_by_key(|version| time_of(version).version);
        // 2. A version is dropped if a higher version takes effect at once, or if both are scheduled
        //    and the higher one takes effect no later.
        let all: Vec<VersionTime> = self.in_order.iter().map(time_of).collect();
        self.in_order.retain(|version| {
            let time = time_of(version);
            let supersedes = |later: &VersionTime| {
                later.version > time.version
                    && (!later.is_scheduled()
                        || time.is_scheduled() && later.effective_at <= time.effective_at)
            };
            !all.iter().any(supersedes)
        });
    }

    /// Whether any version that was added lets Redis decide claims.
    pub fn may_be_counted(&self) -> bool {
        self.may_be_counted
    }

    /// The highest version, active or not.
    pub fn newest(&self) -> Option<&StoredVersion> {
        self.in_order.last()
    }

    /// The active version at an instant: the highest version that has taken effect. For an account
    /// whose last line was decided under version `since`, the result is not older than `since`, if
    /// such a version is known.
    pub fn in_force(&self, at: DateTime<Utc>, since: u32) -> Option<&StoredVersion> {
        let mut versions = self.in_order.iter();
        let has_effect = versions.rposition(|version| time_of(version).has_effect(at));
        let mut versions = self.in_order.iter();
        let least = versions.position(|version| time_of(version).version >= since);
        self.in_order.get(has_effect.max(least)?)
    }

    /// The instants at which another version can become active.
    pub fn changes(&self) -> impl Iterator<Item = DateTime<Utc>> {
        self.in_order
            .iter()
            .map(|version| time_of(version).effective_at)
    }

    pub fn get(&self, version: u32) -> Option<&StoredVersion> {
        let mut versions = self.in_order.iter();
        versions.find(|stored| time_of(stored).version == version)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::limit::draft::LimitDraft;
    use crate::policy::RuleDraft;
    use crate::samples::policy;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn rule(active_until: Option<DateTime<Utc>>) -> Rule {
        let draft = RuleDraft {
            time_zone: "GMT+8".to_owned(),
            limits: vec![LimitDraft {
                max: 3,
                per: "day".to_owned(),
                ..LimitDraft::default()
            }],
            active_until,
            ..RuleDraft::default()
        };
        draft.check().unwrap()
    }

    fn version(version: u32, changed_at: i64, effective_at: i64) -> Policy {
        Policy {
            effective_at: at(effective_at),
            changed_at: at(changed_at),
            ..policy(version, "GMT+8", &[(3, "day")])
        }
    }

    #[test]
    fn the_next_window_is_the_next_local_day() {
        let noon: DateTime<Utc> = "2026-11-21T04:00:00Z".parse().unwrap();
        let midnight: DateTime<Utc> = "2026-11-21T16:00:00Z".parse().unwrap();
        let current = version(1, 0, 0);
        let next =
            |in_force, rule: &Rule, now| Effective::NextWindow.instant(in_force, None, rule, now);
        assert_eq!(next(Some(&current), &rule(None), noon), Ok(midnight));
        let last = midnight - TimeDelta::microseconds(1);
        assert_eq!(next(Some(&current), &rule(None), last), Ok(midnight));
        let later = midnight + TimeDelta::days(1);
        assert_eq!(next(Some(&current), &rule(None), midnight), Ok(later));
        assert_eq!(
            Effective::Now.instant(None, None, &rule(None), noon),
            Ok(noon)
        );
        assert_eq!(
            next(None, &rule(None), noon),
            Err(NeverEffective::NewPolicy)
        );
        let never = Err(NeverEffective::EndsBefore {
            begins_at: midnight,
            ends_at: midnight,
        });
        assert_eq!(next(Some(&current), &rule(Some(midnight)), noon), never);
        let ends = Policy {
            rule: rule(Some(midnight)),
            ..current.clone()
        };
        assert_eq!(next(Some(&ends), &rule(None), noon), never);
        let just_felt = rule(Some(midnight + TimeDelta::microseconds(1)));
        assert_eq!(next(Some(&current), &just_felt, noon), Ok(midnight));
    }

    #[test]
    fn a_change_takes_effect_on_its_day_or_with_the_newest_version() {
        let noon: DateTime<Utc> = "2026-11-21T04:00:00Z".parse().unwrap();
        let current = version(1, 0, 0);
        let rule = rule(None);
        let instant = |effective: Effective, newest: Option<&Policy>| {
            effective.instant(Some(&current), newest, &rule, noon)
        };
        let day = |text: &str| Effective::Day(text.parse().unwrap());
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert_eq!(
            instant(day("2026-12-01"), None),
            Ok(at("2026-11-30T16:00:00Z"))
        );
        let today = Err(NeverEffective::Past(at("2026-11-20T16:00:00Z")));
        assert_eq!(instant(day("2026-11-21"), None), today);
        assert_eq!(
            instant(Effective::At(noon), None),
            Err(NeverEffective::Past(noon))
        );
        let too_far = instant(Effective::Day(NaiveDate::MAX), None);
        assert_eq!(too_far, Err(NeverEffective::TooFar));
        let scheduled = Policy {
            changed_at: noon,
            effective_at: noon + TimeDelta::hours(1),
            ..version(2, 0, 0)
        };
        let with_newest = |newest| instant(Effective::WithNewest, newest);
        assert_eq!(with_newest(Some(&scheduled)), Ok(scheduled.effective_at));
        assert_eq!(with_newest(Some(&current)), Ok(noon));
        assert_eq!(with_newest(None), Ok(noon));
    }

    #[test]
    fn a_change_at_once_needs_no_clock_and_supersedes_what_waits() {
        let mut versions = Versions::default();
        for policy in [version(1, 100, 100), version(2, 100, 500)] {
            versions.insert(Ok(Arc::new(policy)));
        }
        let in_force = |versions: &Versions, seconds, since| {
            time_of(versions.in_force(at(seconds), since).unwrap()).version
        };
        assert_eq!(in_force(&versions, 0, 0), 1);
        assert_eq!(in_force(&versions, 499, 1), 1);
        assert_eq!(in_force(&versions, 499, 2), 2);
        assert_eq!(in_force(&versions, 500, 0), 2);
        versions.insert(Ok(Arc::new(version(3, 300, 300))));
        assert_eq!(in_force(&versions, 0, 0), 3);
        assert_eq!(in_force(&versions, 500, 0), 3);
        assert!(versions.get(2).is_none());
    }

    fn unreadable() -> Arc<UnreadableTerms> {
        Arc::new(UnreadableTerms {
            policy: PolicyId(1),
            name: PolicyName::new("benefit").unwrap(),
            what: "a version".to_owned(),
            why: "a test".to_owned(),
        })
    }

    /// A history: the seconds between changes, and the seconds that each change waits.
    fn histories() -> impl Strategy<Value = Vec<(i64, i64)>> {
        let waits = prop_oneof![Just(0), 1i64..40];
        proptest::collection::vec((0i64..20, waits), 1..12)
    }

    proptest! {
        /// For any order of learning, the active version is the version of the plain rule.
        #[test]
        fn the_version_in_force_is_the_highest_that_has_taken_effect(
            history in histories(),
            order in proptest::collection::vec(any::<u32>(), 12),
            since in 0u32..12,
        ) {
            let mut now = 1000;
            let mut all = Vec::new();
            for (number, (pause, wait)) in (1..).zip(history) {
                now += pause;
                // The first version never waits.
                let wait = if number == 1 { 0 } else { wait };
                all.push(version(number, now, now + wait));
            }
            let mut shuffled: Vec<(u32, Policy)> =
                order.iter().copied().zip(all.iter().cloned()).collect();
            shuffled.sort_by_key(|(place, _)| *place);
            let mut versions = Versions::default();
            for (place, policy) in shuffled {
                // Some versions cannot be read. They become active like the others.
                versions.insert(match place % 3 {
                    0 => Err(UnreadableVersion {
                        time: policy.time(),
                        terms: unreadable(),
                    }),
                    _ => Ok(Arc::new(policy)),
                });
            }
            let since = since.min(all.len() as u32);
            for seconds in (900..=now + 50).step_by(7).chain([now]) {
                let has_effect = |policy: &&Policy| {
                    policy.effective_at == policy.changed_at
                        || policy.effective_at <= at(seconds)
                        || policy.version <= since
                };
                let expected = all.iter().rev().find(has_effect).unwrap();
                let found = time_of(versions.in_force(at(seconds), since).unwrap());
                // A superseded version may be missing; no older version takes its place.
                let holds = found.version == expected.version
                    || found.version > expected.version && expected.version == since;
                prop_assert!(holds, "{} for {}", found.version, expected.version);
            }
            prop_assert_eq!(time_of(versions.newest().unwrap()).version, all.len() as u32);
        }
    }
}
