//! Four eyes: the policies whose rules change only when a second admin approves the change.

use std::sync::Arc;

use super::policy::{PolicyName, PolicyNameError};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FourEyes {
    #[default]
    OfNoPolicy,
    OfAllPolicies,
    Of(Arc<[PolicyName]>),
}

impl FourEyes {
    /// Reads `*`, or names of policies with commas between them. A text without a name is none: it may come from an empty template.
    ///
    /// # Errors
    /// One of the names is none.
    pub fn parse(text: &str) -> Result<Self, PolicyNameError> {
        match text.trim() {
            "*" => Ok(Self::OfAllPolicies),
            names => {
                let names = names.split(',').map(|name| PolicyName::new(name.trim()));
                Ok(Self::Of(names.collect::<Result<_, _>>()?))
            }
        }
    }

    /// Whether changes of a policy wait for a second admin.
    pub fn guard(&self, policy: &PolicyName) -> bool {
        match self {
            Self::OfNoPolicy => false,
            Self::OfAllPolicies => true,
            Self::Of(policies) => policies.contains(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_policies_or_all() {
        let guarded = |text: &str| {
            let four_eyes = FourEyes::parse(text).unwrap();
            ["benefit", "otp"].map(|name| four_eyes.guard(&PolicyName::new(name).unwrap()))
        };
        assert_eq!(guarded("*"), [true, true]);
        assert_eq!(guarded("otp"), [false, true]);
        assert_eq!(guarded("benefit, otp"), [true, true]);
        for wrong in ["", " ", "Benefit", "benefit,", "benefit otp", "benefit,*"] {
            assert!(FourEyes::parse(wrong).is_err(), "{wrong}");
        }
    }
}
