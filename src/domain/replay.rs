//! A limit of a draft in a backtest, with its usage.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::almanac::Almanac;
use super::claim::Units;
use super::identity::{AccountId, EntryId};
use super::limit::shape::{Limit, Shape};
use super::limit::total::{GivenBack, Total};
use super::window::{Length, Window};

/// The usage of a limit by each account.
pub enum ReplayedLimit {
    /// All accounts have the same window, so nothing of the past is stored.
    Window {
        length: Length,
        max: u64,
        window: Window,
        used: HashMap<AccountId, u64>,
    },
    Each(EachTotal),
}

/// A limit with a separate total for each account.
pub struct EachTotal {
    unused: Total,
    totals: HashMap<AccountId, Total>,
    /// The totals after grants that will be given back, if the limit asks for them.
    granted: HashMap<EntryId, (AccountId, Total)>,
    /// The instant at which accounts without usage were last removed.
    swept_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy)]
pub struct ReplayedGrant {
    pub account: AccountId,
    pub id: EntryId,
    pub units: Units,
    pub is_given_back: bool,
}

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

impl ReplayedLimit {
    /// A limit with nothing used at the start of the replay.
    pub fn new(limit: &Limit, calendar: &Almanac, begin: DateTime<Utc>) -> Self {
        match limit.shape {
            Shape::Calendar(length) => Self::Window {
                length,
                max: limit.max,
                window: calendar.window(length, begin),
                used: HashMap::new(),
            },
            _ => Self::Each(EachTotal {
                unused: Total::unused(limit, calendar, begin, 1),
                totals: HashMap::new(),
                granted: HashMap::new(),
                swept_at: begin,
            }),
        }
    }

    /// The earliest instant of entries that may count at an instant.
    pub fn counts_from(limit: &Limit, calendar: &Almanac, at: DateTime<Utc>) -> DateTime<Utc> {
        let unused = Total::unused(limit, calendar, at, 1);
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
                length,
                window,
                used,
                ..
            } => {
                let is_over = window.end <= at;
                if is_over {
                    *window = calendar.window(*length, at);
                    used.clear();
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

    /// Takes units that count at an instant.
    pub fn take(&mut self, account: AccountId, units: Units, at: DateTime<Utc>) {
        match self {
            Self::Window { used, .. } => {
                let used = used.entry(account).or_default();
                *used = used.saturating_add(units.get());
            }
            Self::Each(each) => each.total(account, at).add(units.get(), at, at),
        }
    }

    pub fn grant(&mut self, grant: ReplayedGrant) {
        let ReplayedGrant {
            account, id, units, ..
        } = grant;
        self.take(account, units, id.at());
        if let Self::Each(each) = self
            && grant.is_given_back
        {
            let total = each.total(account, id.at());
            if total.asks_for_grant() {
                let total = total.clone();
                each.granted.insert(id, (account, total));
            }
        }
    }

    /// Takes off units that count at an instant.
    pub fn take_off(&mut self, account: AccountId, units: Units, at: DateTime<Utc>) {
        match self {
            Self::Window { window, used, .. } => {
                if window.contains(at)
                    && let Some(used) = used.get_mut(&account)
                {
                    *used = used.saturating_sub(units.get());
                }
            }
            Self::Each(each) => each.total(account, at).lower(units.get(), at, at),
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
            Self::Window { .. } => self.take_off(account, units, grant.at()),
            Self::Each(each) => {
                let granted = each.granted.remove(&grant).map(|(_, total)| total);
                let given = GivenBack {
                    units,
                    granted_at: grant.at(),
                    totals: granted.as_slice(),
                };
                each.total(account, at).give_back(given, at);
            }
        }
    }
}

impl EachTotal {
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
                total.resets_at().is_some() || total.used() > 0
            });
            // An account that comes again starts with a full bucket: no earlier grant is given
            // back.
            let totals = &self.totals;
            self.granted
                .retain(|_, (account, _)| totals.contains_key(account));
        }
        is_due
    }
}
