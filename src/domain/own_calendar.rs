//! The zone and the anchor that an account has of its own, under a policy whose windows follow the calendar of
//! each subject.
//!
//! A claim tells them, an admin moves them, or the first entry of the account begins the anchor. Each line keeps
//! them, so nothing else needs to be asked.

use chrono::{Datelike, NaiveDate};

use super::calendar_words::parse_date;
use super::fault::Fault;
use super::zone::Zone;

/// Whose calendar divides time into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarOwner {
    /// All subjects have the calendar of the policy.
    Policy,
    /// Each subject can have its own zone and anchor.
    Subject,
    /// As [`CalendarOwner::Subject`]. A subject without an anchor gets the day of its first entry.
    FirstGrant,
}

impl CalendarOwner {
    /// All owners, the default first.
    pub const ALL: [Self; 3] = [Self::Policy, Self::Subject, Self::FirstGrant];

    /// Whether a subject can have a calendar of its own.
    pub fn lets_subjects_own(self) -> bool {
        self != Self::Policy
    }

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Subject => "subject",
            Self::FirstGrant => "first_grant",
        }
    }
}

/// What an account has of its own. The rest is the policy's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCalendar {
    pub zone: Option<Zone>,
    /// The day on which windows of several days begin. See `Calendar` of the module `window`.
    pub anchor: Option<NaiveDate>,
}

/// A part of a calendar as a client wrote it, before it is checked.
#[derive(Debug, Clone, Default)]
pub struct OwnCalendarDraft {
    /// An IANA name or a fixed offset.
    pub time_zone: Option<String>,
    /// `YYYY-MM-DD`.
    pub anchor: Option<String>,
}

impl OwnCalendarDraft {
    /// Checks the draft. `pointer` is its place in the body.
    ///
    /// # Errors
    /// All faults of the draft.
    pub fn check(self, pointer: &str) -> Result<OwnCalendar, Vec<Fault>> {
        let mut faults = Vec::new();
        if self.time_zone.is_none() && self.anchor.is_none() {
            faults.push(Fault::new(
                pointer,
                "the calendar is empty; write time_zone, anchor or both",
            ));
        }
        let zone = self.time_zone.and_then(|zone| {
            let zone = Zone::parse(&zone);
            zone.map_err(|error| faults.push(Fault::new(format!("{pointer}/time_zone"), error)))
                .ok()
        });
        let anchor = self.anchor.and_then(|text| {
            let anchor = parse_date(&text).filter(|day| (1..=9999).contains(&day.year()));
            if anchor.is_none() {
                let detail = "the date is invalid; write YYYY-MM-DD, such as 2026-01-31";
                faults.push(Fault::new(format!("{pointer}/anchor"), detail));
            }
            anchor
        });
        if faults.is_empty() {
            Ok(OwnCalendar { zone, anchor })
        } else {
            Err(faults)
        }
    }
}

impl OwnCalendar {
    /// This calendar, changed by what is asked for: a part that is not named stays.
    pub fn changed_by(&self, asked: &Self) -> Self {
        Self {
            zone: asked.zone.clone().or_else(|| self.zone.clone()),
            anchor: asked.anchor.or(self.anchor),
        }
    }

    /// Whether this has what was asked for.
    pub fn has(&self, asked: &Self) -> bool {
        self.changed_by(asked) == *self
    }
}
