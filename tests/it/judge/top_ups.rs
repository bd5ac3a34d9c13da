//! Top-ups: where each unit of a grant came from, counted one by one.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Breach;
use super::stores::{Entry, Kind};
use super::totals::{State, ToldTopUp};

/// The top-ups of an account, in the order in which they were given.
#[derive(Default)]
pub struct TopUps {
    given: Vec<ToldTopUp>,
    /// The top-up of each unit of a grant that is left and is not of the windows, in the order in which they were
    /// taken.
    drawn: BTreeMap<Uuid, Vec<Uuid>>,
}

impl TopUps {
    /// Follows an account's next entry, and compares its line.
    pub fn follow(&mut self, entry: &Entry, breaches: &mut Vec<Breach>) {
        let aside = match entry.kind {
            Kind::TopUp => {
                let told = entry.top_ups.each.iter().find(|it| it.id == entry.id);
                self.given.extend(told.map(|told| ToldTopUp {
                    units: entry.units,
                    left: entry.units,
                    ..told.clone()
                }));
                0
            }
            Kind::TopUpReversal => {
                let of = entry.of.unwrap_or_default();
                let is_whole = |it: &ToldTopUp| it.id == of && it.left == entry.units;
                if !self.given.iter().any(is_whole) {
                    breaches.push(Breach::NotItsTopUps { entry: entry.id });
                }
                self.given.retain(|it| it.id != of);
                0
            }
            Kind::Grant => self.take(entry),
            Kind::Reversal | Kind::PartialReversal | Kind::Lapse => self.give_back(entry),
            Kind::Confirmation
            | Kind::AdjustmentUp
            | Kind::AdjustmentDown
            | Kind::Reset
            | Kind::Calendar => 0,
        };
        let live = self.given.iter().filter(|it| entry.at < it.ends_at);
        let told = &entry.top_ups;
        let mut each: Vec<&ToldTopUp> = told.each.iter().collect();
        let mut live: Vec<&ToldTopUp> = live.collect();
        each.sort_by_key(|it| it.id);
        live.sort_by_key(|it| it.id);
        // A grant takes of its top-ups only what the windows have no room for.
        let is_full = entry.totals.iter().any(|total| match &total.state {
            State::Returns(limit, state) => state.left(limit) == 0,
            State::Window { .. } | State::Ever => total.used >= total.max,
        });
        let is_late = entry.kind != Kind::Grant || aside == 0 || is_full;
        if each != live || told.aside != aside || !is_late {
            breaches.push(Breach::NotItsTopUps { entry: entry.id });
        }
    }

    fn take(&mut self, grant: &Entry) -> u64 {
        let mut drawn = Vec::new();
        for _ in 0..grant.top_ups.aside {
            let has_units = |it: &&mut ToldTopUp| grant.at < it.ends_at && it.left > 0;
            let live = self.given.iter_mut().filter(has_units);
            let Some(first) = live.min_by_key(|it| it.ends_at) else {
                break;
            };
            first.left -= 1;
            drawn.push(first.id);
        }
        let count = drawn.len() as u64;
        self.drawn.insert(grant.id, drawn);
        count
    }

    /// The units that were taken last return first.
    fn give_back(&mut self, entry: &Entry) -> u64 {
        let Some(drawn) = entry.of.and_then(|of| self.drawn.get_mut(&of)) else {
            return entry.top_ups.aside;
        };
        let count = entry.units.min(drawn.len() as u64);
        for _ in 0..count {
            let id = drawn.pop();
            let mut given = self.given.iter_mut();
            let given = given.find(|it| Some(it.id) == id);
            given.into_iter().for_each(|it| it.left += 1);
        }
        count
    }
}
