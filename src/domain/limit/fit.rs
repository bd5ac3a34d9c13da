//! The numbers that fit a kind of limit: its `max`, and the steps of a sliding limit.

use super::shape::{EXACT_MAX, PAIRS_MOST, Shape};
use crate::elapsed::{Elapsed, NotElapsed};

/// The largest number of units a second of a rate.
const RATE_MAX: u128 = 1_000_000;

/// Says why a limit of a shape cannot have this `max`. `None`: it can.
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

/// Common steps, in seconds.
const STEPS: [u32; 19] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200,
    86_400,
];

/// Returns a short step that divides the time into at most as many cells as a log holds.
fn finest_step(per: Elapsed) -> Elapsed {
    let fits = |step: &u32| {
        per.seconds().is_multiple_of(*step) && ((per.seconds() / step) as usize) < PAIRS_MOST
    };
    let steps = STEPS.into_iter().chain(1..=per.seconds());
    let step = steps.into_iter().find(fits);
    step.and_then(|step| Elapsed::from_seconds(step.into()))
        .unwrap_or(per)
}

/// Reads the step of a sliding limit.
///
/// # Errors
/// What to write instead.
pub fn parse_step(text: &str, per: Elapsed) -> Result<Elapsed, String> {
    let step: Elapsed = text
        .parse()
        .map_err(|error: NotElapsed| error.to_string())?;
    let cells = per.seconds() / step.seconds();
    let finest = finest_step(per);
    if !per.seconds().is_multiple_of(step.seconds()) {
        return Err(format!(
            "{step} does not divide {per}: write a step that does, such as {finest}"
        ));
    }
    if cells as usize >= PAIRS_MOST {
        let most = PAIRS_MOST - 1;
        return Err(format!(
            "{per} has {cells} steps of {step}, and {most} at most are kept: write {finest} or longer"
        ));
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_divides_the_time_into_a_hundred_at_most() {
        for (per, step, says) in [
            ("24h", "7h", "write a step that does, such as 15m"),
            ("1h", "24h", "24h does not divide 1h"),
            ("7s", "2s", "such as 1s"),
            ("24h", "863s", "such as 15m"),
            ("24h", "10m", "write 15m or longer"),
            (
                "24h",
                "1s",
                "24h has 86400 steps of 1s, and 100 at most are kept",
            ),
            ("101s", "1s", "write 101s or longer"),
            ("24h", "hour", "write one from 1s to 400d"),
            ("24h", "0s", "write one from 1s to 400d"),
            ("24h", "", "write one from 1s to 400d"),
        ] {
            let wrong = parse_step(step, per.parse().unwrap()).unwrap_err();
            assert!(wrong.contains(says), "{wrong}");
        }
    }

    /// Whatever a detail proposes can be written.
    #[test]
    fn the_finest_step_is_one() {
        for seconds in (1..20_000).chain([86_400, 31_536_000, 34_560_000]) {
            let per = Elapsed::from_seconds(seconds).unwrap();
            let step = finest_step(per);
            assert_eq!(parse_step(&step.to_string(), per), Ok(step));
        }
    }
}
