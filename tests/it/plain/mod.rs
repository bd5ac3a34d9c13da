//! What is used of limits whose units return after a time, by the definitions alone: an account's entries
//! are gone through again for each question. The judge, the simulator and the random histories ask; nothing here
//! is perdiem's.
//!
//! `first_claim`, `sliding` and `rate` have one kind of limit each, and `spans` what no span of time may
//! have. What is used in a window of the calendar is a sum, which needs no model. All instants are
//! microseconds since 1970.

mod first_claim;
mod rate;
mod sliding;
mod spans;

/// An entry of an account.
#[derive(Debug, Clone, Copy)]
pub struct PlainEntry {
    pub effect: Effect,
    pub units: u64,
    /// The instant of its line.
    pub at: i64,
    /// The instant at which its units count: for what gives units back, the grant's.
    pub counted_at: i64,
}

/// What an entry does to what is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A grant that was decided by the ledger's rule.
    Grant,
    /// Units that were taken in another way: by hand, without the ledger, or over the limit.
    Take,
    /// Of the entry with this place in the account.
    GiveBack(usize),
    /// By hand.
    TakeOff,
    Nothing,
}

impl Effect {
    fn takes(self) -> bool {
        matches!(self, Self::Grant | Self::Take)
    }
}

/// How the units of a limit return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// All of them, `per` after the first grant.
    FromFirstClaim,
    /// Each one, `per` after its grant. Grants are rounded up to the step, where there is one.
    Sliding { step: Option<i64> },
    /// Evenly, `max` of them in each `per`; at most `burst` at once.
    Rate { burst: u64 },
}

/// A limit as a line tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainLimit {
    pub max: u64,
    pub per: i64,
    pub returns: Return,
}

impl PlainLimit {
    /// The most units that fit at once.
    pub fn at_once(&self) -> u64 {
        match self.returns {
            Return::Rate { burst } if self.max > 0 => burst,
            _ => self.max,
        }
    }

    /// Whether this limit goes on from a line that tells another one.
    fn goes_on(&self, other: &Self) -> bool {
        let is_same_kind = match (self.returns, other.returns) {
            (Return::Rate { .. }, Return::Rate { .. }) => true,
            (one, two) => one == two,
        };
        is_same_kind && self.per == other.per
    }
}

/// What an account has used of a limit as of an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainState {
    /// When the window was opened, if one is open, and the units used in it.
    Opened {
        at: Option<i64>,
        used: u64,
    },
    /// The units by the instants at which they count.
    Log(Vec<(i64, u64)>),
    Bucket(PlainBucket),
}

/// What a bucket lacks and what it was given back, in parts: a unit has as many as `per` has
/// microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainBucket {
    /// As of when.
    pub at: i64,
    pub owed: i128,
    pub given_back: i128,
    /// The place of the first entry under the same `max`; the number of entries where there is none.
    pub since: usize,
}

impl PlainState {
    /// The units used of a limit.
    pub fn used(&self, limit: &PlainLimit) -> u64 {
        match self {
            Self::Opened { used, .. } => *used,
            Self::Log(pairs) => pairs.iter().map(|(_, units)| units).sum(),
            Self::Bucket(bucket) => {
                let parts = i128::from(limit.per);
                u64::try_from((bucket.owed + parts - 1) / parts).expect("few units")
            }
        }
    }

    /// When the window was opened that is current.
    pub fn opened_at(&self) -> Option<i64> {
        match self {
            Self::Opened { at, .. } => *at,
            Self::Log(_) | Self::Bucket(_) => None,
        }
    }

    /// The units left of a limit.
    pub fn left(&self, limit: &PlainLimit) -> u64 {
        limit.at_once().saturating_sub(self.used(limit))
    }
}

/// An account: its entries, and the limits that each of their lines tells.
#[derive(Debug, Clone, Default)]
pub struct PlainAccount {
    entries: Vec<PlainEntry>,
    limits: Vec<Vec<PlainLimit>>,
}

impl PlainAccount {
    /// Takes the next entry, and the limits of its line.
    pub fn push(&mut self, entry: PlainEntry, limits: Vec<PlainLimit>) {
        self.entries.push(entry);
        self.limits.push(limits);
    }

    /// What is used of a limit at an instant that is not before the last entry's.
    pub fn state(&self, limit: &PlainLimit, at: i64) -> PlainState {
        match limit.returns {
            Return::FromFirstClaim => self.opened(limit, at),
            Return::Sliding { step } => self.log(limit, step.unwrap_or(1), at),
            Return::Rate { .. } => PlainState::Bucket(self.bucket(limit, at)),
        }
    }

    /// The place from which on all lines tell a limit; the number of lines where the last one does not.
    fn kept_from(&self, limit: &PlainLimit) -> usize {
        let tells = |limits: &&Vec<PlainLimit>| limits.iter().any(|other| limit.goes_on(other));
        self.limits.len() - self.limits.iter().rev().take_while(tells).count()
    }

    /// How the line at a place tells a limit, where it does.
    fn told(&self, place: usize, limit: &PlainLimit) -> Option<&PlainLimit> {
        let mut limits = self.limits.get(place)?.iter();
        limits.find(|other| limit.goes_on(other))
    }

    /// The instant up to which nothing counts for a limit that begins with the line at a place, or now;
    /// it looks back so far.
    fn begins_after(&self, place: usize, at: i64, back: i64) -> i64 {
        self.entries.get(place).map_or(at, |entry| entry.at) - back
    }

    /// The entries that count for a limit, with their places: all those from the place on, and of those
    /// before it what counts after the instant.
    fn counting(&self, place: usize, after: i64) -> impl Iterator<Item = (usize, &PlainEntry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(own, entry)| *own >= place || entry.counted_at > after)
    }
}
