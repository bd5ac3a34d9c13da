//! Blocks: subjects that a policy denies, whatever its limits are.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::page::page;
use domain::overrides::Block;
use domain::policy::PolicyName;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "chargebacks", "until": "2099-12-01T00:00:00Z" }))]
pub struct BlockBody {
    /// The role `claim` does not see it.
    #[schema(value_type = String, required, min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
    /// Absent for no end.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub until: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The block, the override and the tier of a subject share the numbers 1, 2, 3 …
    #[schema(example = 1)]
    pub version: u32,
    pub until: Option<DateTime<Utc>>,
    pub changed_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    #[schema(example = "chargebacks")]
    pub reason: Option<String>,
}

page!(BlockList of BlockAnswer);

impl BlockAnswer {
    pub fn new(policy: &PolicyName, found: Block) -> Self {
        Self {
            policy: policy.to_string(),
            subject: found.subject.map(|subject| subject.as_str().to_owned()),
            version: found.version,
            until: found.terms.and_then(|terms| terms.until),
            changed_at: found.changed_at,
            changed_by: found.changed_by,
            reason: found.reason,
        }
    }
}
