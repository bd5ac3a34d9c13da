//! The figures of a policy's local days.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::claim::Units;
use super::grant::{Direction, EntryKind, Provisional};
use super::identity::AccountId;
use super::limit::per::Per;
use super::limit::total::Total;
use super::policy::{PolicyId, PolicyName};
use super::record::RecordPlace;
use super::window::Window;

/// Makes the figures, with their names in the tables and in the HTTP contract.
macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident,)+) => {
        /// The figures of a policy's local day, or what is added to them.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct DayFigures {
            $($(#[$doc])* pub $figure: u64,)+
        }

        impl DayFigures {
            /// Those that are not 0, by their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let all = [$((stringify!($figure), self.$figure)),+];
                all.into_iter().filter(|(_, figure)| *figure > 0)
            }

            /// The figure with a name; `None` where no figure has it.
            pub fn named_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($figure) => Some(&mut self.$figure),)+
                    _ => None,
                }
            }

            fn add(&mut self, other: &Self) {
                $(self.$figure = sum(self.$figure, other.$figure);)+
            }
        }
    };
}

figures! {
    grants,
    /// The units of all grants.
    units,
    /// Grants that were reversed.
    reversed_grants,
    reversed_units,
    /// Holds that lapsed.
    lapsed_grants,
    lapsed_units,
    adjustments,
    /// Units that adjustments added.
    adjusted_up_units,
    /// Units that adjustments took away.
    adjusted_down_units,
    /// Grants that Redis alone decided.
    provisional_grants,
    /// Those of them that went over a limit.
    over_grants,
    /// Grants that an observing policy would have denied.
    would_deny_grants,
    /// Subjects that had a grant.
    subjects,
    /// Subjects whose grants left a limit with nothing.
    subjects_at_limit,
    denied_claims,
    /// Denials that might have been kept as the first of their window, but came too fast.
    denials_not_kept,
}

impl DayFigures {
    /// The units that are used at the end; at most [`FIGURE_MAX`].
    pub fn net_units(&self) -> i64 {
        let up = [self.units, self.adjusted_up_units];
        let down = [
            self.reversed_units,
            self.lapsed_units,
            self.adjusted_down_units,
        ];
        let sum = |units: &[u64]| units.iter().copied().map(i128::from).sum::<i128>();
        let net = sum(&up) - sum(&down);
        let most = i128::from(FIGURE_MAX);
        net.clamp(-most, most) as i64
    }
}

/// The highest figure that the stores can have. A sum that would be higher stays there.
pub const FIGURE_MAX: u64 = i64::MAX as u64;

/// The sum of two figures.
pub fn sum(one: u64, other: u64) -> u64 {
    one.saturating_add(other).min(FIGURE_MAX)
}

/// What figures need to know of an entry.
#[derive(Debug, Clone)]
pub struct TalliedEntry {
    pub place: RecordPlace,
    pub account: AccountId,
    pub number: u64,
    pub policy: PolicyId,
    pub policy_name: PolicyName,
    pub kind: EntryKind,
    pub units: u64,
    pub provisional: Option<Provisional>,
    pub would_deny: bool,
    /// The instant in whose windows its units count.
    pub counted_at: DateTime<Utc>,
    /// Whether it left a limit with nothing.
    pub is_at_limit: bool,
    /// When the account's entry before it was appended.
    pub before_at: Option<DateTime<Utc>>,
}

/// What is known of a subject's grants of a local day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubjectDay {
    pub has_grant: bool,
    pub was_at_limit: bool,
}

impl SubjectDay {
    /// Notes one more grant.
    pub fn note(&mut self, is_at_limit: bool) {
        self.has_grant = true;
        self.was_at_limit |= is_at_limit;
    }
}

/// Which row figures belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureDay {
    pub policy: PolicyId,
    /// The local day on which the entries count.
    pub counted_on: NaiveDate,
    /// The local day on which they got their positions.
    pub recorded_on: NaiveDate,
}

/// A policy's local day whose figures changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenDay {
    pub policy: PolicyId,
    pub counted_on: NaiveDate,
    /// When the day ends.
    pub ends_at: DateTime<Utc>,
}

/// FigureSums, by their rows.
#[derive(Debug, Default)]
pub struct FigureSums(pub BTreeMap<FigureDay, DayFigures>);

impl FigureSums {
    /// Adds what an entry means for its day. `subject` is what is known of its account's grants
    /// that count on this day and come before it in the record.
    pub fn add(&mut self, day: FigureDay, entry: &TalliedEntry, subject: &mut SubjectDay) {
        let added = added(entry, *subject);
        if let EntryKind::Grant { .. } = entry.kind {
            subject.note(entry.is_at_limit);
        }
        self.0.entry(day).or_default().add(&added);
    }
}

fn added(entry: &TalliedEntry, subject: SubjectDay) -> DayFigures {
    let none = DayFigures::default();
    let units = entry.units;
    match entry.kind {
        EntryKind::Grant { .. } => DayFigures {
            grants: 1,
            units,
            provisional_grants: entry.provisional.is_some().into(),
            over_grants: (entry.provisional == Some(Provisional::Over)).into(),
            would_deny_grants: entry.would_deny.into(),
            subjects: (!subject.has_grant).into(),
            subjects_at_limit: (entry.is_at_limit && !subject.was_at_limit).into(),
            ..none
        },
        EntryKind::Confirmation { .. } => none,
        EntryKind::Reversal { .. } => DayFigures {
            reversed_grants: 1,
            reversed_units: units,
            ..none
        },
        EntryKind::Lapse { .. } => DayFigures {
            lapsed_grants: 1,
            lapsed_units: units,
            ..none
        },
        EntryKind::Adjustment(Direction::Up) => DayFigures {
            adjustments: 1,
            adjusted_up_units: units,
            ..none
        },
        EntryKind::Adjustment(Direction::Down) => DayFigures {
            adjustments: 1,
            adjusted_down_units: units,
            ..none
        },
    }
}

/// What denied claims are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeniedOn {
    pub policy: PolicyId,
    /// The local day.
    pub date: NaiveDate,
}

/// How many claims were denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DenialCount {
    pub denied: u64,
    /// Those of them that might have been kept as the first of their window, but came too fast.
    pub not_kept: u64,
}

/// The first denial of an account in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstDenial {
    pub account: AccountId,
    pub denied_at: DateTime<Utc>,
    pub units: u64,
    pub policy_version: u32,
    /// The window that lacked room: the first such one.
    pub window: (Per, Window),
    /// The policy's limits, as the denial told them.
    pub totals: Vec<Total>,
}

impl FirstDenial {
    /// Of a claim for `units` that these totals have no room for; `None` where all have.
    pub fn of(
        account: AccountId,
        units: Units,
        policy_version: u32,
        totals: &[Total],
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let full = totals.iter().find(|total| !total.fits(units))?;
        let denied_at = denied_at(totals, now);
        Some(Self {
            account,
            denied_at,
            units: units.get(),
            policy_version,
            window: full.denied_in(denied_at),
            totals: totals.to_vec(),
        })
    }
}

/// The instant of a denial that is noted at `now`: a window may have ended since.
pub fn denied_at(totals: &[Total], now: DateTime<Utc>) -> DateTime<Utc> {
    let windows = totals.iter().filter_map(Total::window);
    let ends = windows.map(|window| window.end);
    let last = ends.min().map(|end| end - TimeDelta::microseconds(1));
    last.map_or(now, |last| now.min(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_is_higher_than_the_stores_can_have() {
        let most = DayFigures {
            units: FIGURE_MAX - 1,
            adjusted_up_units: FIGURE_MAX,
            ..DayFigures::default()
        };
        let mut figures = most;
        figures.add(&most);
        assert_eq!(figures.units, FIGURE_MAX);
        assert_eq!(figures.net_units().cast_unsigned(), FIGURE_MAX);
    }
}
