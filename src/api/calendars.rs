//! Calendars of subjects.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use domain::own_calendar::{OwnCalendar, OwnCalendarDraft};
use domain::zone::Zone;

/// A time zone and an anchor for one subject. A part that is left out stays as it is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "time_zone": "Asia/Tokyo", "anchor": "2026-01-31" }))]
pub struct CalendarBody {
    /// An IANA name, or a fixed offset written `+08:00`, `UTC+8` or `GMT+8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Asia/Tokyo", format = "time-zone")]
    pub time_zone: Option<String>,
    /// The day from which windows of weeks, months, quarters and years are counted, such as the day on which
    /// the subject joined. A month that is too short for its day of the month begins on its last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NaiveDate>, example = "2026-01-31")]
    pub anchor: Option<String>,
}

impl From<CalendarBody> for OwnCalendarDraft {
    fn from(body: CalendarBody) -> Self {
        Self {
            time_zone: body.time_zone,
            anchor: body.anchor,
        }
    }
}

/// The time zone and the anchor that a subject has of its own. A part that is absent is the policy's.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct CalendarAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "Asia/Tokyo", format = "time-zone")]
    pub time_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2026-01-31")]
    pub anchor: Option<NaiveDate>,
}

impl CalendarAnswer {
    /// The parts as people read them, such as `from 2026-01-31 in Asia/Tokyo`; `None` if nothing is its own.
    pub fn in_words(&self) -> Option<String> {
        let anchor = self.anchor.map(|anchor| format!("from {anchor}"));
        let zone = self.time_zone.as_ref().map(|zone| format!("in {zone}"));
        let parts: Vec<String> = anchor.into_iter().chain(zone).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

impl From<&OwnCalendar> for CalendarAnswer {
    fn from(own: &OwnCalendar) -> Self {
        Self {
            time_zone: own.zone.as_ref().map(Zone::name).map(str::to_owned),
            anchor: own.anchor,
        }
    }
}

/// A move of a subject's calendar. A part that is left out stays as it is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "anchor": "2026-01-31", "reason": "ticket 4711" }))]
pub struct MoveRequest {
    /// An IANA name, or a fixed offset written `+08:00`, `UTC+8` or `GMT+8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Asia/Tokyo", format = "time-zone")]
    pub time_zone: Option<String>,
    /// As in the calendar of a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NaiveDate>, example = "2026-01-31")]
    pub anchor: Option<String>,
    #[schema(example = "ticket 4711", min_length = 1, max_length = 1000)]
    pub reason: String,
}
