//! The entries of the plain model.

use chrono::{DateTime, Utc};
use perdiem::domain::limit::per::Per;
use perdiem::domain::limit::shape::Limit;
use perdiem::domain::own_calendar::OwnCalendar;
use perdiem::domain::window::Window;
use serde_json::Value;

use super::steps::TopUpChoice;

#[derive(Clone)]
pub struct Entry {
    pub subject: usize,
    /// The place among the entries of all subjects.
    pub number: usize,
    /// The number of the policy's version that was in force.
    pub version: usize,
    pub what: What,
    /// The units that the entry adds to the usage.
    pub units: i64,
    /// Those of them that count in windows.
    pub in_windows: i64,
    /// The instant in whose windows the units count.
    pub at: DateTime<Utc>,
    pub entered_at: DateTime<Utc>,
    /// The limits that held for the subject.
    pub limits: Vec<Limit>,
    /// The zone and the anchor that the subject has of its own.
    pub own: OwnCalendar,
    /// The windows of the calendar.
    pub windows: Vec<(Per, Window)>,
}

/// The kind of an entry. A reversal, of all units or of some, and a lapse name the grant's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Grant,
    Confirmation,
    Reversal(usize),
    PartialReversal(usize),
    Lapse(usize),
    Adjustment,
    /// Of one limit, or of all.
    Reset(Option<Per>),
    Calendar,
    TopUp,
    TopUpReversal,
}

impl What {
    /// The number of the grant's entry that this one corrects.
    pub fn of(self) -> Option<usize> {
        match self {
            Self::Reversal(of) | Self::PartialReversal(of) | Self::Lapse(of) => Some(of),
            _ => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Confirmation => "confirmation",
            Self::Reversal(_) => "reversal",
            Self::PartialReversal(_) => "partial_reversal",
            Self::Lapse(_) => "lapse",
            Self::Adjustment => "adjustment",
            Self::Reset(_) => "reset",
            Self::Calendar => "calendar",
            Self::TopUp => "top_up",
            Self::TopUpReversal => "top_up_reversal",
        }
    }

    pub fn resets(self, limit: Per) -> bool {
        matches!(self, Self::Reset(per) if per.is_none_or(|per| per == limit))
    }
}

/// A top-up that was given, with its answer.
#[derive(Clone)]
pub struct Given {
    pub choice: TopUpChoice,
    pub until: DateTime<Utc>,
    pub left: u64,
    pub answer: Value,
    /// The answer to its reversal.
    pub ended: Option<Value>,
}

/// Where a unit of a grant came from: one of the top-ups, or the windows.
pub type Source = Option<usize>;
