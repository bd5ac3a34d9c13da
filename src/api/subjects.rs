//! A subject under all policies, as an answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::claims::UsageBody;
use super::limits::LimitUsage;
use super::page::page;

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

/// A subject that policies know.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubjectItem {
    #[schema(example = "member-42")]
    pub subject: String,
    /// The policies that have entries of the subject, or ever had an override or a block of it, by name.
    #[schema(example = json!(["benefit"]))]
    pub policies: Vec<String>,
}

page! {
    /// A page of subjects.
    SubjectList of SubjectItem
    /// The cursor of the next page; null on the last page.
}

/// A subject that is at or near a limit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NearItem {
    #[schema(example = "member-42")]
    pub subject: String,
    /// All limits of the policy, in its order, with the present usage of the subject.
    pub limits: Vec<LimitUsage>,
}

page! {
    /// A page of subjects at or near a limit.
    NearList of NearItem
    /// The cursor of the next page; null on the last page. A page can be empty and have a next page.
}
