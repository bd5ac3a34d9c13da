//! Tiers of a policy, and the tiers of its subjects.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::{OverriddenMax, maxima};
use super::overrides::OverrideLimitBody;
use super::page::page;
use super::strict::{Object, WholeNumber};
use domain::overrides::SubjectTier;
use domain::policy::PolicyName;
use domain::tiers::{Tier, TierDraft};

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TierBody {
    #[schema(example = "gold", pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub name: String,
    /// Another `max` for some of the policy's limits, no two with the same `per`. All other limits stay.
    #[schema(value_type = Vec<OverrideLimitBody>, min_items = 1, max_items = 10)]
    pub limits: Vec<Object<OverrideLimitBody>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TierAnswer {
    #[schema(example = "gold")]
    pub name: String,
    pub limits: Vec<OverriddenMax>,
}

impl From<TierBody> for TierDraft {
    fn from(tier: TierBody) -> Self {
        let limits = tier.limits.into_iter().map(|Object(limit)| limit.into());
        Self {
            name: tier.name,
            limits: limits.collect(),
        }
    }
}

/// A text such as `gold: 10 per day, 30 per week`.
impl FromStr for TierBody {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (name, limits) = text.split_once(':')?;
            let limits = limits.split(',').map(|limit| limit.parse().map(Object));
            Some(Self {
                name: name.trim().to_owned(),
                limits: limits.collect::<Result<_, _>>().ok()?,
            })
        };
        read().ok_or("write a tier like \"gold: 10 per day, 30 per week\"")
    }
}

/// The text that [`TierBody`] is read from.
impl fmt::Display for TierAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, maxima(&self.limits))
    }
}

/// Tiers in one line; `None` without one.
pub fn tiers_in_line(tiers: &[TierAnswer]) -> Option<String> {
    let texts: Vec<String> = tiers.iter().map(TierAnswer::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

impl From<&Tier> for TierAnswer {
    fn from(tier: &Tier) -> Self {
        Self {
            name: tier.name.to_string(),
            limits: tier.limits.iter().map(OverriddenMax::from).collect(),
        }
    }
}

impl From<TierAnswer> for TierBody {
    fn from(tier: TierAnswer) -> Self {
        let limits = tier.limits.into_iter().map(|limit| OverrideLimitBody {
            max: WholeNumber(limit.max.into()),
            per: limit.per.as_text().into_owned(),
        });
        Self {
            name: tier.name,
            limits: limits.map(Object).collect(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "tier": "gold", "until": "2099-12-01T00:00:00Z", "reason": "order 4711" }))]
pub struct SubjectTierBody {
    /// The name of one of the policy's tiers.
    #[schema(example = "gold", pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub tier: String,
    /// Absent for no end.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub until: Option<String>,
    /// Required when a subject is already in a tier.
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectTierAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The tier, the override and the block of a subject share the numbers 1, 2, 3 …
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "gold")]
    pub tier: Option<String>,
    pub until: Option<DateTime<Utc>>,
    pub changed_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    #[schema(example = "order 4711")]
    pub reason: Option<String>,
}

page!(SubjectTierList of SubjectTierAnswer);

impl SubjectTierAnswer {
    pub fn new(policy: &PolicyName, found: SubjectTier) -> Self {
        Self {
            policy: policy.to_string(),
            subject: found.subject.map(|subject| subject.as_str().to_owned()),
            version: found.version,
            until: found.terms.as_ref().and_then(|terms| terms.until),
            tier: found.terms.map(|terms| terms.tier.to_string()),
            changed_at: found.changed_at,
            changed_by: found.changed_by,
            reason: found.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_comes_back_as_it_was_written() {
        let text = "gold: 10 per day, 30 per 2 weeks";
        let tier: TierBody = text.parse().unwrap();
        let limits = tier.limits.iter().map(|Object(limit)| OverriddenMax {
            max: u64::try_from(limit.max.0).unwrap(),
            per: limit.per.parse().unwrap(),
        });
        let told = TierAnswer {
            name: tier.name.clone(),
            limits: limits.collect(),
        };
        assert_eq!(told.to_string(), text);
        for wrong in ["gold", "gold:", "gold: 10", "gold: 10 per day,"] {
            assert!(wrong.parse::<TierBody>().is_err(), "{wrong}");
        }
    }
}
