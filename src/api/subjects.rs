//! A subject under all policies, as an answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::claims::UsageBody;
use super::limits::LimitUsage;
use super::page::page;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectAnswer {
    #[schema(example = "member-42")]
    pub subject: String,
    /// The policies under which the subject has entries, an override, a tier or a block.
    pub items: Vec<UsageBody>,
    /// The `after` of the next page; null on the last page.
    #[schema(example = json!(null))]
    pub next_after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectItem {
    #[schema(example = "member-42")]
    pub subject: String,
    /// Those that have entries of the subject, or ever had an override, a tier or a block of it.
    #[schema(example = json!(["benefit"]))]
    pub policies: Vec<String>,
}

page!(SubjectList of SubjectItem);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NearItem {
    #[schema(example = "member-42")]
    pub subject: String,
    /// All limits of the policy, with the present usage.
    pub limits: Vec<LimitUsage>,
}

page!(NearList of NearItem);
