//! Changes of policies that wait for a second admin.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::policies::PolicyAnswer;
use super::words::{self, Word};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "proposal": "proposal_kq3…" }))]
pub struct ApprovalBody {
    /// As the answer 409 `needs-approval` to the change has it.
    pub proposal: String,
}

/// A proposed change, and what it makes of the policy.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ApprovalAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    /// `put`: the policy gets these settings. `archive`: the policy is archived.
    #[schema(value_type = words::ProposedOperation, example = "put")]
    pub operation: Word,
    /// The newest version when the change was proposed. Absent where the policy never existed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = 3)]
    pub version: Option<u32>,
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub proposed_by: String,
    /// The name of that key.
    #[schema(example = "ops")]
    pub proposer: String,
    pub proposed_at: DateTime<Utc>,
    /// From this instant on it cannot be approved.
    pub expires_at: DateTime<Utc>,
    /// That of the proposer. The record has it together with who proposed the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = "campaign 7")]
    pub reason: Option<String>,
    /// The policy after the change.
    pub result: PolicyAnswer,
}
