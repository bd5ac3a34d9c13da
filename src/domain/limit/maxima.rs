//! Other maxima for limits, as a request has them, before they are checked.

use super::draft::{Checking, check_count};
use super::fit::misfit;
use super::shape::{Limit, OtherMax};
use crate::fault::Fault;

/// Another `max` for a limit, as a request has it.
#[derive(Debug, Clone)]
pub struct MaxDraft {
    /// Any whole number.
    pub max: i128,
    /// Any text.
    pub per: String,
}

/// Checks the other `max` of some limits, which are at a place of the request.
pub fn check_maxima(drafts: &[MaxDraft], place: &str, faults: &mut Vec<Fault>) -> Vec<OtherMax> {
    check_count(drafts.len(), place, faults);
    let mut maxima: Vec<OtherMax> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let mut checking = Checking {
            place,
            index,
            faults,
        };
        let max = checking.max(draft.max, 1);
        if let Some(per) = checking.per(&draft.per) {
            checking.only_one(per, maxima.iter().map(|other| other.per));
            let max = max.unwrap_or(1);
            maxima.push(OtherMax { max, per });
        }
    }
    maxima
}

/// The fault of a `max` at a place of a request, if none of the policy's limits has its name, or their
/// kind does not allow it.
pub fn misfit_of<'a, L: Iterator<Item = &'a Limit>>(
    place: &str,
    other: &OtherMax,
    limits: impl Fn() -> L,
    whose: &str,
) -> Option<Fault> {
    let mut own = limits().filter(|own| own.per() == other.per).peekable();
    if own.peek().is_some() {
        let detail = own.find_map(|own| misfit(own.shape, other.max))?;
        return Some(Fault::new(format!("{place}/max"), detail));
    }
    let mut names: Vec<String> = limits().map(|own| own.per().to_string()).collect();
    names.dedup();
    let detail = format!(
        "{whose} has no limit per {}; name one of its limits: {}",
        other.per,
        names.join(", ")
    );
    Some(Fault::new(format!("{place}/per"), detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_max_names_its_limit() {
        let maxima = |drafts: &[(i128, &str)]| {
            let drafts = drafts.iter().map(|(max, per)| MaxDraft {
                max: *max,
                per: (*per).to_owned(),
            });
            let mut faults = Vec::new();
            let maxima = check_maxima(&drafts.collect::<Vec<_>>(), "/limits", &mut faults);
            let pointers = faults.into_iter().map(|fault| fault.pointer.to_string());
            (maxima, pointers.collect::<Vec<_>>())
        };
        let (found, faults) = maxima(&[(3, "day"), (9, "1d"), (1, "ever")]);
        assert!(faults.is_empty());
        let names: Vec<String> = found.iter().map(|other| other.per.to_string()).collect();
        assert_eq!(names, ["day", "24h", "ever"]);
        assert_eq!(maxima(&[(9, "24h"), (8, "1d")]).1, ["/limits/1/per"]);
        assert_eq!(
            maxima(&[(0, "day"), (1, "fortnight"), (-1, "ever")]).1,
            ["/limits/0/max", "/limits/1/per", "/limits/2/max"]
        );
        assert_eq!(maxima(&[]).1, ["/limits"]);
    }
}
