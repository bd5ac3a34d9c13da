//! What is left of a grant, and how long it is held.

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::EntryId;

/// The units of a grant that no entry gave back.
pub fn units_left(grant: &Entry, entries: &[Entry]) -> u64 {
    let gives_back = |entry: &&Entry| {
        let is_part = entry.kind == EntryKind::PartialReversal { of: grant.id };
        is_part || closes(entry.kind) == Some(grant.id)
    };
    let given_back = entries.iter().filter(gives_back);
    let given_back = given_back.map(|entry| entry.units.get()).sum();
    grant.units.get().saturating_sub(given_back)
}

/// When an open hold lapses.
pub fn open_until(grant: &Entry, entries: &[Entry]) -> Option<DateTime<Utc>> {
    let is_ended = entries.iter().any(|other| match other.kind {
        EntryKind::Confirmation { of } | EntryKind::Reversal { of } | EntryKind::Lapse { of } => {
            of == grant.id
        }
        EntryKind::Grant { .. }
        | EntryKind::PartialReversal { .. }
        | EntryKind::Adjustment(_)
        | EntryKind::Reset { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp
        | EntryKind::TopUpReversal { .. } => false,
    });
    grant.held_until().filter(|_| !is_ended)
}

/// The grant that an entry closes: its last units are given back.
pub fn closes(kind: EntryKind) -> Option<EntryId> {
    match kind {
        EntryKind::Reversal { of } | EntryKind::Lapse { of } | EntryKind::TopUpReversal { of } => {
            Some(of)
        }
        EntryKind::Grant { .. }
        | EntryKind::Confirmation { .. }
        | EntryKind::PartialReversal { .. }
        | EntryKind::Adjustment(_)
        | EntryKind::Reset { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp => None,
    }
}
