//! The checks of what admins enter by hand: the instant at which an adjustment counts, and why an
//! adjustment or a reset is refused.

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::limit::per::Per;
use perdiem::domain::refusal::CorrectionRefusal;
use perdiem::domain::work::{Task, Work};

use super::sums::{fewest_used, used_by_limit};
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

/// Whether a refusal is about what is used.
pub fn is_of_usage(refusal: &CorrectionRefusal) -> bool {
    use CorrectionRefusal::{NoSuchLimit, NotUsed, NothingUsed};
    matches!(refusal, NotUsed(_) | NothingUsed(_) | NoSuchLimit(_))
}

/// The usage since something was sent.
pub struct Moved<'a> {
    pub course: Course,
    pub entries: &'a [Entry],
    /// How many entries the ledger had when it was sent.
    pub from: usize,
    /// When it was sent, and now.
    pub moments: [DateTime<Utc>; 2],
}

impl Moved<'_> {
    pub fn check_refusal(
        &self,
        work: &Work,
        refusal: &CorrectionRefusal,
        version: u32,
    ) -> Result<(), Broken> {
        match (&work.task, refusal) {
            (Task::Adjust(_, counted_at), CorrectionRefusal::NotUsed(_)) => {
                self.check_not_used(work, *counted_at, version)
            }
            (Task::Reset(per), CorrectionRefusal::NothingUsed(told)) if per == told => {
                self.check_nothing_used(work, *per, version)
            }
            (Task::Reset(per), CorrectionRefusal::NoSuchLimit(told)) => {
                let has_limit = |per: &Per| !self.used_by(work, Some(*per), version).is_empty();
                promise(*per == Some(*told) && !has_limit(told), || {
                    "a limit that a version has can be reset: it was refused".to_owned()
                })
            }
            _ => Err(format!("{:?} is refused with {refusal:?}", work.task)),
        }
    }

    /// An adjustment that takes units off is refused only if a limit of the version had fewer: where it
    /// counts, or else at some moment since it was sent.
    fn check_not_used(
        &self,
        work: &Work,
        counted_at: Option<DateTime<Utc>>,
        version: u32,
    ) -> Result<(), Broken> {
        let instants = counted_at.map_or(self.moments.to_vec(), |at| vec![at]);
        let [_, now] = self.moments;
        let mut lengths = self.from..=self.entries.len();
        let lacked = lengths.any(|length| {
            let so_far = &self.entries[..length];
            let fewest = fewest_used(self.course, so_far, work.account, version, &instants, now);
            fewest < work.units.get()
        });
        promise(lacked, || {
            "what is used can be taken off: it was refused".to_owned()
        })
    }

    /// A reset is refused only if nothing was used of its limits at some moment since it was sent.
    fn check_nothing_used(
        &self,
        work: &Work,
        per: Option<Per>,
        version: u32,
    ) -> Result<(), Broken> {
        let mut moments = self.used_by(work, per, version).into_iter();
        let was_unused = moments.any(|used| used.iter().all(|used| *used == 0));
        promise(was_unused, || {
            "what is used can be reset: it was refused".to_owned()
        })
    }

    /// The usage of the limits with a name, or of all, at each moment. Empty if there is no such limit.
    fn used_by(&self, work: &Work, per: Option<Per>, version: u32) -> Vec<Vec<u64>> {
        let mut moments = Vec::new();
        for length in self.from..=self.entries.len() {
            for at in self.moments {
                let so_far = &self.entries[..length];
                let used = used_by_limit(self.course, so_far, work.account, version, at);
                let named = used
                    .into_iter()
                    .filter(|(limit, _)| per.is_none_or(|per| per.to_string() == *limit));
                moments.push(named.map(|(_, used)| used).collect());
            }
        }
        moments.retain(|used: &Vec<u64>| !used.is_empty());
        moments
    }
}
