//! Erasures of subjects.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::reading::flattened;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "request 2026-118" }))]
pub struct ErasureRequest {
    /// Without the subject's name.
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErasureAct {
    /// The number of policies under which the subject had an account or an override.
    #[schema(example = 2)]
    pub accounts: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErasureAnswer {
    /// The change that records it: see `/v1/changes`.
    #[schema(example = 42)]
    pub revision: u64,
    #[serde(flatten, deserialize_with = "flattened")]
    pub act: ErasureAct,
    pub erased_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub erased_by: String,
    #[schema(example = "request 2026-118")]
    pub reason: Option<String>,
}
