//! Tiers: named maxima of a policy, such as `gold` with 10 per day.

use std::fmt;

use super::fault::Fault;
use super::limit::maxima::{MaxDraft, check_maxima, misfit_of};
use super::limit::shape::{Limit, OtherMax};
use super::name::is_name;

/// The most tiers of a policy.
pub const TIERS_MOST: usize = 20;

/// The name of a tier, as names of policies are written: `[a-z0-9][a-z0-9-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierName(Box<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tier's name is invalid; write 1 to 63 of a-z, 0-9 and -, and do not start with -")]
pub struct TierNameError;

impl TierName {
    /// # Errors
    /// [`TierNameError`] for any other text.
    pub fn new(text: &str) -> Result<Self, TierNameError> {
        is_name(text)
            .then(|| Self(text.into()))
            .ok_or(TierNameError)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TierName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A tier of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    pub name: TierName,
    /// Another `max` for one or more limits of the policy. The other limits do not change.
    pub limits: Vec<OtherMax>,
}

/// A tier as a client wrote it.
#[derive(Debug, Clone)]
pub struct TierDraft {
    /// Any text.
    pub name: String,
    pub limits: Vec<MaxDraft>,
}

/// Checks the tiers of a policy. `limits` are its limits, or `None` where they have faults.
pub fn check_tiers(
    drafts: &[TierDraft],
    limits: Option<&[Limit]>,
    faults: &mut Vec<Fault>,
) -> Vec<Tier> {
    if drafts.len() > TIERS_MOST {
        let detail = format!(
            "there are {} tiers: write at most {TIERS_MOST}",
            drafts.len()
        );
        faults.push(Fault::new("/tiers", detail));
    }
    let mut tiers: Vec<Tier> = Vec::with_capacity(drafts.len());
    for (index, draft) in drafts.iter().enumerate() {
        let place = format!("/tiers/{index}");
        let maxima = check_maxima(&draft.limits, &format!("{place}/limits"), faults);
        if let Some(limits) = limits {
            let own = || limits.iter();
            let others = maxima.iter().enumerate();
            let misfits = others.filter_map(|(index, other)| {
                misfit_of(
                    &format!("{place}/limits/{index}"),
                    other,
                    own,
                    "this policy",
                )
            });
            faults.extend(misfits);
        }
        match TierName::new(&draft.name) {
            Err(error) => faults.push(Fault::new(format!("{place}/name"), error)),
            Ok(name) if tiers.iter().any(|tier| tier.name == name) => {
                let detail = format!("there is a tier {name} already; keep one of them");
                faults.push(Fault::new(format!("{place}/name"), detail));
            }
            Ok(name) => tiers.push(Tier {
                name,
                limits: maxima,
            }),
        }
    }
    tiers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Length;

    fn tier(name: &str, limits: &[(i128, &str)]) -> TierDraft {
        let limits = limits.iter().map(|(max, per)| MaxDraft {
            max: *max,
            per: (*per).to_owned(),
        });
        TierDraft {
            name: name.to_owned(),
            limits: limits.collect(),
        }
    }

    #[test]
    fn every_fault_of_tiers_is_told() {
        let limits = [Limit::new(3, Length::Day), Limit::new(9, Length::Week)];
        let drafts = [
            tier("gold", &[(10, "day"), (1 << 53, "week")]),
            tier("gold", &[(10, "month"), (0, "fortnight")]),
            tier("Gold", &[]),
        ];
        let told = |limits| {
            let mut faults = Vec::new();
            check_tiers(&drafts, limits, &mut faults);
            let faults = faults.into_iter().map(|fault| fault.pointer);
            faults.collect::<Vec<_>>()
        };
        let without_limits = [
            "/tiers/0/limits/1/max",
            "/tiers/1/limits/1/max",
            "/tiers/1/limits/1/per",
            "/tiers/1/name",
            "/tiers/2/limits",
            "/tiers/2/name",
        ];
        assert_eq!(told(None), without_limits);
        let mut with_limits = without_limits.to_vec();
        with_limits.insert(3, "/tiers/1/limits/0/per");
        assert_eq!(told(Some(&limits)), with_limits);
        let mut faults = Vec::new();
        let many: Vec<TierDraft> = (0..=TIERS_MOST)
            .map(|number| tier(&format!("t{number}"), &[(1, "day")]))
            .collect();
        assert_eq!(check_tiers(&many, Some(&limits), &mut faults).len(), 21);
        assert_eq!(faults[0].pointer, "/tiers");
        assert!(faults[0].detail.contains("at most 20"));
    }
}
