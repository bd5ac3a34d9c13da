//! The plain model of top-ups: where each single unit of a grant came from.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::grant::{Entry, EntryKind};
use crate::identity::EntryId;
use crate::top_up::TopUps;

/// Where a unit of a grant came from; `None`: from the windows.
type UnitSource = Option<EntryId>;

/// A top-up, and the units that it has left.
#[derive(Clone)]
struct PlainTopUp {
    id: EntryId,
    ends_at: DateTime<Utc>,
    units: u64,
    left: u64,
}

#[derive(Default, Clone)]
pub struct PlainTopUps {
    /// In the order in which they were given.
    given: Vec<PlainTopUp>,
    /// The units of each grant that were not given back, in the order in which they were taken.
    taken: HashMap<EntryId, Vec<UnitSource>>,
    /// Of each entry, the units that count in windows.
    pub own: Vec<u64>,
}

impl PlainTopUps {
    /// The units that are left at an instant.
    pub fn left(&self, at: DateTime<Utc>) -> u64 {
        let live = self.given.iter().filter(|top_up| at < top_up.ends_at);
        live.map(|top_up| top_up.left).sum()
    }

    /// The units that were given, of those that have not ended at an instant.
    pub fn most(&self, at: DateTime<Utc>) -> u64 {
        let live = self.given.iter().filter(|top_up| at < top_up.ends_at);
        live.map(|top_up| top_up.units).sum()
    }

    pub fn ends(&self) -> impl Iterator<Item = DateTime<Utc>> {
        self.given.iter().map(|top_up| top_up.ends_at)
    }

    fn draw(&mut self, at: DateTime<Utc>) -> UnitSource {
        let has_units = |it: &&mut PlainTopUp| at < it.ends_at && it.left > 0;
        let live = self.given.iter_mut().filter(has_units);
        let first = live.min_by_key(|top_up| top_up.ends_at)?;
        first.left -= 1;
        Some(first.id)
    }

    /// Follows the next entry. `room` is what the windows had left before it.
    pub fn meet(&mut self, entry: &Entry, room: u64) {
        let at = entry.line.at;
        let units = entry.units.get();
        let own = match entry.kind {
            EntryKind::Grant { .. } => {
                let draws = |unit| unit >= room && entry.provisional.is_none();
                let take = |unit| if draws(unit) { self.draw(at) } else { None };
                let sources: Vec<UnitSource> = (0..units).map(take).collect();
                let own = sources.iter().filter(|source| source.is_none()).count();
                self.taken.insert(entry.id, sources);
                own as u64
            }
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => {
                let mut own = 0;
                for _ in 0..units {
                    match self.taken.get_mut(&of).and_then(Vec::pop).unwrap() {
                        None => own += 1,
                        Some(id) => {
                            let mut given = self.given.iter_mut();
                            let top_up = given.find(|top_up| top_up.id == id);
                            top_up.into_iter().for_each(|top_up| top_up.left += 1);
                        }
                    }
                }
                own
            }
            EntryKind::TopUp => {
                let ends_at = entry.top_up().unwrap().ends_at;
                self.given.push(PlainTopUp {
                    id: entry.id,
                    ends_at,
                    units,
                    left: units,
                });
                units
            }
            EntryKind::TopUpReversal { of } => {
                self.given.retain(|top_up| top_up.id != of);
                units
            }
            EntryKind::Confirmation { .. }
            | EntryKind::Adjustment(_)
            | EntryKind::Reset { .. }
            | EntryKind::Calendar => units,
        };
        self.own.push(own);
    }

    /// Whether the line of the last entry tells the same.
    pub fn is_told_by(&self, entry: &Entry) -> bool {
        let none = TopUps::default();
        let told = entry.line.top_ups.as_deref().unwrap_or(&none);
        let live = self.given.iter().filter(|it| entry.line.at < it.ends_at);
        let mut live: Vec<(EntryId, u64)> = live.map(|it| (it.id, it.left)).collect();
        let each = told.each.iter().map(|it| (it.id, it.left));
        let mut each: Vec<(EntryId, u64)> = each.collect();
        live.sort_unstable_by_key(|(id, _)| id.0);
        each.sort_unstable_by_key(|(id, _)| id.0);
        let own = self.own.last().copied();
        live == each && own == Some(entry.units.get() - told.aside)
    }
}
