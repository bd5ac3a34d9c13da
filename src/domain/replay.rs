//! A limit of a draft in a backtest, with its usage.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::almanac::Almanac;
use super::claim::Units;
use super::identity::{AccountId, EntryId};
use super::kind::EntryKind;
use super::limit::per::Per;
use super::limit::rate::{AfterGrant, Afterwards, BucketChange};
use super::limit::shape::{Limit, LimitKind, Shape};
use super::limit::total::{GivenBack, Total};
use super::window::{Division, Window};

/// The usage of a limit by each account.
pub enum ReplayedLimit {
    /// All accounts have the same window, so nothing of the past is stored.
    Window {
        division: Division,
        max: u64,
        window: Window,
        used: HashMap<AccountId, u64>,
        /// The accounts whose limit was reset in this window.
        resets: HashMap<AccountId, DateTime<Utc>>,
    },
    Each(EachTotal),
}

/// A limit with a separate total for each account.
pub struct EachTotal {
    unused: Total,
    totals: HashMap<AccountId, Total>,
    /// The changes of each bucket since its first grant that will be given back.
    changes: HashMap<AccountId, Vec<(EntryId, BucketChange)>>,
    /// The instant at which accounts without usage were last removed.
    swept_at: DateTime<Utc>,
}

/// The units of a grant or of an adjustment.
#[derive(Debug, Clone, Copy)]
pub struct ReplayedUnits {
    pub account: AccountId,
    pub id: EntryId,
    pub units: Units,
    /// Whether some of the units will be given back.
    pub is_given_back: bool,
}

/// A replay has one rule, so every bucket goes on from the first line.
const FIRST_LINE: u64 = 1;
const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

impl ReplayedLimit {
    /// A limit with nothing used at the start of the replay.
    pub fn new(limit: &Limit, calendar: &Almanac, begin: DateTime<Utc>) -> Self {
        match limit.shape {
            Shape::Calendar(division) => Self::Window {
                division,
                max: limit.max,
                window: calendar.window(division, begin),
                used: HashMap::new(),
                resets: HashMap::new(),
            },
            _ => Self::Each(EachTotal {
                unused: Total::unused(limit, calendar, begin, FIRST_LINE),
                totals: HashMap::new(),
                changes: HashMap::new(),
                swept_at: begin,
            }),
        }
    }

    /// The earliest instant of entries that may count at an instant.
    pub fn counts_from(limit: &Limit, calendar: &Almanac, at: DateTime<Utc>) -> DateTime<Utc> {
        let unused = Total::unused(limit, calendar, at, FIRST_LINE);
        at.min(unused.forgets_at(at) + MICROSECOND)
    }

    /// The same, at the instant that the replay has reached.
    pub fn reaches_back_to(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::Window { window, .. } => window.start,
            Self::Each(each) => each.unused.forgets_at(at),
        }
    }

    /// Forgets units that have returned. Returns whether there were any.
    pub fn move_on(&mut self, calendar: &Almanac, at: DateTime<Utc>) -> bool {
        match self {
            Self::Window {
                division,
                window,
                used,
                resets,
                ..
            } => {
                let is_over = window.end <= at;
                if is_over {
                    *window = calendar.window(*division, at);
                    used.clear();
                    resets.clear();
                }
                is_over
            }
            Self::Each(each) => each.sweep(at),
        }
    }

    pub fn fits(&mut self, account: AccountId, units: Units, at: DateTime<Utc>) -> bool {
        match self {
            Self::Window { max, used, .. } => {
                let used = used.get(&account).copied().unwrap_or_default();
                used.saturating_add(units.get()) <= *max
            }
            Self::Each(each) => each.total(account, at).fits(units),
        }
    }

    /// Takes the units of a grant or of an adjustment.
    pub fn take(&mut self, moved: ReplayedUnits) {
        match self {
            Self::Window { used, .. } => {
                let used = used.entry(moved.account).or_default();
                *used = used.saturating_add(moved.units.get());
            }
            Self::Each(each) => {
                let at = moved.id.at();
                let total = each.total(moved.account, at);
                total.add(moved.units.get(), at, at);
                each.note(moved, true);
            }
        }
    }

    /// Takes off the units of an adjustment.
    pub fn take_off(&mut self, moved: ReplayedUnits) {
        match self {
            Self::Window { .. } => self.lower(moved.account, moved.units, moved.id.at()),
            Self::Each(each) => {
                let at = moved.id.at();
                let total = each.total(moved.account, at);
                total.lower(moved.units.get(), at, at, &Afterwards::NOTHING);
                each.note(moved, false);
            }
        }
    }

    /// Begins the limit of an account again, if an entry of this kind does.
    pub fn reset(&mut self, account: AccountId, kind: EntryKind, at: DateTime<Utc>) {
        match self {
            Self::Window {
                division,
                used,
                resets,
                ..
            } if kind.resets(Per::from(*division)) => {
                used.remove(&account);
                resets.insert(account, at);
            }
            Self::Each(each) if kind.resets(each.unused.per()) => {
                each.total(account, at).reset(at);
            }
            Self::Window { .. } | Self::Each(_) => {}
        }
    }

    /// Lowers the usage of the window, if the window contains an instant.
    fn lower(&mut self, account: AccountId, units: Units, counted_at: DateTime<Utc>) {
        if let Self::Window {
            window,
            used,
            resets,
            ..
        } = self
            && window.contains(counted_at)
            && resets.get(&account) <= Some(&counted_at)
            && let Some(used) = used.get_mut(&account)
        {
            *used = used.saturating_sub(units.get());
        }
    }

    pub fn give_back(
        &mut self,
        account: AccountId,
        units: Units,
        grant: EntryId,
        at: DateTime<Utc>,
    ) {
        match self {
            Self::Window { .. } => self.lower(account, units, grant.at()),
            Self::Each(each) => {
                let after = each.after(account, grant, units);
                let given = GivenBack {
                    units,
                    granted_at: grant.at(),
                    after: after.as_ref(),
                };
                each.total(account, at).give_back(given, at);
            }
        }
    }
}

impl EachTotal {
    /// Notes a change of a bucket, from the first grant on that will be given back.
    fn note(&mut self, moved: ReplayedUnits, takes: bool) {
        let ReplayedUnits { account, id, .. } = moved;
        let is_noted = moved.is_given_back || self.changes.contains_key(&account);
        if self.unused.kind() == LimitKind::Rate && is_noted {
            let change = BucketChange {
                at: id.at(),
                counted_at: id.at(),
                units: moved.units.get(),
                takes,
            };
            self.changes.entry(account).or_default().push((id, change));
        }
    }

    /// The changes after a grant of which units are given back.
    fn after(&mut self, account: AccountId, grant: EntryId, units: Units) -> Option<AfterGrant> {
        let changes = self.changes.get_mut(&account)?;
        let place = changes.iter().position(|(id, _)| *id == grant)?;
        let later = changes[place + 1..].iter().map(|(_, change)| *change);
        let after = AfterGrant {
            grant: changes[place].1,
            after: Afterwards {
                line: FIRST_LINE,
                changes: later.collect(),
            },
        };
        let own = &mut changes[place].1;
        own.units = own.units.saturating_sub(units.get());
        Some(after)
    }

    fn total(&mut self, account: AccountId, at: DateTime<Utc>) -> &mut Total {
        let total = self.totals.entry(account);
        let total = total.or_insert_with(|| self.unused.clone());
        total.age(at);
        total
    }

    /// Removes accounts without usage, once in each span of time in which entries can count.
    fn sweep(&mut self, at: DateTime<Utc>) -> bool {
        let forgets_at = self.unused.forgets_at(at);
        let is_due = self.swept_at <= forgets_at;
        if is_due {
            self.swept_at = at;
            self.totals.retain(|_, total| {
                total.age(at);
                total.resets_at().is_some() || total.used() > 0 || total.reset_at.is_some()
            });
            // Nothing is given back of a grant that is older than all that counts.
            self.changes.retain(|_, changes| {
                changes.retain(|(_, change)| forgets_at < change.at);
                !changes.is_empty()
            });
        }
        is_due
    }
}
