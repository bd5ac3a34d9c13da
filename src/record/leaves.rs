//! Leaves with their positions.

use chrono::{DateTime, Utc};

use domain::record::Mark;
use domain::seal::leaf::StoredLeaf;
use ledger::LedgerError;

/// A leaf with its position.
#[derive(Debug)]
pub struct PlacedLeaf {
    pub position: u64,
    pub recorded_at: DateTime<Utc>,
    pub source: StoredLeaf,
}

impl PlacedLeaf {
    /// The line whose hash is in the log; `None` if its entry was dropped.
    pub fn line(&self) -> Option<String> {
        match &self.source {
            StoredLeaf::Whole(source) => Some(source.line(self.position, self.recorded_at)),
            StoredLeaf::Dropped(_) => None,
        }
    }

    /// The entry or change, for people.
    pub fn name(&self) -> String {
        match &self.source {
            StoredLeaf::Whole(source) => source.name(),
            StoredLeaf::Dropped(leaf) => format!("the dropped entry {}", leaf.place.id.0),
        }
    }
}

/// Adds positions to leaves. The leaves belong to some marks that follow another mark.
///
/// # Errors
/// [`LedgerError::Corrupt`] if there are more or fewer leaves than the marks say.
pub fn leaves_of(
    before: Mark,
    marks: &[Mark],
    leaves: Vec<StoredLeaf>,
) -> Result<Vec<PlacedLeaf>, LedgerError> {
    let mut leaves = leaves.into_iter().peekable();
    let mut in_order = Vec::with_capacity(leaves.len());
    let mut position = before.position;
    for mark in marks {
        while let Some(source) = leaves.next_if(|leaf| leaf.place() <= mark.place) {
            position += 1;
            in_order.push(PlacedLeaf {
                position,
                recorded_at: mark.recorded_at,
                source,
            });
        }
        if position != mark.position {
            let first = mark.after + 1;
            let last = mark.position;
            let wanted = mark.position - mark.after;
            let found = position - mark.after;
            return Err(LedgerError::Corrupt(format!(
                "position {first} (up to {last}): {wanted} entries and changes got positions \
                 there, but the ledger has {found}: some are gone, or were added"
            )));
        }
    }
    Ok(in_order)
}
