//! Whether the reason for which a correction is refused is true.

use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::refusal::CorrectionRefusal;
use perdiem::domain::work::{Task, Work};

use super::sums::units_left;
use super::{Broken, promise};

/// Checks a refusal by all entries that the ledger has or has lost.
pub fn check_refusal(
    refusal: &CorrectionRefusal,
    work: &Work,
    entries: &[Entry],
) -> Result<(), Broken> {
    // What admins enter is checked by `by_hand`.
    let (Task::Reverse(grant, asked) | Task::Confirm(grant, asked)) = &work.task else {
        return Err("only a correction is not corrected".to_owned());
    };
    let of = grant.id;
    let has = |kind, is_so: &dyn Fn(&Entry) -> bool| {
        let mut named = entries.iter().filter(|entry| entry.kind == kind);
        named.any(is_so)
    };
    let is_true = match refusal {
        CorrectionRefusal::NotAHold => grant.held_until().is_none(),
        CorrectionRefusal::Reversed(at) => {
            has(EntryKind::Reversal { of }, &|entry| entry.line.at == *at)
        }
        CorrectionRefusal::Lapsed(at) | CorrectionRefusal::GivenBack(at) => {
            has(EntryKind::Lapse { of }, &|entry| entry.line.at == *at)
        }
        CorrectionRefusal::FewerLeft(left) => {
            let is_fewer = asked.is_some_and(|asked| asked.get() > *left);
            is_fewer && *left >= units_left(grant, entries)
        }
        CorrectionRefusal::ConfirmedOther(units) => {
            let is_other = asked.is_some_and(|asked| asked != *units);
            let confirmation = EntryKind::Confirmation { of };
            is_other && has(confirmation, &|entry| entry.units == *units)
        }
        CorrectionRefusal::TooManyParts
        | CorrectionRefusal::ErasedInParts
        | CorrectionRefusal::NotUsed(_)
        | CorrectionRefusal::NothingUsed(_)
        | CorrectionRefusal::NoSuchLimit(_) => false,
    };
    promise(is_true, || {
        format!("a correction is made, or the reason is true: {refusal:?}")
    })
}
