//! The tier of a subject: the maxima of the policy's tier take the place of the policy's own.

use chrono::{DateTime, Utc};

use super::blocks::{SubjectTerms, check_end};
use super::fault::Fault;
use super::limit::per::Per;
use super::policy::{Policy, Rule};
use super::tiers::TierName;

/// The content of a version of a subject's tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierTerms {
    /// The name of a tier. A version of the policy without it has its own limits for the subject.
    pub tier: TierName,
    /// From this instant on the limits of the policy apply again.
    pub until: Option<DateTime<Utc>>,
}

impl SubjectTerms for TierTerms {
    fn until(&self) -> Option<DateTime<Utc>> {
        self.until
    }
}

impl TierTerms {
    /// Checks the tier that a client wrote for a subject at `now`.
    ///
    /// # Errors
    /// All faults.
    pub fn check(
        tier: &str,
        until: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let name = TierName::new(tier).map_err(|error| faults.push(Fault::new("/tier", error)));
        check_end(until, now, &mut faults);
        match name {
            Ok(tier) if faults.is_empty() => Ok(Self { tier, until }),
            Ok(_) | Err(()) => Err(faults),
        }
    }

    /// Whether a rule has the tier. One without it has its own limits for the subject.
    pub fn is_in(&self, rule: &Rule) -> bool {
        rule.tier(&self.tier).is_some()
    }

    /// The `max` that the tier has for a limit of a rule.
    pub fn max_of(&self, rule: &Rule, per: Per) -> Option<u64> {
        let mut limits = rule.tier(&self.tier)?.limits.iter();
        let other = limits.find(|other| other.per == per);
        other.map(|other| other.max)
    }

    /// The fault that no version in force or to come has the tier.
    pub fn misfit(&self, versions: &[&Policy]) -> Option<Fault> {
        if versions.iter().any(|version| self.is_in(&version.rule)) {
            return None;
        }
        let tiers = versions.iter().flat_map(|version| &*version.rule.tiers);
        let mut names: Vec<&str> = Vec::new();
        for name in tiers.map(|tier| tier.name.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let policy = versions.first().map(|version| version.name.as_str());
        let policy = policy.unwrap_or_default();
        let detail = if names.is_empty() {
            format!("the policy {policy} has no tiers: write tiers into the policy first")
        } else {
            let names = names.join(", ");
            format!(
                "the policy {policy} has no tier {}; name one of its tiers: {names}",
                self.tier
            )
        };
        Some(Fault::new("/tier", detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subjects_tier_is_checked() {
        let now = DateTime::UNIX_EPOCH;
        let faults = TierTerms::check("-", Some(now), now).unwrap_err();
        let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/tier", "/until"]);
        assert!(TierTerms::check("gold", None, now).is_ok());
    }
}
