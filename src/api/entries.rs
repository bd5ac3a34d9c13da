//! Entries: those of an account, and the record of all accounts.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::keys::KeyName;
use super::limits::LimitUsage;
use super::page::page;
use super::reading::flattened;
use super::strict::WholeNumber;
use super::words::{self, Word};
use domain::grant::Entry;
use domain::zone::Zone;

/// An adjustment: units that are entered by hand.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "units": 2, "reason": "opening balance" }))]
pub struct AdjustmentRequest {
    /// The units to add to the usage; a negative number subtracts. Not 0.
    #[schema(value_type = i64, example = 2, minimum = -9_007_199_254_740_991_i64, maximum = 9_007_199_254_740_991_u64)]
    pub units: WholeNumber,
    /// The instant in whose windows the units count. It is not in the future. Default: now.
    #[schema(value_type = Option<DateTime<Utc>>, example = "2026-11-03T00:00:00Z")]
    pub at: Option<String>,
    /// The reason: 1 to 1000 characters.
    #[schema(example = "opening balance", min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// An entry of an account.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EntryBody {
    /// The number of the entry in its account: 1, 2, 3 … without gaps.
    #[schema(example = 7)]
    pub number: u64,
    /// A UUIDv7. The id of a grant's entry is the grant's id.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Uuid,
    /// What was entered.
    #[schema(value_type = words::EntryKind, example = "grant")]
    pub kind: Word,
    /// The units that the entry adds to the usage; negative where it gives units back.
    #[schema(example = 1)]
    pub units: i64,
    /// When the entry was appended.
    pub at: DateTime<Utc>,
    /// The instant in whose windows the units count. For a reversal or a lapse it is the grant's
    /// instant.
    pub counted_at: DateTime<Utc>,
    /// The grant that the entry corrects. Absent for grants and adjustments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Uuid>,
    /// Who made the entry: a key's id, or `PERDIEM_ADMIN_KEY`. Absent for grants and lapses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version of the policy that was in force for the entry.
    #[schema(example = 1)]
    pub policy_version: u32,
    /// The policy's time zone at `counted_at`. Absent in exports, whose manifests have the zones, and in
    /// the answer to an adjustment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "+08:00")]
    pub time_zone: Option<String>,
    /// The policy's limits after the entry, in the policy's order.
    pub limits: Vec<LimitUsage>,
}

page! {
    /// A page of an account's entries.
    EntryList of EntryBody
    /// The cursor of the next page; null on the last page.
}

impl EntryBody {
    pub fn in_zone(self, zone: Option<Zone>) -> Self {
        let time_zone = zone.map(|zone| zone.name().to_owned());
        Self { time_zone, ..self }
    }
}

impl From<&Entry> for EntryBody {
    fn from(entry: &Entry) -> Self {
        let note = entry.note.as_ref();
        Self {
            number: entry.line.number,
            id: entry.id.0,
            kind: entry.kind.word().as_str().into(),
            units: entry.units_added(),
            at: entry.line.at,
            counted_at: entry.counted_at(),
            grant: entry.kind.of().map(|grant| grant.0),
            by: note.map(|note| note.by.to_string()),
            reason: note.and_then(|note| note.reason.clone()),
            policy_version: entry.line.policy_version,
            time_zone: None,
            limits: LimitUsage::all(&entry.line.totals),
        }
    }
}

/// An entry of the record.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryItem {
    /// The place of the entry in the order of all entries and changes: 1, 2, 3 … It never changes.
    /// A list of entries leaves out the positions of changes.
    #[schema(example = 1842)]
    pub position: u64,
    /// When the entry got its position, soon after it was committed.
    pub recorded_at: DateTime<Utc>,
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The local date on which the units count, by the version of the policy that was in force
    /// then. If a change of the policy's zone set the local clock back, the day of the change is
    /// longer: its last hours have the date of its first hours.
    #[schema(example = "2026-11-21")]
    pub counted_on: NaiveDate,
    #[serde(flatten, deserialize_with = "flattened")]
    pub entry: EntryBody,
    /// The key that claimed or corrected. Absent for a lapse, for `PERDIEM_ADMIN_KEY`, and where it
    /// was not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyName>,
    /// The metadata of the claim. Absent without metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

/// A page of the record's entries.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryList {
    pub items: Vec<HistoryItem>,
    /// The cursor of the next page; null on the last page. It stays valid while entries are made.
    pub next_cursor: Option<String>,
    /// The list has the entries up to this position. Send it as `as_of` to get the same list again,
    /// at any later time. Send it as `after` to get the entries after this list.
    #[schema(example = 1842)]
    pub as_of: u64,
}
