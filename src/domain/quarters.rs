//! The figures of the quarter hours of a policy.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::grant::EntryKind;
use super::policy::PolicyId;
use super::statistics::{TalliedEntry, sum};

/// How long figures of quarter hours are kept.
pub const QUARTERS_KEPT: TimeDelta = TimeDelta::days(14);

const SECONDS: i64 = 900;

/// A quarter hour of UTC. Whatever the offset of a zone is, its clocks show a whole quarter hour, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyQuarter {
    starts_at: DateTime<Utc>,
    policy: PolicyId,
}

impl PolicyQuarter {
    /// The quarter hour of an instant.
    pub fn of(policy: PolicyId, at: DateTime<Utc>) -> Self {
        let start = at.timestamp().div_euclid(SECONDS) * SECONDS;
        Self {
            starts_at: DateTime::from_timestamp(start, 0).unwrap_or_default(),
            policy,
        }
    }

    pub fn starts_at(self) -> DateTime<Utc> {
        self.starts_at
    }

    pub fn policy(self) -> PolicyId {
        self.policy
    }
}

/// What the entries of a quarter hour make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuarterFigures {
    pub grants: u64,
    pub units: u64,
    /// The units of reversals and lapses.
    pub given_back_units: u64,
}

impl QuarterFigures {
    fn add(&mut self, other: Self) {
        self.grants += other.grants;
        self.units = sum(self.units, other.units);
        self.given_back_units = sum(self.given_back_units, other.given_back_units);
    }
}

/// Sums of figures, by their quarter hours.
#[derive(Debug, Default)]
pub struct QuarterSums(pub BTreeMap<PolicyQuarter, QuarterFigures>);

impl QuarterSums {
    /// Adds an entry to the quarter hour in which it happened: a reversal is not where its grant is.
    pub fn add(&mut self, entry: &TalliedEntry) {
        let added = match entry.kind {
            EntryKind::Grant { .. } => QuarterFigures {
                grants: 1,
                units: entry.units,
                given_back_units: 0,
            },
            EntryKind::Reversal { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Lapse { .. } => QuarterFigures {
                given_back_units: entry.units,
                ..QuarterFigures::default()
            },
            // An adjustment is of a day, and not of a moment. A reset moves no units of grants.
            EntryKind::Confirmation { .. }
            | EntryKind::Adjustment(_)
            | EntryKind::Reset { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => {
                return;
            }
        };
        let quarter = PolicyQuarter::of(entry.policy, entry.place.id.at());
        self.0.entry(quarter).or_default().add(added);
    }

    /// Adds other sums.
    pub fn extend(&mut self, others: Self) {
        for (quarter, figures) in others.0 {
            self.0.entry(quarter).or_default().add(figures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_hour_has_its_start_and_not_its_end() {
        let start = |text: &str| {
            let at = text.parse().unwrap();
            PolicyQuarter::of(PolicyId(1), at).starts_at().to_rfc3339()
        };
        for (at, starts_at) in [
            ("2026-11-21T14:00:00Z", "2026-11-21T14:00:00+00:00"),
            ("2026-11-21T14:14:59.999999Z", "2026-11-21T14:00:00+00:00"),
            ("2026-11-21T14:15:00Z", "2026-11-21T14:15:00+00:00"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:45:00+00:00"),
            // 19:44 in Kathmandu, whose offset is 5:45.
            ("2026-11-21T13:59:00Z", "2026-11-21T13:45:00+00:00"),
        ] {
            assert_eq!(start(at), starts_at, "{at}");
        }
    }
}
