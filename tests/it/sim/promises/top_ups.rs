//! The units that accounts have beside their windows, counted one by one.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::{AccountId, EntryId};

use super::grants::{open_until, units_left};
use super::{Broken, promise};

/// The top-ups of an account after some entries.
#[derive(Default)]
struct TopUpBook {
    /// The id, the end, and the units that are left.
    given: Vec<(EntryId, DateTime<Utc>, u64)>,
    /// The top-up from which each unit of a grant came that is not of the windows.
    drawn: BTreeMap<EntryId, Vec<EntryId>>,
}

impl TopUpBook {
    fn of(own: &[&Entry]) -> Self {
        let mut book = Self::default();
        own.iter().for_each(|entry| book.follow(entry));
        book
    }

    fn follow(&mut self, entry: &Entry) {
        let at = entry.line.at;
        match entry.kind {
            EntryKind::TopUp => {
                let given = entry.top_up().map(|it| it.ends_at);
                let units = entry.units.get();
                self.given
                    .extend(given.map(|until| (entry.id, until, units)));
            }
            EntryKind::TopUpReversal { of } => self.given.retain(|(id, ..)| *id != of),
            EntryKind::Grant { .. } => {
                let drawn = (0..entry.topped_up_units()).filter_map(|_| self.draw(at));
                let drawn = drawn.collect();
                self.drawn.insert(entry.id, drawn);
            }
            _ => {
                if let Some(grant) = entry.kind.gives_back() {
                    self.give_back(grant, entry.units.get());
                }
            }
        }
    }

    fn draw(&mut self, at: DateTime<Utc>) -> Option<EntryId> {
        let has_units = |(_, until, left): &&mut (_, DateTime<Utc>, u64)| at < *until && *left > 0;
        let live = self.given.iter_mut().filter(has_units);
        let (id, _, left) = live.min_by_key(|(_, until, _)| *until)?;
        *left -= 1;
        Some(*id)
    }

    /// The units that came last go back first.
    fn give_back(&mut self, grant: EntryId, units: u64) {
        for _ in 0..units {
            let Some(id) = self.drawn.get_mut(&grant).and_then(Vec::pop) else {
                return;
            };
            let mut given = self.given.iter_mut();
            given
                .find(|(it, ..)| *it == id)
                .into_iter()
                .for_each(|(.., left)| *left += 1);
        }
    }

    /// What is left of each top-up that goes on at an instant.
    fn left(&self, at: DateTime<Utc>) -> Vec<(EntryId, u64)> {
        let live = self.given.iter().filter(|(_, until, _)| at < *until);
        let mut left: Vec<_> = live.map(|(id, _, left)| (*id, *left)).collect();
        left.sort_unstable();
        left
    }
}

fn of_account(entries: &[Entry], account: AccountId) -> Vec<&Entry> {
    let own = entries.iter().filter(|entry| entry.account == account);
    let mut own: Vec<&Entry> = own.collect();
    own.sort_by_key(|entry| entry.line.number);
    own
}

/// The units that an account has beside its windows at an instant, after the lapses that are due.
pub fn left(entries: &[Entry], account: AccountId, at: DateTime<Utc>) -> u64 {
    let own = of_account(entries, account);
    let mut book = TopUpBook::of(&own);
    for grant in own {
        if open_until(grant, entries).is_some_and(|until| until <= at) {
            book.give_back(grant.id, units_left(grant, entries));
        }
    }
    book.left(at).into_iter().map(|(_, left)| left).sum()
}

/// Whether an account was ever given a top-up.
pub fn has_some(entries: &[Entry], account: AccountId) -> bool {
    let mut own = entries.iter().filter(|entry| entry.account == account);
    own.any(|entry| entry.kind == EntryKind::TopUp)
}

/// The units of a grant that its windows still have.
pub fn own_left(grant: &Entry, entries: &[Entry]) -> u64 {
    units_left(grant, entries).min(grant.own_units())
}

/// Whether nothing was left of a top-up after some of the entries, or its end has passed.
pub fn was_empty(entries: &[Entry], of: EntryId, latest: DateTime<Utc>) -> bool {
    let Some(given) = entries.iter().find(|entry| entry.id == of) else {
        return true;
    };
    let has_ended = given.top_up().is_none_or(|it| it.ends_at <= latest);
    let mut book = TopUpBook::default();
    let mut is_given = false;
    let was_used_up = of_account(entries, given.account).iter().any(|entry| {
        book.follow(entry);
        is_given |= entry.id == of;
        let left = book.left(entry.line.at);
        is_given && left.iter().all(|(id, left)| *id != of || *left == 0)
    });
    has_ended || was_used_up
}

/// What takes a top-up back has all units that are left of it.
pub fn check_end(entry: &Entry, of: EntryId, before: &[Entry]) -> Result<(), Broken> {
    let book = TopUpBook::of(&of_account(before, entry.account));
    let left = book.left(entry.line.at);
    promise(left.contains(&(of, entry.units.get())), || {
        format!(
            "a top-up is taken back whole: {} of {left:?}",
            entry.units.get()
        )
    })
}

/// A line has what is left of each top-up. A grant takes of them only what its windows have no room for.
pub fn check(entry: &Entry, with_it: &[Entry]) -> Result<(), Broken> {
    let at = entry.line.at;
    let book = TopUpBook::of(&of_account(with_it, entry.account));
    let told = entry.line.top_ups.iter().flat_map(|it| &it.each);
    let mut told: Vec<_> = told.map(|it| (it.id, it.left)).collect();
    told.sort_unstable();
    promise(told == book.left(at), || {
        format!(
            "a line has its top-ups: it says {told:?} and has {:?}",
            book.left(at)
        )
    })?;
    let is_full = entry.line.totals.iter().any(|total| total.remaining() == 0);
    let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
    let aside = entry.topped_up_units();
    promise(!is_grant || aside == 0 || is_full, || {
        "a top-up is used after the windows".to_owned()
    })?;
    let grant = entry.kind.gives_back();
    let grant = grant.and_then(|of| with_it.iter().find(|it| it.id == of));
    let expected = grant.map_or(aside, |grant| {
        let before = with_it[..with_it.len() - 1].to_vec();
        let drawn =
            |entries: &[Entry]| units_left(grant, entries).saturating_sub(grant.own_units());
        drawn(&before) - drawn(with_it)
    });
    promise(aside == expected, || {
        format!(
            "units return to where they came from: {aside} to top-ups, and {expected} came from them"
        )
    })
}
