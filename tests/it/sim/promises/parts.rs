//! The checks of what is given back of a grant: all at once, in parts, or as the rest of a hold of
//! which some units were confirmed.

use perdiem::domain::grant::{Entry, EntryKind};

use super::grants::{open_until, units_left};
use super::{Broken, nonce, promise};

/// Checks an entry that names a grant, after the entries before it. A part leaves units. What closes a
/// grant gives back all that are left, and a confirmation confirms them. An open hold is given back in
/// time.
pub fn check(entry: &Entry, grant: &Entry, before: &[Entry]) -> Result<(), Broken> {
    let left = units_left(grant, before);
    let units = entry.units.get();
    let adds_up = match entry.kind {
        EntryKind::PartialReversal { .. } => units < left,
        _ => units == left,
    };
    promise(adds_up, || {
        format!("what is given back of a grant adds up: {units} of {left} that are left")
    })?;
    let is_lapse = matches!(entry.kind, EntryKind::Lapse { .. });
    let until = open_until(grant, before).filter(|_| !is_lapse);
    promise(until.is_none_or(|until| entry.line.at < until), || {
        "what is left of a hold lapses at its end".to_owned()
    })?;
    let own = before.iter().filter(|other| other.account == entry.account);
    let last = own.max_by_key(|other| other.line.number);
    let waits = last.is_some_and(|last| is_keyless_part(last) && !is_rest(last, entry));
    promise(!waits, || {
        "the rest of a hold is given back with its confirmation".to_owned()
    })
}

/// Whether an entry gives back what a confirmation does not confirm. One request makes both.
pub fn is_rest(entry: &Entry, confirmation: &Entry) -> bool {
    let confirmed = match confirmation.kind {
        EntryKind::Confirmation { of } => Some(of),
        _ => None,
    };
    is_keyless_part(entry)
        && entry.kind.of() == confirmed
        && entry.line.number + 1 == confirmation.line.number
        && nonce(entry) == nonce(confirmation)
}

/// Only the rest of a hold is given back without a key.
fn is_keyless_part(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::PartialReversal { .. }) && entry.key.is_none()
}
