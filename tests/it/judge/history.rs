//! The wishes of clients, and the answers they received.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::stores::Kind;

/// A claim that a client wants. Its place in [`History::wishes`] identifies it. Its metadata
/// contains the place, so that its entry can be identified too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub policy: String,
    pub subject: String,
    pub units: u64,
    /// Whether the claim has an `Idempotency-Key`, and so may be sent again.
    pub has_key: bool,
    pub hold_seconds: Option<u64>,
    /// What the claim tells of the subject's calendar.
    pub calendar: Option<Value>,
    /// The place of the first wish of its bundle. The wishes of a bundle follow one another, and are sent in
    /// one atomic batch with one key.
    pub bundle: Option<usize>,
}

/// One request for a claim, and its outcome. Times are relative to the beginning of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub wish: usize,
    pub instance: usize,
    pub began: Duration,
    pub ended: Duration,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Status 201.
    Granted(Told),
    /// Status 200: granted before.
    Repeated(Told),
    /// Status 409 or 410: the grant was reversed, or its hold lapsed.
    Ended,
    /// Status 429.
    Denied,
    /// Status 424: another claim of its atomic batch was denied.
    Skipped,
    /// The outcome is unknown: the ledger may have the grant or not.
    Unknown(Why),
    /// An answer that no fault excuses.
    Wrong(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The same key is being decided. The outcome is that of the other attempt.
    InProgress,
    /// Status 503.
    Undecided,
    /// The client waited as long as it could, and received no answer.
    Silence,
    /// The connection was refused, cut or reset.
    Broken,
}

/// The content of an answer about a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub id: Uuid,
    /// Each limit's `per`, `max` and `used`.
    pub limits: Vec<(String, u64, u64)>,
    /// Whether Redis alone decided.
    pub provisional: bool,
}

/// An action on the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub at: Duration,
    pub what: String,
}

/// A part of the ledger that was lost when a copy replaced it. Times are relative to the beginning
/// of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPart {
    /// The copy has the entries that were committed before this.
    pub copied: Duration,
    /// The old ledger committed nothing after this.
    pub replaced: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub wishes: Vec<Wish>,
    /// In the order of their ends.
    pub attempts: Vec<Attempt>,
    pub corrections: Vec<Correction>,
    pub marks: Vec<Mark>,
    /// Whether Redis lost data. Then grants that Redis alone decided may be lost too.
    pub redis_lost_data: bool,
    pub lost_parts: Vec<LostPart>,
    /// From this time on, no earlier request is open: the present content of the ledger existed
    /// then.
    pub quiet_since: Option<Duration>,
}

/// An answer to a correction. Times are relative to the beginning of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    pub began: Duration,
    pub ended: Duration,
    pub kind: Kind,
    /// The grant or the top-up; its own id if it corrects none.
    pub of: Uuid,
    /// The reason of the request: where parts of the ledger are lost, each request has its own.
    pub reason: String,
    /// Whether the answer says that the correction is new, or the answer that may have said so was lost.
    pub is_new: bool,
    pub answer: Value,
}

impl Wish {
    /// A claim of one unit under `benefit`, without a key.
    pub fn of(subject: &str) -> Self {
        Self {
            policy: "benefit".to_owned(),
            subject: subject.to_owned(),
            units: 1,
            has_key: false,
            hold_seconds: None,
            calendar: None,
            bundle: None,
        }
    }

    pub fn with_key(self) -> Self {
        Self {
            has_key: true,
            ..self
        }
    }

    pub fn units(self, units: u64) -> Self {
        Self { units, ..self }
    }

    /// The claim's body, for a wish at this place.
    pub fn body(&self, place: usize) -> Value {
        json!({
            "subject": self.subject,
            "units": self.units,
            "hold_seconds": self.hold_seconds,
            "calendar": self.calendar,
            "metadata": { "wish": place },
        })
    }
}

impl Outcome {
    /// The meaning of an answer.
    pub fn of(status: StatusCode, text: &str) -> Self {
        let wrong = || Self::Wrong(format!("{status} {text}"));
        let told = || Told::read(&serde_json::from_str(text).ok()?);
        match status {
            StatusCode::CREATED => told().map_or_else(wrong, Self::Granted),
            StatusCode::OK => told().map_or_else(wrong, Self::Repeated),
            StatusCode::TOO_MANY_REQUESTS => Self::Denied,
            StatusCode::FAILED_DEPENDENCY => Self::Skipped,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unknown(Why::Undecided),
            // An instance that wakes up sees a request that came too slowly.
            StatusCode::REQUEST_TIMEOUT => Self::Unknown(Why::Broken),
            StatusCode::CONFLICT if text.contains("claim-in-progress") => {
                Self::Unknown(Why::InProgress)
            }
            StatusCode::CONFLICT if text.contains("grant-reversed") => Self::Ended,
            StatusCode::GONE if text.contains("hold-lapsed") => Self::Ended,
            _ => wrong(),
        }
    }

    /// The answer, if it is a grant.
    pub fn told(&self) -> Option<&Told> {
        match self {
            Self::Granted(told) | Self::Repeated(told) => Some(told),
            Self::Ended | Self::Denied | Self::Skipped | Self::Unknown(_) | Self::Wrong(_) => None,
        }
    }

    /// Whether the client knows the outcome of the claim.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

impl Told {
    fn read(answer: &Value) -> Option<Self> {
        let limit = |limit: &Value| {
            let per = limit["per"].as_str()?.to_owned();
            Some((per, limit["max"].as_u64()?, limit["used"].as_u64()?))
        };
        let limits = answer["limits"].as_array()?.iter();
        Some(Self {
            id: answer["grant"]["id"].as_str()?.parse().ok()?,
            provisional: answer["provisional"] == true,
            limits: limits.map(limit).collect::<Option<_>>()?,
        })
    }
}

impl History {
    /// Whether a client was told that Redis alone granted a wish.
    pub fn is_provisional(&self, wish: usize) -> bool {
        let attempts = self.attempts.iter().filter(|one| one.wish == wish);
        let mut told = attempts.filter_map(|one| one.outcome.told());
        told.any(|told| told.provisional)
    }

    /// Whether the grant of an answer may be only in a lost part of the ledger. A grant that Redis
    /// alone decided can be appended at any time after its answer.
    pub fn may_be_lost(&self, attempt: &Attempt) -> bool {
        let told = attempt.outcome.told();
        let is_late = told.is_some_and(|told| told.provisional);
        let ended = if is_late {
            Duration::MAX
        } else {
            attempt.ended
        };
        self.is_in_lost_part(attempt.began, ended)
    }

    /// Whether what was committed between two moments may be only in a lost part of the ledger.
    pub fn is_in_lost_part(&self, began: Duration, ended: Duration) -> bool {
        let mut parts = self.lost_parts.iter();
        parts.any(|part| began <= part.replaced && part.copied <= ended)
    }

    /// The attempts of each wish, in the order of their ends.
    pub fn by_wish(&self) -> Vec<Vec<&Attempt>> {
        let mut by_wish = vec![Vec::new(); self.wishes.len()];
        for attempt in &self.attempts {
            by_wish[attempt.wish].push(attempt);
        }
        by_wish
    }
}
