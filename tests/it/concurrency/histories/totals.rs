//! The total of all subjects in the plain model: a sum over the entries of a day.

use chrono::{DateTime, Utc};
use perdiem::domain::window::Length;
use proptest::prelude::*;
use serde_json::Value;

use super::checks::{Checked, is_problem};
use super::entries::Entry;
use super::plain::{Model, Version};
use super::steps::Claim;
use crate::support::app::Answer;

impl Model {
    /// The total of the policy, if it has one, and the first of the versions that have had it since.
    fn total(&self, now: DateTime<Utc>) -> Option<(u64, usize)> {
        let in_force = self.version_at(now);
        let max = self.versions[in_force].choice.total?;
        let calendar = |version: &Version| version.choice.rule().calendar;
        let own = calendar(&self.versions[in_force]);
        let goes_on =
            |version: &&Version| version.choice.total.is_some() && calendar(version) == own;
        let before = self.versions[..in_force].iter().rev();
        let carried = before.take_while(goes_on);
        Some((max, in_force - carried.count()))
    }

    /// The units of the total that are used. An adjustment can take off more than was counted.
    fn used_of_total(&self, since: usize, now: DateTime<Utc>) -> i64 {
        let calendar = self.in_force(now).choice.rule().calendar;
        let day = calendar.window(Length::Day, now);
        let counts = |entry: &&Entry| {
            let granted_by = entry
                .what
                .of()
                .map_or(entry.version, |of| self.entries[of].version);
            granted_by >= since && entry.version >= since && day.contains(entry.at)
        };
        self.entries
            .iter()
            .filter(counts)
            .map(|entry| entry.units)
            .sum()
    }

    /// Whether the total has room for a claim. A policy without one always has.
    pub fn total_fits(&self, claim: Claim, now: DateTime<Utc>) -> bool {
        self.total(now).is_none_or(|(max, since)| {
            self.used_of_total(since, now) + claim.units.cast_signed() <= max.cast_signed()
        })
    }

    /// The model of policies without totals.
    pub fn without_totals(&self) -> Self {
        let mut without = self.clone();
        for version in &mut without.versions {
            version.choice.total = None;
        }
        without
    }

    /// Whether a claim is for more than the total ever has.
    pub fn exceeds_total(&self, claim: Claim, now: DateTime<Utc>) -> bool {
        self.total(now).is_some_and(|(max, _)| claim.units > max)
    }

    /// A claim as clients of this policy make it. The units of a hold return to a total when its lapse is recorded,
    /// and so at no instant that a model can know: there are no holds.
    pub fn fit(&self, claim: Claim, now: DateTime<Utc>) -> Claim {
        let hold_seconds = claim.hold_seconds.filter(|_| self.total(now).is_none());
        Claim {
            hold_seconds,
            ..claim
        }
    }

    /// Checks the usage of the total.
    pub fn check_total(&self, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let told = answer.json();
        if self.is_archived(now) {
            return is_problem(answer.status.as_u16(), &told, 404, "unknown-policy");
        }
        let used = |told: &Value| told["used"].as_u64();
        let told: Vec<_> = told["total"]
            .as_array()
            .into_iter()
            .flatten()
            .map(used)
            .collect();
        let expected = self.total(now).map(|(_, since)| {
            let used = self.used_of_total(since, now);
            Some(u64::try_from(used).unwrap_or(0))
        });
        prop_assert_eq!(
            told,
            expected.into_iter().collect::<Vec<_>>(),
            "{:?}",
            answer
        );
        Ok(())
    }
}
