//! The checks of corrections: each grant is confirmed and closed at most once and in time, gives back no
//! more than it has, and equals the answers to clients.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Breach;
use super::history::{Correction, History};
use super::stores::{Entry, Kind, Stores};

/// The state of an account's grants, updated with each entry.
#[derive(Default)]
pub struct Holds<'a> {
    grants: BTreeMap<Uuid, &'a Entry>,
    closed: BTreeSet<Uuid>,
    /// The units of each grant that partial reversals gave back.
    returned: BTreeMap<Uuid, u64>,
    /// For each hold that is neither confirmed nor reversed, when it lapses.
    open: BTreeMap<Uuid, DateTime<Utc>>,
    /// The instant of the last entry.
    last_at: Option<DateTime<Utc>>,
}

impl<'a> Holds<'a> {
    /// Checks that an entry may follow the entries before it.
    pub fn follow(&mut self, entry: &'a Entry, breaches: &mut Vec<Breach>) {
        let until = entry.of.and_then(|of| match entry.kind {
            Kind::PartialReversal => self.open.get(&of).copied(),
            _ => self.open.remove(&of),
        });
        let is_in_time = match entry.kind {
            Kind::Grant => {
                self.grants.insert(entry.id, entry);
                let open = entry.held_until.map(|until| (entry.id, until));
                self.open.extend(open);
                true
            }
            Kind::Confirmation => until.is_some_and(|until| entry.at < until),
            // A lapse is at the end of its hold, whenever it is appended.
            Kind::Lapse => until
                .is_some_and(|until| entry.at == self.last_at.map_or(until, |at| until.max(at))),
            Kind::Reversal | Kind::PartialReversal => until.is_none_or(|until| entry.at < until),
            Kind::AdjustmentUp
            | Kind::AdjustmentDown
            | Kind::Reset
            | Kind::Calendar
            | Kind::TopUp
            | Kind::TopUpReversal => true,
        };
        // `top_ups` checks what ends a top-up.
        if let Some(of) = entry.of.filter(|_| entry.kind != Kind::TopUpReversal) {
            let returned = self.returned.entry(of).or_default();
            let left = self.grants.get(&of).map(|grant| grant.units - *returned);
            let is_right = match entry.kind {
                Kind::PartialReversal => {
                    *returned += entry.units;
                    left.is_some_and(|left| entry.units < left) && !self.closed.contains(&of)
                }
                Kind::Confirmation => left == Some(entry.units),
                _ => left == Some(entry.units) && self.closed.insert(of),
            };
            if !is_right {
                breaches.push(Breach::NotItsGrant { entry: entry.id });
            }
        }
        self.last_at = Some(entry.at);
        if !is_in_time || !self.is_next(entry) {
            breaches.push(Breach::NotInTime { entry: entry.id });
        }
    }

    /// Whether a line contains the end of the first open hold, and no open hold ended before the
    /// line.
    fn is_next(&self, entry: &Entry) -> bool {
        let Some(first) = self.open.values().min() else {
            return true;
        };
        // Redis counted this grant without those holds. The entry has the grant's own instant.
        let is_decided = entry.kind != Kind::Lapse && entry.provisional.is_none();
        let is_told = entry.lapses_at.is_some_and(|told| told <= *first);
        is_told && (!is_decided || entry.at < *first)
    }
}

/// Each answered correction is in the ledger. Each correction in the ledger was answered as new
/// once. A history without corrections contains no facts about them, and none about partial reversals.
pub fn check_told(history: &History, stores: &Stores) -> Vec<Breach> {
    // 1. Find each correction in the ledger and in the answers, by its kind and its grant.
    let name = |entry: &Entry| (entry.kind, entry.of.unwrap_or(entry.id));
    let corrections = stores
        .entries
        .iter()
        .filter(|entry| ![Kind::Grant, Kind::PartialReversal].contains(&entry.kind));
    let stored: BTreeMap<(Kind, Uuid), &Entry> =
        corrections.map(|entry| (name(entry), entry)).collect();
    let mut told: BTreeMap<(Kind, Uuid), Vec<_>> = BTreeMap::new();
    for correction in &history.corrections {
        let name = (correction.kind, correction.of);
        told.entry(name).or_default().push(correction);
    }
    // 2. The ledger has no correction that was not answered. What a request entered in a lost part, and was told, a
    //    later attempt of it can have entered again.
    let mut breaches = Vec::new();
    let is_again = |told: &Correction, entry: &Entry| {
        let is_same = told.kind == entry.kind && Some(&told.reason) == entry.reason.as_ref();
        is_same && may_be_lost(history, told)
    };
    let was_lost = |entry: &Entry| history.corrections.iter().any(|told| is_again(told, entry));
    let is_foreign = |(name, entry): &(&(Kind, Uuid), &&Entry)| {
        name.0 != Kind::Lapse && !told.contains_key(name) && !was_lost(entry)
    };
    if !history.corrections.is_empty() {
        let foreign = stored.iter().filter(is_foreign);
        breaches.extend(foreign.map(|(_, entry)| Breach::Foreign {
            entry: entry.id,
            wish: None,
        }));
    }
    // 3. Each answered correction is in the ledger, was new once, and was answered in one way. A copy that
    //    replaced the ledger may lack it; then it can be new again.
    for ((kind, of), told) in told {
        let excused = told.iter().filter(|one| may_be_lost(history, one));
        let excused = excused.count();
        if excused < told.len() && !stored.contains_key(&(kind, of)) {
            breaches.push(Breach::CorrectionLost { kind, of });
        }
        let news = told.iter().filter(|one| one.is_new).count();
        // Nobody receives an answer "new" for a lapse.
        let expected = usize::from(kind != Kind::Lapse);
        let is_right = if excused == 0 {
            news == expected
        } else {
            news <= expected + excused
        };
        if !is_right || told.iter().any(|one| one.answer != told[0].answer) {
            breaches.push(Breach::CorrectionDiffers { kind, of });
        }
    }
    breaches
}

fn may_be_lost(history: &History, correction: &Correction) -> bool {
    history.is_in_lost_part(correction.began, correction.ended)
}
