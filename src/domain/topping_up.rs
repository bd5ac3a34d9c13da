//! Top-ups are given and taken back.

use chrono::{DateTime, Utc};

use super::account::{Unknown, top_ups_at};
use super::claim::Units;
use super::correction::carry_on;
use super::grant::Line;
use super::identity::EntryId;
use super::past::Past;
use super::policy::{Durability, Policy};
use super::refusal::{CorrectionRefusal, Refusal};
use super::top_up::TOP_UPS_MOST;

/// The next line after an admin gave an account units beside its windows, and before their entry is on it.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`Refusal`] inside.
pub fn top_up(
    policy: &Policy,
    ends_at: DateTime<Utc>,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Result<Line, Refusal>, Unknown> {
    let line = carry_on(policy, last, past, now)?;
    let refusal = if ends_at <= line.at {
        CorrectionRefusal::EndHasPassed
    } else if policy.rule.durability == Durability::Counted {
        CorrectionRefusal::NoTopUps
    } else if top_ups_at(last, line.at).each.len() >= TOP_UPS_MOST {
        CorrectionRefusal::TooManyTopUps
    } else {
        return Ok(Ok(line));
    };
    Ok(Err(refusal.into()))
}

/// The next line after what was left of a top-up is taken back, and the units that were left.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`Refusal`] inside.
pub fn end_top_up(
    policy: &Policy,
    top_up: EntryId,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Result<(Line, Units), Refusal>, Unknown> {
    let line = carry_on(policy, last, past, now)?;
    let mut top_ups = top_ups_at(last, line.at);
    let left = top_ups.remove(top_up);
    let left = left.and_then(|left| Units::new(left.into()).ok());
    let ended = |units| {
        let top_ups = top_ups.on_line();
        (Line { top_ups, ..line }, units)
    };
    Ok(left
        .map(ended)
        .ok_or_else(|| CorrectionRefusal::NothingLeft.into()))
}
