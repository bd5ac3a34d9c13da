//! Blocks: subjects that a policy denies, whatever its limits are.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::page::page;
use domain::overrides::Block;
use domain::policy::PolicyName;

/// A block to create, or to replace another one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "chargebacks", "until": "2099-12-01T00:00:00Z" }))]
pub struct BlockBody {
    /// The reason: 1 to 1000 characters. Keys with the role `claim` do not see it.
    #[schema(value_type = String, required, example = "chargebacks", min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
    /// The instant from which the subject is not blocked any more. Null or absent for no end.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub until: Option<String>,
}

/// A version of a block.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The number of the version. Every change makes a new version. The block and the override of a
    /// subject share the numbers 1, 2, 3 …
    #[schema(example = 1)]
    pub version: u32,
    pub until: Option<DateTime<Utc>>,
    /// When this version was made.
    pub changed_at: DateTime<Utc>,
    /// Who made this version: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    /// The reason. Null after the subject was erased.
    #[schema(example = "chargebacks")]
    pub reason: Option<String>,
}

page! {
    /// A page of blocks.
    BlockList of BlockAnswer
    /// The cursor of the next page; null on the last page.
}

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
