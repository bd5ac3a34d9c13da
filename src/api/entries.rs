//! Entries: those of an account, and the record of all accounts.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::calendars::CalendarAnswer;
use super::grants::is_zero;
use super::keys::KeyName;
use super::limits::LimitUsage;
use super::page::{NextCursor, page};
use super::reading::flattened;
use super::strict::WholeNumber;
use super::top_ups::TopUpEntry;
use super::words::{self, Word};
use domain::forecast::Forecast;
use domain::grant::Entry;
use domain::zone::Zone;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "units": 2, "reason": "opening balance" }))]
pub struct AdjustmentRequest {
    /// What to add to the usage; a negative number subtracts. Not 0.
    #[schema(value_type = i64, minimum = -9_007_199_254_740_991_i64, maximum = 9_007_199_254_740_991_u64)]
    pub units: WholeNumber,
    /// The instant in whose windows the units count, not in the future. Default: now.
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub at: Option<String>,
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
}

/// A reset: a limit of a subject begins again with nothing used.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "per": "day", "reason": "ticket 4711" }))]
pub struct ResetRequest {
    /// The `per` of one of the policy's limits. Default: all limits.
    #[schema(value_type = Option<words::LimitName>, example = "day")]
    pub per: Option<String>,
    /// The reason: 1 to 1000 characters.
    #[schema(example = "ticket 4711", min_length = 1, max_length = 1000)]
    pub reason: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EntryBody {
    /// 1, 2, 3 … without gaps in each account.
    #[schema(example = 7)]
    pub number: u64,
    /// The id of a grant's entry is the grant's id.
    pub id: Uuid,
    #[schema(value_type = words::EntryKind, example = "grant")]
    pub kind: Word,
    /// What the entry adds to the usage; negative where it gives units back.
    #[schema(example = 1)]
    pub units: i64,
    /// When the entry was appended.
    pub at: DateTime<Utc>,
    /// The instant in whose windows the units count: for a reversal or a lapse that of the grant.
    pub counted_at: DateTime<Utc>,
    /// The bundle of a grant. Absent for a claim alone, and for other entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub bundle: Option<Uuid>,
    /// The end of a hold: it lapses then, unless it is confirmed before. Absent for other entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_until: Option<DateTime<Utc>>,
    /// The grant that the entry corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub grant: Option<Uuid>,
    /// The limit that was reset. Absent for a reset of all limits, and for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "day")]
    pub per: Option<String>,
    /// Absent for grants and lapses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "PERDIEM_ADMIN_KEY")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "opening balance")]
    pub reason: Option<String>,
    #[schema(example = 1)]
    pub policy_version: u32,
    /// The policy's time zone at `counted_at`. Absent in exports, whose manifests have the zones, and in
    /// the answer to an adjustment or a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "+08:00")]
    pub time_zone: Option<String>,
    /// The time zone and the anchor that the subject had of its own after the entry. Absent where it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub calendar: Option<CalendarAnswer>,
    /// The levels that the entry reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<words::WarningLevel>)]
    pub crossed: Vec<u8>,
    /// Those of the units that came from top-ups, or that the entry gave back to them. They count in no window.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false, example = 0)]
    pub topped_up_units: u64,
    /// The top-up that the entry gave or took back. Absent for other kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub top_up: Option<TopUpEntry>,
    /// The limits after the entry.
    pub limits: Vec<LimitUsage>,
}

page!(EntryList of EntryBody);

impl EntryBody {
    pub fn in_zone(self, zone: Option<Zone>) -> Self {
        let time_zone = zone.map(|zone| zone.name().to_owned());
        Self { time_zone, ..self }
    }

    /// The kind as people are told it: a grant that was taken as a hold is a hold.
    pub fn told_kind(&self) -> &str {
        match self.held_until {
            Some(_) => "hold",
            None => &self.kind,
        }
    }

    /// The entry, with what is foretold for its limits.
    pub fn foretold(entry: &Entry, forecast: &Forecast) -> Self {
        let note = entry.note.as_ref();
        Self {
            number: entry.line.number,
            id: entry.id.0,
            kind: entry.kind.word().as_str().into(),
            units: entry.units_added(),
            at: entry.line.at,
            counted_at: entry.counted_at(),
            bundle: entry.bundle.map(|bundle| bundle.0),
            held_until: entry.held_until(),
            grant: entry.kind.grant().map(|grant| grant.0),
            per: entry.kind.per().map(|per| per.to_string()),
            by: note.map(|note| note.by.to_string()),
            reason: note.and_then(|note| note.reason.clone()),
            policy_version: entry.line.policy_version,
            time_zone: None,
            calendar: entry.line.calendar.as_deref().map(CalendarAnswer::from),
            crossed: entry.crossed.percents().collect(),
            topped_up_units: entry.topped_up_units(),
            top_up: TopUpEntry::of(entry),
            limits: LimitUsage::foretold(&entry.line.totals, forecast),
        }
    }
}

impl From<&Entry> for EntryBody {
    /// The entry, with its limits as they were.
    fn from(entry: &Entry) -> Self {
        Self::foretold(entry, &Forecast::default())
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryItem {
    /// The place in the order of all entries and changes: 1, 2, 3 … It never changes. A list leaves out the
    /// positions of changes.
    #[schema(example = 1842)]
    pub position: u64,
    /// When the entry got its position, soon after it was committed.
    pub recorded_at: DateTime<Utc>,
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The local day on which the units count. If a change of the zone set the local clock back, the last hours
    /// of that day have the date of its first hours.
    pub counted_on: NaiveDate,
    #[serde(flatten, deserialize_with = "flattened")]
    pub entry: EntryBody,
    /// The key that claimed or corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<KeyName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HistoryList {
    pub items: Vec<HistoryItem>,
    #[schema(value_type = NextCursor, required = false)]
    pub next_cursor: Option<String>,
    /// The list has the entries up to this position. Send it as `as_of` to get the same list again, and as
    /// `after` to get the entries after it.
    #[schema(example = 1842)]
    pub as_of: u64,
}
