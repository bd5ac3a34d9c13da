//! Limits in answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::instant;
use super::words::{self, Word};
use domain::forecast::{Forecast, Returns};
use domain::limit::per::{Elapsed, Per};
use domain::limit::shape::{Limit, LimitKind, OtherMax};
use domain::limit::total::Total;

/// A limit with its usage, now or at a grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitUsage {
    /// The limit's name: `minute`, `hour`, `day`, `week`, `month`, `year`, `ever`, or a duration.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    /// The kind of the limit, which says how units return: `calendar`, `from_first_claim`,
    /// `sliding` or `rate`.
    #[schema(value_type = words::LimitKind, example = "calendar")]
    pub kind: Word,
    /// The most units in a window; 0 where an override blocks the subject.
    #[schema(example = 3, maximum = 9_007_199_254_740_991_u64)]
    pub max: u64,
    /// The units used. Claims can raise it to at most 2^53 − 1. It can be higher where grants were
    /// recorded afterwards, or where the limit is newer than the entries that it counts.
    #[schema(example = 1)]
    pub used: u64,
    /// The units left; for a rate, the units in its bucket. It is 0 where more than `max` is used:
    /// `max` was lowered, or the policy only observes.
    #[schema(example = 2)]
    pub remaining: u64,
    /// When the window began; null where there is no window.
    #[schema(example = "2026-11-20T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub window_start: Option<DateTime<Utc>>,
    /// When more units are left, or the window ends, if nothing more is granted: by the limit, by open
    /// holds that lapse, and by changes of the limit that are known. Null where that is never.
    #[schema(example = "2026-11-21T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub more_at: Option<DateTime<Utc>>,
    /// When all units have returned, if nothing more is granted: by the limit, by open holds that
    /// lapse, and by changes of the limit that are known. Null where no units return.
    #[schema(example = "2026-11-21T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub resets_at: Option<DateTime<Utc>>,
}

impl LimitUsage {
    pub fn new(total: &Total, returns: Returns) -> Self {
        let per = total.per();
        let window = total.window();
        let Returns { more_at, resets_at } = returns;
        Self {
            per,
            kind: total.kind().as_str().into(),
            max: total.max,
            used: total.used(),
            remaining: total.remaining(),
            window_start: window
                .filter(|_| per != Per::Ever)
                .map(|window| window.start),
            more_at,
            resets_at,
        }
    }

    /// Limits as they were, or as time alone moves them.
    pub fn all(totals: &[Total]) -> Vec<Self> {
        Self::foretold(totals, &Forecast::default())
    }

    pub fn foretold(totals: &[Total], forecast: &Forecast) -> Vec<Self> {
        let limits = totals.iter();
        let limit = |total| Self::new(total, forecast.returns_of(total));
        limits.map(limit).collect()
    }
}

/// `max` units `per` window.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitAnswer {
    #[schema(example = 3)]
    pub max: u64,
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    /// Absent for a limit of the calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::LimitKind>, required = false, example = "sliding")]
    pub kind: Option<Word>,
    /// Absent without a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false, example = "1h")]
    pub step: Option<Elapsed>,
    /// Absent where it equals `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, example = 20)]
    pub burst: Option<u64>,
}

impl From<&Limit> for LimitAnswer {
    fn from(limit: &Limit) -> Self {
        let kind = limit.shape.kind();
        Self {
            max: limit.max,
            per: limit.per(),
            kind: (kind != LimitKind::Calendar).then(|| kind.as_str().into()),
            step: limit.shape.step(),
            burst: limit.shape.burst(),
        }
    }
}

/// Another `max` for a limit of the policy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OverriddenMax {
    #[schema(example = 10)]
    pub max: u64,
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
}

impl From<&OtherMax> for OverriddenMax {
    fn from(other: &OtherMax) -> Self {
        let OtherMax { max, per } = *other;
        Self { max, per }
    }
}
