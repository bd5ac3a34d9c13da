//! What clients wished and what they were told.

use std::time::Duration;

use uuid::Uuid;

/// A claim, told from others by its place in [`History::wishes`]; its metadata bears it, so
/// that its entry can be told too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub policy: String,
    pub subject: String,
    pub units: u64,
    /// Whether it is sent with an `Idempotency-Key`, and so may be sent again.
    pub has_key: bool,
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
    pub marks: Vec<Mark>,
    /// Whether Redis lost what it had counted: what it alone had decided may be lost too.
    pub redis_lost_data: bool,
    pub lost_parts: Vec<LostPart>,
    /// Since when nothing of before is under way any more: what stands now stood then.
    pub quiet_since: Option<Duration>,
}

impl Outcome {
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

impl History {
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
