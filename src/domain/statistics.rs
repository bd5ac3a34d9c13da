//! The figures of the local days of a policy.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::claim::Units;
use super::grant::{Direction, EntryKind, Provisional};
use super::identity::AccountId;
use super::limit::per::Per;
use super::limit::total::Total;
use super::policy::{Policy, PolicyId};
use super::record::RecordPlace;
use super::refusal::DeniedClaim;
use super::window::Window;

/// Defines the figures, with their names in the tables and in the HTTP contract.
macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident,)+) => {
        /// The figures of a local day of a policy, or an addition to them.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct DayFigures {
            $($(#[$doc])* pub $figure: u64,)+
        }

        impl DayFigures {
            /// The figures that are not 0, with their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let all = [$((stringify!($figure), self.$figure)),+];
                all.into_iter().filter(|(_, figure)| *figure > 0)
            }

            /// The figure with a name; `None` if no figure has it.
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
    units,
    reversed_grants,
    reversed_units,
    lapsed_grants,
    lapsed_units,
    adjustments,
    adjusted_up_units,
    adjusted_down_units,
    /// Resets of a limit, or of all limits.
    resets,
    /// Provisional grants.
    provisional_grants,
    /// Provisional grants that went over a limit.
    over_grants,
    /// Grants that a policy that enforces would have denied.
    would_deny_grants,
    /// Subjects with a grant.
    subjects,
    /// Subjects with a grant that left no units in a limit.
    subjects_at_limit,
    denied_claims,
    /// Denials that were not kept as the first of their window, because too many came at once.
    denials_not_kept,
}

impl DayFigures {
    /// The units that were used on the day, also if a limit was reset; at most [`FIGURE_MAX`].
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

/// The figures that are not made from entries, but from denials.
pub const FIGURES_OF_DENIALS: [&str; 2] = ["denied_claims", "denials_not_kept"];

/// The figures that are numbers of subjects. They cannot be made again for sure: an erasure moves the
/// entries of an account in parts.
pub const FIGURES_OF_SUBJECTS: [&str; 2] = ["subjects", "subjects_at_limit"];

/// The largest figure that the stores can have. A larger sum becomes this figure.
pub const FIGURE_MAX: u64 = i64::MAX as u64;

/// The sum of two figures.
pub fn sum(one: u64, other: u64) -> u64 {
    one.saturating_add(other).min(FIGURE_MAX)
}

/// The part of an entry that figures need.
#[derive(Debug, Clone)]
pub struct TalliedEntry {
    pub place: RecordPlace,
    pub account: AccountId,
    pub number: u64,
    pub policy: PolicyId,
    pub kind: EntryKind,
    pub units: u64,
    pub provisional: Option<Provisional>,
    pub would_deny: bool,
    /// The instant in whose windows the units count.
    pub counted_at: DateTime<Utc>,
    /// Whether the entry left no units in a limit.
    pub is_at_limit: bool,
}

/// What is known of the grants of a subject on a local day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubjectDay {
    pub has_grant: bool,
    pub was_at_limit: bool,
}

impl SubjectDay {
    /// Notes a grant.
    pub fn note(&mut self, is_at_limit: bool) {
        self.has_grant = true;
        self.was_at_limit |= is_at_limit;
    }
}

/// The row of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureDay {
    pub policy: PolicyId,
    pub counted_on: NaiveDate,
    /// The local day on which the entries got their positions.
    pub recorded_on: NaiveDate,
}

/// A local day of a policy with changed figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenDay {
    pub policy: PolicyId,
    pub counted_on: NaiveDate,
    pub ends_at: DateTime<Utc>,
}

/// Sums of figures, by their rows.
#[derive(Debug, Default)]
pub struct FigureSums(pub BTreeMap<FigureDay, DayFigures>);

impl FigureSums {
    /// Adds an entry to its day. `subject` is what is known of the earlier grants, in the order of
    /// the record, of its account on this day.
    pub fn add(&mut self, day: FigureDay, entry: &TalliedEntry, subject: &mut SubjectDay) {
        let added = added(entry, *subject);
        if let EntryKind::Grant { .. } = entry.kind {
            subject.note(entry.is_at_limit);
        }
        self.0.entry(day).or_default().add(&added);
    }

    /// Adds other sums.
    pub fn extend(&mut self, others: Self) {
        for (day, figures) in others.0 {
            self.0.entry(day).or_default().add(&figures);
        }
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
        EntryKind::Confirmation { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp
        | EntryKind::TopUpReversal { .. } => none,
        EntryKind::PartialReversal { .. } => DayFigures {
            reversed_units: units,
            ..none
        },
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
        // The units that were granted stay granted.
        EntryKind::Reset { .. } => DayFigures { resets: 1, ..none },
    }
}

/// The row of a denied claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeniedOn {
    pub policy: PolicyId,
    pub date: NaiveDate,
}

/// Counts of denied claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DenialCount {
    pub denied: u64,
    /// Denials that were not kept as the first of their window, because too many came at once.
    pub not_kept: u64,
}

/// The first denial of an account in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstDenial {
    pub policy: PolicyId,
    pub account: AccountId,
    pub denied_at: DateTime<Utc>,
    pub units: u64,
    pub policy_version: u32,
    /// The first window without room.
    pub window: (Per, Window),
    /// The limits of the policy, as the client saw them.
    pub totals: Vec<Total>,
}

impl FirstDenial {
    /// The denial of a claim for `units`; `None` if all limits of the subject have room.
    pub fn of(
        policy: &Policy,
        account: AccountId,
        units: Units,
        denied: &DeniedClaim,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let (full, _) = denied.lacking().next()?;
        let totals = &denied.totals;
        let denied_at = denied_at(totals, now);
        Some(Self {
            policy: policy.id,
            account,
            denied_at,
            units: units.get(),
            policy_version: policy.version,
            window: full.denied_in(denied_at),
            totals: totals.to_vec(),
        })
    }
}

/// The instant of a denial that is noted at `now`, before the end of every window: a window may
/// have ended since the decision.
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
