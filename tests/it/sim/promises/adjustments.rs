//! The checks of adjustments: the instant at which they count, and why one is refused.

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::work::{Task, Work};

use super::sums::fewest_used;
use super::{Broken, promise};
use crate::sim::courses::Course;

/// An adjustment counts at the instant that it names, or else at the instant of its line. It never counts
/// in the future.
pub fn check_place(entry: &Entry, work: &Work) -> Result<(), Broken> {
    let (Task::Adjust(direction, counted_at), EntryKind::Adjustment(entered)) =
        (&work.task, entry.kind)
    else {
        return Ok(());
    };
    let counts_at = entry.id.at();
    let is_in_place = counts_at == counted_at.unwrap_or(entry.line.at);
    promise(is_in_place && counts_at <= entry.line.at, || {
        format!("an adjustment counts at its instant: it counts at {counts_at}")
    })?;
    promise(entered == *direction && entry.units == work.units, || {
        "an adjustment enters what was asked".to_owned()
    })
}

/// An adjustment that takes units off is refused only if a limit of the version had fewer: where it
/// counts, or else at some moment since it was sent. `from` is how many entries the ledger had then.
pub fn check_refusal(
    course: Course,
    work: &Work,
    version: u32,
    entries: &[Entry],
    from: usize,
    [sent_at, now]: [DateTime<Utc>; 2],
) -> Result<(), Broken> {
    let Task::Adjust(_, counted_at) = work.task else {
        return Err("only an adjustment takes off units that are not used".to_owned());
    };
    let instants = counted_at.map_or(vec![sent_at, now], |at| vec![at]);
    let mut lengths = from..=entries.len();
    let lacked = lengths.any(|length| {
        let so_far = &entries[..length];
        let fewest = fewest_used(course, so_far, work.account, version, &instants, now);
        fewest < work.units.get()
    });
    promise(lacked, || {
        "what is used can be taken off: it was refused".to_owned()
    })
}
