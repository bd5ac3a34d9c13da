//! Top-ups: units that an account has beside its windows, until an end.
//!
//! A claim takes units from its windows first. What they have no room for comes from the top-ups, from the one
//! that ends first. These units count in no window. A reversal or a lapse gives back in the opposite order, to
//! the top-up that each unit came from; what returns after the end of its top-up is gone.
//!
//! Each line keeps all top-ups until their ends, and says which units of its entry came from them or returned
//! to them. So counters know them, guards compare them, and nothing else needs to be asked.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::Units;
use super::identity::EntryId;

/// The most top-ups that an account has at the same time: every line of it has all of them.
pub const TOP_UPS_MOST: usize = 16;

/// A top-up on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopUp {
    /// The id of its entry.
    pub id: EntryId,
    /// The units that were given.
    pub units: u64,
    /// The units that are left.
    pub left: u64,
    pub ends_at: DateTime<Utc>,
    /// The units that the entry of the line took from it, or gave back to it.
    pub moved: u64,
}

impl TopUp {
    /// A top-up of which nothing was used yet.
    pub fn new(id: EntryId, units: Units, ends_at: DateTime<Utc>) -> Self {
        Self {
            id,
            units: units.get(),
            left: units.get(),
            ends_at,
            moved: 0,
        }
    }
}

/// The top-ups on a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopUps {
    /// The units of the entry that count in no window: they came from top-ups or returned to them, also to some
    /// that have ended.
    pub aside: u64,
    /// In the order of their ends.
    pub each: Vec<TopUp>,
}

/// Units that came from a top-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    pub top_up: EntryId,
    pub units: u64,
}

impl TopUps {
    /// The top-ups that have not ended at a later instant, before another entry.
    pub fn at(&self, at: DateTime<Utc>) -> Self {
        let goes_on = |top_up: &&TopUp| at < top_up.ends_at;
        let each = self.each.iter().filter(goes_on).map(|top_up| TopUp {
            moved: 0,
            ..*top_up
        });
        Self {
            aside: 0,
            each: each.collect(),
        }
    }

    /// As a line keeps them.
    pub fn on_line(self) -> Option<Arc<Self>> {
        let is_empty = self.aside == 0 && self.each.is_empty();
        (!is_empty).then(|| Arc::new(self))
    }

    /// The units that are left.
    pub fn left(&self) -> u64 {
        let left = self.each.iter().map(|top_up| top_up.left);
        left.fold(0, u64::saturating_add)
    }

    /// The units that were given.
    pub fn given(&self) -> u64 {
        let given = self.each.iter().map(|top_up| top_up.units);
        given.fold(0, u64::saturating_add)
    }

    /// The first end.
    pub fn ends_at(&self) -> Option<DateTime<Utc>> {
        self.each.first().map(|top_up| top_up.ends_at)
    }

    /// Takes units, at most as many as are left.
    pub fn draw(&mut self, units: u64) {
        for top_up in &mut self.each {
            top_up.moved = top_up.left.min(units - self.aside);
            top_up.left -= top_up.moved;
            self.aside += top_up.moved;
        }
    }

    /// Takes units from one top-up, if it has them.
    pub fn take(&mut self, draw: Draw) {
        let mut each = self.each.iter_mut();
        let has_units = |it: &&mut TopUp| it.id == draw.top_up && draw.units <= it.left;
        if let Some(top_up) = each.find(has_units) {
            top_up.left -= draw.units;
            top_up.moved += draw.units;
            self.aside += draw.units;
        }
    }

    /// Gives units back to the top-ups from which they came.
    pub fn give_back(&mut self, draws: impl IntoIterator<Item = Draw>) {
        for draw in draws {
            self.aside += draw.units;
            if let Some(top_up) = self.each.iter_mut().find(|it| it.id == draw.top_up) {
                top_up.left = top_up.left.saturating_add(draw.units);
                top_up.moved += draw.units;
            }
        }
    }

    /// Adds a top-up to those that end before it or at the same instant.
    pub fn add(&mut self, top_up: TopUp) {
        let place = self.each.partition_point(|it| it.ends_at <= top_up.ends_at);
        self.each.insert(place, top_up);
    }

    /// Takes a top-up away. Returns the units that it had left; `None` if there is none with this id.
    pub fn remove(&mut self, id: EntryId) -> Option<u64> {
        let place = self.each.iter().position(|top_up| top_up.id == id)?;
        Some(self.each.remove(place).left)
    }

    /// What the entry of the line took, in the order in which it was taken.
    pub fn draws(&self) -> impl DoubleEndedIterator<Item = Draw> {
        let moved = self.each.iter().filter(|top_up| top_up.moved > 0);
        moved.map(|top_up| Draw {
            top_up: top_up.id,
            units: top_up.moved,
        })
    }
}

/// Units of a grant that return to where they came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    pub grant: EntryId,
    pub units: Units,
    /// The units of them that came from top-ups.
    pub draws: Vec<Draw>,
}

impl Returned {
    /// Units of a grant, after others of it have returned. `top_ups` are those on the grant's line.
    pub fn new(grant: EntryId, top_ups: Option<&TopUps>, before: u64, units: Units) -> Self {
        Self {
            grant,
            units,
            draws: last_drawn(top_ups, before, units),
        }
    }

    /// The units that return to windows.
    pub fn own_units(&self) -> u64 {
        let drawn: u64 = self.draws.iter().map(|draw| draw.units).sum();
        self.units.get() - drawn
    }
}

/// The units that were drawn last, without those that have returned before.
fn last_drawn(top_ups: Option<&TopUps>, returned: u64, units: Units) -> Vec<Draw> {
    let mut before = returned;
    let mut left = units.get();
    let mut draws = Vec::new();
    for draw in top_ups.into_iter().flat_map(TopUps::draws).rev() {
        let skipped = draw.units.min(before);
        before -= skipped;
        let units = (draw.units - skipped).min(left);
        left -= units;
        if units > 0 {
            draws.push(Draw { units, ..draw });
        }
    }
    draws
}
