//! A subject under all policies, as an answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::claims::UsageBody;

/// What is known about a subject under the policies that the key may see.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectAnswer {
    #[schema(example = "member-42")]
    pub subject: String,
    /// The policies under which the subject has entries, an override or a block, by name. Empty where
    /// nothing is known about the subject.
    pub items: Vec<UsageBody>,
    /// The `after` of the next page; null on the last page.
    #[schema(example = json!(null))]
    pub next_after: Option<String>,
}
