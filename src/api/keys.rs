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

/// A key to create.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "name": "shop", "role": "claim", "policies": ["benefit"], "reason": "the shop's backend" }))]
pub struct KeyBody {
    /// A name that says who uses the key: 1 to 100 characters, no control characters.
    #[schema(
        example = "shop",
        min_length = 1,
        max_length = 100,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub name: String,
    /// `claim`, `audit`, `support` or `admin`.
    #[schema(value_type = words::Role, example = "claim")]
    pub role: String,
    /// The policies that the key is confined to. Default: all policies. An admin key is never
    /// confined.
    #[schema(example = json!(["benefit"]), min_items = 1, max_items = 100)]
    pub policies: Option<Vec<String>>,
    /// How far a key with the role `support` may go. Required for this role, and refused for the others.
    #[schema(value_type = Option<BoundsBody>)]
    pub bounds: Option<Object<BoundsBody>>,
    /// The instant from which the key is not accepted. It must be in the future.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub ends_at: Option<String>,
    /// The reason: 1 to 1000 characters.
    #[schema(example = "the shop's backend", min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

/// How far a support key may go with overrides and blocks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundsBody {
    /// The largest `max` of an override.
    #[schema(value_type = u64, example = 10, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub max: WholeNumber,
    /// For how many days an override or a block may last.
    #[schema(value_type = u16, example = 7, minimum = 1, maximum = 400)]
    pub days: WholeNumber,
}

/// The bounds of a support key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BoundsAnswer {
    /// The largest `max` of an override.
    #[schema(example = 10)]
    pub max: u64,
    /// For how many days an override or a block may last.
    #[schema(example = 7)]
    pub days: u16,
}

impl From<SupportBounds> for BoundsAnswer {
    fn from(bounds: SupportBounds) -> Self {
        let SupportBounds { max, days } = bounds;
        Self { max, days }
    }
}

/// A key's new end.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "ends_at": "2099-12-01T00:00:00Z", "reason": "the contract ends" }))]
pub struct KeyEndBody {
    /// The instant from which the key is not accepted. It must be in the future. Null removes the
    /// end.
    #[serde(deserialize_with = "required")]
    #[schema(value_type = Option<DateTime<Utc>>, required = true)]
    pub ends_at: Option<String>,
    /// The reason: 1 to 1000 characters. Required where the end changes.
    #[schema(example = "the contract ends", min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

/// The replacement of a key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "keep_seconds": 86400, "reason": "once a year" }))]
pub struct KeyReplacementBody {
    /// For how many seconds the old key still works. Default: 86400, which is a day.
    #[schema(value_type = Option<u32>, example = 86400, minimum = 0, maximum = 31_536_000)]
    pub keep_seconds: Option<WholeNumber>,
    /// The reason: 1 to 1000 characters.
    #[schema(example = "once a year", min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// A field that can be null, but not absent.
fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer)
}

/// A key, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyAnswer {
    /// A UUIDv7.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Uuid,
    #[schema(example = "shop")]
    pub name: String,
    #[schema(value_type = words::Role, example = "claim")]
    pub role: Word,
    /// The policies that the key is confined to; null for all policies.
    #[schema(example = json!(["benefit"]))]
    pub policies: Option<Vec<String>>,
    /// How far a support key may go. Absent for every other role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub bounds: Option<BoundsAnswer>,
    /// The instant from which the key is not accepted; null for no end.
    pub ends_at: Option<DateTime<Utc>>,
    /// Whether the key is revoked: it is never accepted again.
    pub revoked: bool,
    /// The version of the key. Every change makes a new version.
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub created_at: DateTime<Utc>,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub changed_at: DateTime<Utc>,
    /// Who made this version: a key's id, `PERDIEM_ADMIN_KEY`, or `perdiem` for the first key.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    /// The reason of the last change.
    #[schema(example = "the shop's backend")]
    pub reason: Option<String>,
}

/// The key that a request was sent with.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OwnKeyAnswer {
    /// A UUIDv7. Absent for the key of the settings, which is not in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Option<Uuid>,
    /// The key's name; `PERDIEM_ADMIN_KEY` for the key of the settings.
    #[schema(example = "shop")]
    pub name: String,
    /// `claim`, `audit`, `support` or `admin`.
    #[schema(value_type = words::Role, example = "claim")]
    pub role: Word,
    /// The policies that the key is confined to. Absent if it can be used for all policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["benefit"]))]
    pub policies: Option<Vec<String>>,
    /// How far a support key may go. Absent for every other role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoundsAnswer>,
    /// The instant from which the key is not accepted. Absent if the key has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
}

/// A new key, with its secret.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// The secret of the key. Send it as `Authorization: Bearer <secret>`. It is shown only once.
    /// Scanners can find leaked secrets by their form: a prefix, and a checksum in the last 8
    /// digits.
    #[schema(pattern = "^perdiem_[0-9a-f]{48}$")]
    pub secret: String,
}

/// A new key in the place of an old one, with its secret.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct KeyReplacementAnswer {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// The secret of the new key, as in the answer to the creation of a key. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, pattern = "^perdiem_[0-9a-f]{48}$")]
    pub secret: Option<String>,
    /// The old key, with its end.
    pub replaced: KeyAnswer,
}

/// A key, without its secret, and when it was used.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ListedKey {
    #[serde(flatten, deserialize_with = "flattened")]
    pub key: KeyAnswer,
    /// The last day, in UTC, on which a request was sent with the key while the key was valid. Absent if there
    /// was none. A request that was refused for the role or the policies of the key is a use too. A use is shown
    /// after a few seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, example = "2026-11-21")]
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

page! {
    /// A page of keys.
    KeyList of ListedKey
    /// The cursor of the next page; null on the last page.
}

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

/// A key with its name.
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
