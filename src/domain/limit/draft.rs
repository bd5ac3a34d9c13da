//! Limits as somebody wrote them.

use super::per::{Elapsed, Per};
use super::shape::{EXACT_MAX, Limit, LimitKind, OtherMax, PAIRS_MOST, Shape};
use crate::domain::claim::UNITS_MAX;
use crate::domain::fault::Fault;

/// The most units a second of a rate.
const RATE_MAX: u128 = 1_000_000;

/// The longest time in which a rate's bucket is refilled, in seconds: 4000 days.
const REFILL_MAX_SECONDS: u128 = 4000 * 86_400;

/// A limit as somebody wrote it.
#[derive(Debug, Clone, Default)]
pub struct LimitDraft {
    /// Any whole number.
    pub max: i128,
    /// Any text.
    pub per: String,
    /// Any text; none for a limit of the calendar.
    pub kind: Option<String>,
    /// Any text, for a sliding limit.
    pub step: Option<String>,
    /// Any whole number, for a rate.
    pub burst: Option<i128>,
}

/// Another `max` for a limit, as somebody wrote it.
#[derive(Debug, Clone)]
pub struct MaxDraft {
    /// Any whole number.
    pub max: i128,
    /// Any text.
    pub per: String,
}

/// Checks a policy's limits.
pub fn check_limits(drafts: &[LimitDraft], faults: &mut Vec<Fault>) -> Vec<Limit> {
    if drafts.is_empty() {
        faults.push(Fault::new("/limits", "name at least one limit"));
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut checking = Checking { index, faults };
        let max = checking.max(draft.max, 1);
        let Some(per) = checking.per(&draft.per) else {
            continue;
        };
        checking.only_one(per, limits.iter().map(Limit::per));
        if let Some(shape) = checking.shape(draft, max.unwrap_or(1), per) {
            limits.push(Limit::new(max.unwrap_or(1), shape));
        }
    }
    limits
}

/// Checks the other `max` of some limits.
pub fn check_maxima(drafts: &[MaxDraft], faults: &mut Vec<Fault>) -> Vec<OtherMax> {
    if drafts.is_empty() {
        faults.push(Fault::new("/limits", "name at least one limit"));
    }
    let mut maxima: Vec<OtherMax> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut checking = Checking { index, faults };
        let max = checking.max(draft.max, 0);
        if let Some(per) = checking.per(&draft.per) {
            checking.only_one(per, maxima.iter().map(|other| other.per));
            let max = max.unwrap_or(0);
            maxima.push(OtherMax { max, per });
        }
    }
    maxima
}

/// Why a limit of a shape cannot have a `max`; `None` where it can.
pub fn misfit(shape: Shape, max: u64) -> Option<String> {
    match shape {
        Shape::Sliding { per, step: None } if max > EXACT_MAX => Some(format!(
            "a sliding limit without a step has a max of {EXACT_MAX} at most: give the limit a \
             step, such as \"{}\"",
            finest_step(per)
        )),
        Shape::Rate { per, .. } if u128::from(max) > RATE_MAX * u128::from(per.seconds()) => {
            Some(format!(
                "a rate has at most {RATE_MAX} units a second: write a max of {} at most per {per}",
                RATE_MAX * u128::from(per.seconds())
            ))
        }
        _ => None,
    }
}

/// Steps that people use, in seconds.
const STEPS: [u32; 19] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200,
    86_400,
];

/// A short step that divides a time into no more cells than a log holds.
fn finest_step(per: Elapsed) -> Elapsed {
    let fits = |step: &u32| {
        per.seconds().is_multiple_of(*step) && ((per.seconds() / step) as usize) < PAIRS_MOST
    };
    let steps = STEPS.into_iter().chain(1..=per.seconds());
    let step = steps.into_iter().find(fits);
    step.and_then(|step| Elapsed::from_seconds(step.into()))
        .unwrap_or(per)
}

/// Finds what is wrong with one limit.
struct Checking<'a> {
    index: usize,
    faults: &'a mut Vec<Fault>,
}

impl Checking<'_> {
    fn fault(&mut self, field: &str, detail: impl std::fmt::Display) {
        let pointer = format!("/limits/{}/{field}", self.index);
        self.faults.push(Fault::new(pointer, detail));
    }

    fn whole(&mut self, field: &str, given: i128, least: u64) -> Option<u64> {
        let number = u64::try_from(given).ok();
        let number = number.filter(|number| (least..=UNITS_MAX).contains(number));
        if number.is_none() {
            let detail = format!("{field} is a whole number from {least} to {UNITS_MAX}");
            self.fault(field, detail);
        }
        number
    }

    fn max(&mut self, given: i128, least: u64) -> Option<u64> {
        self.whole("max", given, least)
    }

    fn per(&mut self, given: &str) -> Option<Per> {
        let per = given.parse();
        per.map_err(|error| self.fault("per", error)).ok()
    }

    fn only_one(&mut self, per: Per, mut others: impl Iterator<Item = Per>) {
        if others.any(|other| other == per) {
            let detail = format!("there is a limit per {per} already; keep one of them");
            self.fault("per", detail);
        }
    }

    fn shape(&mut self, draft: &LimitDraft, max: u64, per: Per) -> Option<Shape> {
        let known = draft.kind.as_deref();
        let known = known.map(|kind| LimitKind::ALL.into_iter().find(|of| of.as_str() == kind));
        let shape = match (per, known) {
            (_, Some(None)) => {
                self.fault("kind", "write from_first_claim, sliding or rate");
                return None;
            }
            (Per::Calendar(length), None | Some(Some(LimitKind::Calendar))) => {
                Shape::Calendar(length)
            }
            (Per::Ever, None | Some(Some(LimitKind::Calendar))) => Shape::Ever,
            (Per::Calendar(_) | Per::Ever, Some(Some(kind))) => {
                let kind = kind.as_str();
                let detail = format!(
                    "a limit per {per} is of the calendar: leave kind out, or write per as a \
                     duration, such as \"24h\", to which {kind} applies"
                );
                self.fault("kind", detail);
                return None;
            }
            (Per::Elapsed(per), None | Some(Some(LimitKind::Calendar))) => {
                let detail = format!(
                    "{per} is a duration: write from_first_claim (all units return {per} after the \
                     first grant), sliding (each unit returns {per} after it was taken) or rate \
                     (units return evenly); or write per as a calendar word, such as \"day\""
                );
                self.fault("kind", detail);
                return None;
            }
            (Per::Elapsed(per), Some(Some(LimitKind::FromFirstClaim))) => {
                Shape::FromFirstClaim(per)
            }
            (Per::Elapsed(per), Some(Some(LimitKind::Sliding))) => Shape::Sliding {
                per,
                step: self.step(draft.step.as_deref(), per),
            },
            (Per::Elapsed(per), Some(Some(LimitKind::Rate))) => Shape::Rate {
                per,
                burst: self.burst(draft.burst, max, per),
            },
        };
        if draft.step.is_some() && shape.kind() != LimitKind::Sliding {
            self.fault("step", "only a sliding limit has a step: leave it out");
        }
        if draft.burst.is_some() && shape.kind() != LimitKind::Rate {
            self.fault("burst", "only a rate has a burst: leave it out");
        }
        // A step that cannot be read leaves open what fits.
        let has_wrong_step =
            matches!(shape, Shape::Sliding { step: None, .. }) && draft.step.is_some();
        if !has_wrong_step && let Some(detail) = misfit(shape, max) {
            self.fault("max", detail);
        }
        Some(shape)
    }

    fn step(&mut self, given: Option<&str>, per: Elapsed) -> Option<Elapsed> {
        let step: Elapsed = match given?.parse() {
            Ok(step) => step,
            Err(error) => {
                self.fault("step", error);
                return None;
            }
        };
        let cells = per.seconds() / step.seconds();
        let finest = finest_step(per);
        if !per.seconds().is_multiple_of(step.seconds()) {
            let detail =
                format!("{step} does not divide {per}: write a step that does, such as {finest}");
            self.fault("step", detail);
            return None;
        }
        if cells as usize >= PAIRS_MOST {
            let most = PAIRS_MOST - 1;
            let detail = format!(
                "{per} has {cells} steps of {step}, and {most} at most are kept: write {finest} or longer"
            );
            self.fault("step", detail);
            return None;
        }
        Some(step)
    }

    fn burst(&mut self, given: Option<i128>, max: u64, per: Elapsed) -> Option<u64> {
        let burst = match given {
            Some(given) => Some(self.whole("burst", given, 1)?),
            None => None,
        };
        let units = u128::from(burst.unwrap_or(max));
        let refill = units * u128::from(per.seconds()) / u128::from(max);
        if refill > REFILL_MAX_SECONDS {
            let most = REFILL_MAX_SECONDS * u128::from(max) / u128::from(per.seconds());
            let detail = format!(
                "a burst returns within 4000 days: write {} at most, or a higher max",
                most.max(1)
            );
            self.fault("burst", detail);
        }
        burst
    }
}
