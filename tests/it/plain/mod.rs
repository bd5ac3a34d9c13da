//! The plain model: the usage of limits whose units return after a time (`from_first_claim`,
//! `sliding` and `rate`), by their definitions alone.
//!
//! The model uses no code of perdiem and stores no totals. For each question it reads all entries
//! of an account again. The judge, the simulator and the random histories compare perdiem's totals
//! with it.
//!
//! Read `PlainAccount` first: `push` adds an entry, and `state` computes the usage at an instant.
//! `first_claim`, `sliding` and `rate` each compute one kind of limit. `spans` checks that no span
//! of time exceeds a limit. A calendar window needs no model: its usage is a sum. All instants are
//! microseconds since 1970.

mod first_claim;
mod rate;
mod sliding;
mod spans;

#[derive(Debug, Clone, Copy)]
pub struct PlainEntry {
    pub effect: Effect,
    pub units: u64,
    /// The instant of the entry's line.
    pub at: i64,
    /// The instant at which the units count. An entry that gives units back has the grant's
    /// instant.
    pub counted_at: i64,
}

/// The effect of an entry on the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A grant that the ledger's rule decided.
    Grant,
    /// Units that were taken in another way: by an adjustment, without the ledger, or over the
    /// limit.
    Take,
    /// Gives back the units of the entry at this place in the account.
    GiveBack(usize),
    /// An adjustment takes off units that were taken at or before its instant.
    TakeOff,
    /// Begins the limit with this `per` again, or all limits.
    Reset(Option<i64>),
    Nothing,
}

impl PlainEntry {
    /// The usage after the entry, if it was `used` before and the units count.
    fn used_after(&self, used: u64) -> u64 {
        match self.effect {
            Effect::Grant | Effect::Take => used + self.units,
            Effect::GiveBack(_) | Effect::TakeOff => used.saturating_sub(self.units),
            Effect::Reset(_) | Effect::Nothing => used,
        }
    }
}

impl Effect {
    fn takes(self) -> bool {
        matches!(self, Self::Grant | Self::Take)
    }

    fn moves(self) -> bool {
        !matches!(self, Self::Reset(_) | Self::Nothing)
    }

    fn resets(self, limit: &PlainLimit) -> bool {
        matches!(self, Self::Reset(per) if per.is_none_or(|per| per == limit.per))
    }
}

/// How the units of a limit return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// All units return `per` after the first grant.
    FromFirstClaim,
    /// Each unit returns `per` after its grant. With a step, a grant's instant is rounded up to the
    /// step.
    Sliding { step: Option<i64> },
    /// Units return evenly, `max` in each `per`; at most `burst` can be taken at once.
    Rate { burst: u64 },
}

/// A limit as a line has it.
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

    /// Whether this limit continues from a line that has the other limit.
    fn goes_on(&self, other: &Self) -> bool {
        let is_same_kind = match (self.returns, other.returns) {
            (Return::Rate { .. }, Return::Rate { .. }) => true,
            (one, two) => one == two,
        };
        is_same_kind && self.per == other.per
    }
}

/// An account's usage of a limit at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainState {
    /// The start of the open window, if there is one, and the units used in it.
    Opened {
        at: Option<i64>,
        used: u64,
    },
    /// The units, by the instants at which they count.
    Log(Vec<(i64, u64)>),
    Bucket(PlainBucket),
}

/// What a bucket lacks, in parts of a unit. A unit has as many parts as `per` has microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainBucket {
    /// The instant of this state.
    pub at: i64,
    pub owed: i128,
    /// The place of the first entry under the same `max` and `burst`; the number of entries if there
    /// is none.
    pub since: usize,
}

impl PlainState {
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

    /// The start of the open window.
    pub fn opened_at(&self) -> Option<i64> {
        match self {
            Self::Opened { at, .. } => *at,
            Self::Log(_) | Self::Bucket(_) => None,
        }
    }

    pub fn left(&self, limit: &PlainLimit) -> u64 {
        limit.at_once().saturating_sub(self.used(limit))
    }
}

/// An account: its entries, and the limits of each entry's line.
#[derive(Debug, Clone, Default)]
pub struct PlainAccount {
    entries: Vec<PlainEntry>,
    limits: Vec<Vec<PlainLimit>>,
}

impl PlainAccount {
    /// Adds the next entry, and the limits of its line.
    pub fn push(&mut self, entry: PlainEntry, limits: Vec<PlainLimit>) {
        self.entries.push(entry);
        self.limits.push(limits);
    }

    /// The usage of a limit at an instant that is not before the last entry's.
    pub fn state(&self, limit: &PlainLimit, at: i64) -> PlainState {
        match limit.returns {
            Return::FromFirstClaim => self.opened(limit, at),
            Return::Sliding { step } => self.log(limit, step.unwrap_or(1), at),
            Return::Rate { .. } => PlainState::Bucket(self.bucket(limit, at)),
        }
    }

    /// The first place from which all lines have a limit; the number of lines if the last line does
    /// not have it.
    fn kept_from(&self, limit: &PlainLimit) -> usize {
        let tells = |limits: &&Vec<PlainLimit>| limits.iter().any(|other| limit.goes_on(other));
        self.limits.len() - self.limits.iter().rev().take_while(tells).count()
    }

    /// The limit in the line at a place, if the line has it.
    fn told(&self, place: usize, limit: &PlainLimit) -> Option<&PlainLimit> {
        let mut limits = self.limits.get(place)?.iter();
        limits.find(|other| limit.goes_on(other))
    }

    /// The units that entries give back of the entry at a place.
    fn given_back(&self, place: usize) -> u64 {
        let gives = |entry: &&PlainEntry| entry.effect == Effect::GiveBack(place);
        let entries = self.entries.iter().filter(gives);
        entries.map(|entry| entry.units).sum()
    }

    /// The instant of the line before a place: there a new limit begins.
    fn line_before(&self, place: usize) -> Option<i64> {
        Some(self.entries[place.checked_sub(1)?].at)
    }

    /// The entries that count for a limit, with their places: every entry from the place on, and
    /// each earlier entry that counts at most this long before the line before the place. After a reset
    /// of the limit only entries that count at its instant or later.
    fn counting(&self, limit: &PlainLimit, place: usize, back: i64) -> Vec<(usize, &PlainEntry)> {
        let after = self.line_before(place).map_or(i64::MIN, |at| at - back);
        let entries = self.entries.iter().enumerate();
        let near = entries.filter(|(own, entry)| *own >= place || entry.counted_at > after);
        let mut counting: Vec<(usize, &PlainEntry)> = near.collect();
        let mut latest_first = counting.iter().rev();
        let reset = latest_first.find(|(_, entry)| entry.effect.resets(limit));
        if let Some((_, PlainEntry { at: reset_at, .. })) = reset.copied() {
            counting.retain(|(_, entry)| *reset_at <= entry.counted_at);
        }
        counting
    }
}
