//! Bundles: the grants of an atomic batch.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::grants::GrantBody;
use domain::grant::Grant;
use domain::identity::BundleId;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "SMS gateway refused" }))]
pub struct BundleReversalRequest {
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// Nothing: all holds of a bundle are confirmed whole.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub struct BundleConfirmationRequest {}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BundleBody {
    pub id: Uuid,
    /// In the order of their ids, each with its state now.
    #[schema(min_items = 1, max_items = 1000)]
    pub grants: Vec<GrantBody>,
}

impl BundleBody {
    /// The bundle with the states of its grants at an instant.
    pub fn new(id: BundleId, grants: &[Grant], now: DateTime<Utc>) -> Self {
        Self {
            id: id.0,
            grants: grants
                .iter()
                .map(|grant| GrantBody::new(grant, now))
                .collect(),
        }
    }
}
