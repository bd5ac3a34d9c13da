//! The clock of a sandbox.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::strict::WholeNumber;

/// One of the two.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "advance_seconds": 86400 }))]
pub struct SandboxClockBody {
    /// To this instant, which is after the present one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 3_155_760_000_u64)]
    pub advance_seconds: Option<WholeNumber>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxClockAnswer {
    pub now: DateTime<Utc>,
}
