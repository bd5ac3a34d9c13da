//! Overrides: another `max` for one subject of a policy.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::OverriddenMax;
use super::page::page;
use super::strict::{Object, WholeNumber};
use super::words;
use domain::limit::maxima::MaxDraft;
use domain::overrides::Override;
use domain::policy::PolicyName;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "limits": [{ "max": 10, "per": "day" }], "reason": "ticket 4711" }))]
pub struct OverrideBody {
    /// Another `max` for some of the policy's limits, no two with the same `per`. All other limits stay.
    #[schema(value_type = Vec<OverrideLimitBody>, min_items = 1, max_items = 10)]
    pub limits: Vec<Object<OverrideLimitBody>>,
    /// Absent for no end.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub until: Option<String>,
    /// Required when an override is replaced.
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

/// To deny every claim, write a block.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideLimitBody {
    #[schema(value_type = u64, example = 10, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub max: WholeNumber,
    /// The `per` of one of the policy's limits.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: String,
}

impl From<OverrideLimitBody> for MaxDraft {
    fn from(limit: OverrideLimitBody) -> Self {
        Self {
            max: limit.max.0,
            per: limit.per,
        }
    }
}

/// A text such as `10 per day` or `30 per 2 weeks`.
impl FromStr for OverrideLimitBody {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let per = match words[..] {
            [_, "per", per] => Some(per.to_owned()),
            [_, "per", number, "weeks"] => Some(format!("{number} weeks")),
            _ => None,
        };
        let max = words.first().and_then(|max| max.parse::<u64>().ok());
        let parts = max.zip(per);
        let limit = parts.map(|(max, per)| Self {
            max: WholeNumber(max.into()),
            per,
        });
        limit.ok_or(
            "write a limit like \"10 per day\": only the max is another one, and per names the limit",
        )
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OverrideAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The override, the block and the tier of a subject share the numbers 1, 2, 3 …
    #[schema(example = 1)]
    pub version: u32,
    pub limits: Vec<OverriddenMax>,
    pub until: Option<DateTime<Utc>>,
    pub changed_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    #[schema(example = "vip")]
    pub reason: Option<String>,
}

page!(OverrideList of OverrideAnswer);

impl OverrideAnswer {
    pub fn new(policy: &PolicyName, found: Override) -> Self {
        let terms = found.terms.as_ref();
        let limits = terms.iter().flat_map(|terms| &terms.limits);
        Self {
            policy: policy.to_string(),
            subject: found.subject.map(|subject| subject.as_str().to_owned()),
            version: found.version,
            limits: limits.map(OverriddenMax::from).collect(),
            until: terms.and_then(|terms| terms.until),
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
    fn a_text_names_a_limit_and_a_max() {
        for (text, per) in [("10 per 24h", "24h"), ("10 per 2 weeks", "2 weeks")] {
            let limit: OverrideLimitBody = text.parse().unwrap();
            assert_eq!((limit.max.0, limit.per.as_str()), (10, per));
        }
        for wrong in ["10 per 24h sliding", "10", "ten per day", "-1 per day", ""] {
            let fault = wrong.parse::<OverrideLimitBody>().unwrap_err();
            assert!(fault.contains("only the max"), "{wrong}");
        }
    }
}
