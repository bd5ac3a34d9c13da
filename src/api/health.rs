//! The state of an instance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{self, Word};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// An instance that is `not ready` decides no claims. One that only reads is ready when it can read.
    #[schema(value_type = words::ReadinessStatus, example = "ready")]
    pub status: Word,
    #[schema(value_type = String, example = "0.1.0")]
    pub version: Word,
    /// What is wrong and what to do. A `ready` instance can have troubles too.
    pub troubles: Vec<String>,
    #[schema(value_type = words::Store, example = "SQLite")]
    pub ledger: Word,
    /// Whether the instance uses Redis.
    pub counters: bool,
    #[schema(value_type = words::Sealing, example = "sealed")]
    pub seals: Word,
    /// Whether the instance decides no claims and changes nothing.
    pub read_only: bool,
    /// How old its answers are at most where its database follows a primary; null if that is not known.
    #[schema(example = json!(null))]
    pub lag_seconds: Option<f64>,
    /// The release of the tz database, and the source of this copy.
    #[schema(example = "2026b (system)")]
    pub zone_rules: String,
}
