//! Whether the reason for which a correction is refused is true.

use chrono::{DateTime, Utc};
use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::policy::Durability;
use perdiem::domain::refusal::CorrectionRefusal;
use perdiem::domain::top_up::TOP_UPS_MOST;
use perdiem::domain::work::{Task, Work};

use super::grants::units_left;
use super::{Broken, promise, top_ups};

/// Checks a refusal by all entries that the ledger has or has lost. No clock is later than `latest`.
pub fn check_refusal(
    refusal: &CorrectionRefusal,
    work: &Work,
    entries: &[Entry],
    latest: DateTime<Utc>,
) -> Result<(), Broken> {
    // 1. Top-ups.
    let top_up = match (&work.task, refusal) {
        (Task::TopUp(until), CorrectionRefusal::EndHasPassed) => Some(*until <= latest),
        (Task::TopUp(_), CorrectionRefusal::NoTopUps) => {
            Some(work.policy.rule.durability == Durability::Counted)
        }
        (Task::TopUp(_), CorrectionRefusal::TooManyTopUps) => {
            let given =
                |entry: &&Entry| entry.kind == EntryKind::TopUp && entry.account == work.account;
            Some(entries.iter().filter(given).count() >= TOP_UPS_MOST)
        }
        (Task::EndTopUp(of), CorrectionRefusal::NothingLeft) => {
            Some(top_ups::was_empty(entries, *of, latest))
        }
        _ => None,
    };
    if let Some(is_true) = top_up {
        return promise(is_true, || {
            format!("a top-up is entered, or the reason is true: {refusal:?}")
        });
    }
    // 2. What else admins enter is checked by `by_hand`.
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
        CorrectionRefusal::EndHasPassed
        | CorrectionRefusal::NoTopUps
        | CorrectionRefusal::TooManyTopUps
        | CorrectionRefusal::NothingLeft
        | CorrectionRefusal::TooManyParts
        | CorrectionRefusal::ErasedInParts
        | CorrectionRefusal::NotUsed(_)
        | CorrectionRefusal::NothingUsed(_)
        | CorrectionRefusal::NoSuchLimit(_) => false,
    };
    promise(is_true, || {
        format!("a correction is made, or the reason is true: {refusal:?}")
    })
}
