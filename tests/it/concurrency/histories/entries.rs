//! The entries of the plain model.

use chrono::{DateTime, Utc};
use perdiem::domain::limit::shape::Limit;

/// A line of an account.
#[derive(Clone)]
pub struct Entry {
    pub subject: usize,
    /// Its place among the entries of all subjects.
    pub number: usize,
    pub what: What,
    /// What it adds to the units used.
    pub units: i64,
    /// The instant in whose windows they count.
    pub at: DateTime<Utc>,
    pub entered_at: DateTime<Utc>,
    /// As they held for the subject.
    pub limits: Vec<Limit>,
}

/// What an entry is; a reversal and a lapse name the grant's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Grant,
    Confirmation,
    Reversal(usize),
    Lapse(usize),
    Adjustment,
}

impl What {
    pub fn word(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Confirmation => "confirmation",
            Self::Reversal(_) => "reversal",
            Self::Lapse(_) => "lapse",
            Self::Adjustment => "adjustment",
        }
    }
}
