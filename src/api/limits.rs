//! Limits in answers.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::instant;
use super::words::{self, Word};
use domain::elapsed::Elapsed;
use domain::forecast::{Forecast, Returns};
use domain::limit::per::Per;
use domain::limit::shape::{Limit, LimitKind, OtherMax};
use domain::limit::total::Total;
use domain::shared::SharedTotal;
use domain::window::{Division, PartOfDay, WeekRun};

/// A limit with its usage, now or at a grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitUsage {
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    #[schema(value_type = words::LimitKind, example = "calendar")]
    pub kind: Word,
    /// 0 where an override blocks the subject.
    #[schema(example = 3, maximum = 9_007_199_254_740_991_u64)]
    pub max: u64,
    /// Claims can raise it to at most 2^53 − 1. It can be higher where grants were recorded afterwards, or
    /// where the limit is newer than the entries that it counts.
    #[schema(example = 1)]
    pub used: u64,
    /// For a rate, the units in its bucket. 0 where more than `max` is used.
    #[schema(example = 2)]
    pub remaining: u64,
    /// Null where there is no window.

    #[serde(serialize_with = "instant::serialize_some")]
    pub window_start: Option<DateTime<Utc>>,
    /// When more units are left, or the window ends, if nothing more is granted: by the limit, by open holds
    /// that lapse, and by known changes of the limit. Null for never.

    #[serde(serialize_with = "instant::serialize_some")]
    pub more_at: Option<DateTime<Utc>>,
    /// When all units have returned, by the same. Null for never.

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

    /// Limits that all subjects share.
    pub fn shared(totals: &[SharedTotal]) -> Vec<Self> {
        let usage = |total: &SharedTotal| Self {
            per: total.limit.per(),
            kind: LimitKind::Calendar.as_str().into(),
            max: total.limit.max,
            used: total.used(),
            remaining: total.remaining(),
            window_start: total.ends_at.map(|_| total.key.start),
            more_at: total.ends_at,
            resets_at: total.ends_at,
        };
        totals.iter().map(usage).collect()
    }

    /// The most units that a subject can have at once. For a rate, the burst takes the place of the max.
    pub fn most_at_once(&self) -> u64 {
        if self.kind == LimitKind::Rate.as_str() {
            self.used + self.remaining
        } else {
            self.max
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

/// Levels of use as people read them, such as `80 %, 100 %`; `None` without one.
pub fn in_percent(levels: &[u8]) -> Option<String> {
    let texts: Vec<String> = levels.iter().map(|level| format!("{level} %")).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Levels of use in a cell of a table: percents with blanks between them.
pub fn levels_cell(levels: &[u8]) -> String {
    let texts: Vec<String> = levels.iter().map(u8::to_string).collect();
    texts.join(" ")
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitAnswer {
    #[schema(example = 3)]
    pub max: u64,
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    /// Absent where `per` is no duration: such a limit is of the calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<words::LimitKind>, required = false, example = "sliding")]
    pub kind: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>, required = false, example = "1h")]
    pub step: Option<Elapsed>,
    /// Absent where it equals `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = 20)]
    pub burst: Option<u64>,
    /// The first day of one window of several weeks. Absent for other limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = "2026-01-05")]
    pub from: Option<NaiveDate>,
}

impl From<&Limit> for LimitAnswer {
    fn from(limit: &Limit) -> Self {
        Self {
            max: limit.max,
            per: limit.per(),
            kind: limit.shape.told_kind().map(|kind| kind.as_str().into()),
            step: limit.shape.step(),
            burst: limit.shape.burst(),
            from: limit.shape.first_day(),
        }
    }
}

impl LimitAnswer {
    /// How the limit divides the calendar. `None` for `ever` and for limits of other kinds.
    pub fn division(&self) -> Option<Division> {
        let is_of_calendar = self.kind.as_deref() == Some(LimitKind::Calendar.as_str());
        match self.per {
            Per::Calendar(length) => Some(length.into()),
            Per::Elapsed(part) if is_of_calendar => {
                PartOfDay::new(part).ok().map(Division::PartOfDay)
            }
            Per::Weeks(weeks) => {
                let run = self.from.map(|from| WeekRun { weeks, from });
                run.map(Division::Weeks)
            }
            Per::Elapsed(_) | Per::Ever => None,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OverriddenMax {
    #[schema(example = 10)]
    pub max: u64,
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
}

/// Other maxima in one line, such as `10 per day, 30 per week`.
pub fn maxima(limits: &[OverriddenMax]) -> String {
    let limits = limits.iter();
    let limits = limits.map(|OverriddenMax { max, per }| format!("{max} per {per}"));
    limits.collect::<Vec<_>>().join(", ")
}

impl From<&OtherMax> for OverriddenMax {
    fn from(other: &OtherMax) -> Self {
        let OtherMax { max, per } = *other;
        Self { max, per }
    }
}
