//! API keys.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::page::page;
use super::reading::flattened;
use super::strict::{Object, WholeNumber};
use super::words::{self, Word};
use domain::key::{Key, SupportBounds, UsedKey};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "name": "shop", "role": "claim", "policies": ["benefit"], "reason": "the shop's backend" }))]
pub struct KeyBody {
    /// Who uses the key.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub name: String,
    #[schema(value_type = words::Role)]
    pub role: String,
    /// Default: all policies. An admin key is never confined.
    #[schema(min_items = 1, max_items = 100)]
    pub policies: Option<Vec<String>>,
    /// Required for the role `support`, and refused for the others.
    #[schema(value_type = Option<BoundsBody>)]
    pub bounds: Option<Object<BoundsBody>>,
    /// The instant from which the key is not accepted, in the future.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub ends_at: Option<String>,
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

/// How far a support key may go with overrides, tiers and blocks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundsBody {
    /// The largest `max` of an override, and of a tier that it puts a subject into.
    #[schema(value_type = u64, example = 10, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub max: WholeNumber,
    /// For how many days an override, a tier or a block may last.
    #[schema(value_type = u16, example = 7, minimum = 1, maximum = 400)]
    pub days: WholeNumber,
}

/// How far a support key may go with overrides, tiers and blocks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BoundsAnswer {
    /// The largest `max` of an override, and of a tier that it puts a subject into.
    #[schema(example = 10)]
    pub max: u64,
    /// For how many days an override, a tier or a block may last.
    #[schema(example = 7)]
    pub days: u16,
}

impl From<SupportBounds> for BoundsAnswer {
    fn from(bounds: SupportBounds) -> Self {
        let SupportBounds { max, days } = bounds;
        Self { max, days }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "ends_at": "2099-12-01T00:00:00Z", "reason": "the contract ends" }))]
pub struct KeyEndBody {
    /// The instant from which the key is not accepted, in the future; null for no end.
    #[serde(deserialize_with = "required")]
    #[schema(value_type = Option<DateTime<Utc>>, required = true)]
    pub ends_at: Option<String>,
    /// Required where the end changes.
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "keep_seconds": 86400, "reason": "once a year" }))]
pub struct KeyReplacementBody {
    /// For how long the old key still works. Default: 86400.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 31_536_000)]
    pub keep_seconds: Option<WholeNumber>,
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// A field that can be null, but not absent.
fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAnswer {
    pub id: Uuid,
    #[schema(example = "shop")]
    pub name: String,
    #[schema(value_type = words::Role, example = "claim")]
    pub role: Word,
    /// Null for all policies.
    #[schema(example = json!(["benefit"]))]
    pub policies: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub bounds: Option<BoundsAnswer>,
    /// The instant from which the key is not accepted.
    pub ends_at: Option<DateTime<Utc>>,
    /// A revoked key is never accepted again.
    pub revoked: bool,
    #[schema(example = 1)]
    pub version: u32,
    pub created_at: DateTime<Utc>,
    pub changed_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    #[schema(example = "the shop's backend")]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OwnKeyAnswer {
    /// Absent for `PERDIEM_ADMIN_KEY`, which is not in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<Uuid>,
    #[schema(example = "shop")]
    pub name: String,
    #[schema(value_type = words::Role, example = "claim")]
    pub role: Word,
    /// Absent for all policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!(["benefit"]))]
    pub policies: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub bounds: Option<BoundsAnswer>,
    /// The instant from which the key is not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ends_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// Send it as `Authorization: Bearer <secret>`. It is shown only once. Scanners can find a leaked secret by
    /// its prefix, and by the checksum in its last 8 digits.
    #[schema(
        pattern = "^perdiem_[0-9a-f]{48}$",
        example = "perdiem_000000000000000000000000000000000000000000000000"
    )]
    pub secret: String,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct KeyReplacementAnswer {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        nullable = false,
        required = false,
        pattern = "^perdiem_[0-9a-f]{48}$",
        example = "perdiem_000000000000000000000000000000000000000000000000"
    )]
    pub secret: Option<String>,
    /// The old key, with its end.
    pub replaced: KeyAnswer,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedKey {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// The last day, in UTC, on which the valid key was sent, also in a request that its role or its policies
    /// forbid. Shown after a few seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub last_used_on: Option<NaiveDate>,
}

impl From<UsedKey> for ListedKey {
    fn from(used: UsedKey) -> Self {
        Self {
            key: used.key.into(),
            last_used_on: used.last_used_on,
        }
    }
}

page!(KeyList of ListedKey);

impl From<Key> for KeyAnswer {
    fn from(key: Key) -> Self {
        let policies = key.rule.policies.as_deref();
        let names = policies.map(|names| names.iter().map(ToString::to_string).collect());
        Self {
            id: key.id,
            policies: names,
            bounds: key.rule.bounds.map(BoundsAnswer::from),
            name: key.rule.name,
            role: key.rule.role.as_str().into(),
            ends_at: key.rule.ends_at,
            revoked: key.rule.revoked,
            version: key.version,
            created_at: key.created_at,
            changed_at: key.changed_at,
            changed_by: key.changed_by,
            reason: key.reason,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyName {
    pub id: Uuid,
    #[schema(example = "shop")]
    pub name: String,
}

impl From<Key> for KeyName {
    fn from(key: Key) -> Self {
        Self {
            id: key.id,
            name: key.rule.name,
        }
    }
}

impl From<(Uuid, String)> for KeyName {
    fn from((id, name): (Uuid, String)) -> Self {
        Self { id, name }
    }
}
