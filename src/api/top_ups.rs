//! Top-ups: units that a subject has beside its windows.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::strict::WholeNumber;
use domain::grant::{Entry, EntryKind};
use domain::top_up::{TopUp, TopUps};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "units": 1, "until": "2099-11-28T00:00:00Z", "reason": "goodwill, ticket 4711" }))]
pub struct TopUpRequest {
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub units: WholeNumber,
    /// The end: units that are left then are gone.
    #[schema(value_type = DateTime<Utc>)]
    pub until: String,
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "wrong subject" }))]
pub struct TopUpReversalRequest {
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// A top-up with the units that it has left.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TopUpLeft {
    pub id: Uuid,
    /// What was given.
    #[schema(example = 2)]
    pub units: u64,
    #[schema(example = 1)]
    pub units_left: u64,
    pub until: DateTime<Utc>,
}

impl TopUpLeft {
    pub fn all(top_ups: &TopUps) -> Vec<Self> {
        let left = |top_up: &TopUp| Self {
            id: top_up.id.0,
            units: top_up.units,
            units_left: top_up.left,
            until: top_up.ends_at,
        };
        top_ups.each.iter().map(left).collect()
    }
}

/// What an entry did to a top-up.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TopUpEntry {
    /// The id of the top-up.
    pub id: Uuid,
    /// What was given, or taken back.
    #[schema(example = 1)]
    pub units: u64,
    /// Absent where it was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub until: Option<DateTime<Utc>>,
}

impl TopUpEntry {
    /// `None` for entries of other kinds.
    pub fn of(entry: &Entry) -> Option<Self> {
        let id = match entry.kind {
            EntryKind::TopUp => entry.id,
            EntryKind::TopUpReversal { of } => of,
            _ => return None,
        };
        Some(Self {
            id: id.0,
            units: entry.units.get(),
            until: entry.top_up().map(|top_up| top_up.ends_at),
        })
    }
}
