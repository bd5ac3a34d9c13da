//! What clients wished and what they were told.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::stores::Kind;

/// A claim, told from others by its place in [`History::wishes`]. Its metadata has that place, so
/// that its entry can be told too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub policy: String,
    pub subject: String,
    pub units: u64,
    /// Whether it is sent with an `Idempotency-Key`, and so may be sent again.
    pub has_key: bool,
    pub hold_seconds: Option<u64>,
}

/// One request for a claim, and its end. Times are since the history's beginning.
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
    /// 201.
    Granted(Told),
    /// 200: granted before.
    Repeated(Told),
    /// 429.
    Denied,
    /// Nobody knows: it may stand or not.
    Unknown(Why),
    /// What no fault excuses.
    Wrong(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The same key is being decided: its other attempt ends as it ends.
    InProgress,
    /// 503.
    Undecided,
    /// No answer within the client's patience.
    Silence,
    /// The connection was refused, cut or reset.
    Broken,
}

/// What an answer says of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub id: Uuid,
    /// Each limit's `per`, `max` and `used`.
    pub limits: Vec<(String, u64, u64)>,
    /// Whether Redis alone decided.
    pub provisional: bool,
}

/// Something done to the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub at: Duration,
    pub what: String,
}

/// A part of the ledger that was lost when a copy took its place. Times are since the history's
/// beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPart {
    /// The copy has what was committed before this.
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
    /// Whether Redis lost what it had counted: what it alone had decided may be lost too.
    pub redis_lost_data: bool,
    pub lost_parts: Vec<LostPart>,
    /// Since when nothing of before is under way any more: what stands now stood then.
    pub quiet_since: Option<Duration>,
}

/// What a client was told of a correction.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    pub kind: Kind,
    /// The grant; an adjustment's own id.
    pub of: Uuid,
    /// Whether it was made just now.
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

    /// The claim's body, where the wish has this place.
    pub fn body(&self, place: usize) -> Value {
        json!({
            "subject": self.subject,
            "units": self.units,
            "hold_seconds": self.hold_seconds,
            "metadata": { "wish": place },
        })
    }
}

impl Outcome {
    /// What an answer means.
    pub fn of(status: StatusCode, text: &str) -> Self {
        let wrong = || Self::Wrong(format!("{status} {text}"));
        let told = || Told::read(&serde_json::from_str(text).ok()?);
        match status {
            StatusCode::CREATED => told().map_or_else(wrong, Self::Granted),
            StatusCode::OK => told().map_or_else(wrong, Self::Repeated),
            // Or another claim of its atomic batch was denied.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::FAILED_DEPENDENCY => Self::Denied,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unknown(Why::Undecided),
            // To an instance that wakes up the request has come slowly.
            StatusCode::REQUEST_TIMEOUT => Self::Unknown(Why::Broken),
            StatusCode::CONFLICT if text.contains("claim-in-progress") => {
                Self::Unknown(Why::InProgress)
            }
            _ => wrong(),
        }
    }

    /// What was told of a grant.
    pub fn told(&self) -> Option<&Told> {
        match self {
            Self::Granted(told) | Self::Repeated(told) => Some(told),
            Self::Denied | Self::Unknown(_) | Self::Wrong(_) => None,
        }
    }

    /// Whether the client knows what became of the claim.
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

    /// Whether an answer may tell what only a lost part of the ledger held. A grant that Redis
    /// alone decided may be appended at any time after its answer.
    pub fn may_be_lost(&self, attempt: &Attempt) -> bool {
        let told = attempt.outcome.told();
        let is_late = told.is_some_and(|told| told.provisional);
        self.lost_parts
            .iter()
            .any(|part| attempt.began <= part.replaced && (is_late || part.copied <= attempt.ended))
    }

    /// The attempts of each wish, in order of their ends.
    pub fn by_wish(&self) -> Vec<Vec<&Attempt>> {
        let mut by_wish = vec![Vec::new(); self.wishes.len()];
        for attempt in &self.attempts {
            by_wish[attempt.wish].push(attempt);
        }
        by_wish
    }
}
