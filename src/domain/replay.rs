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
use super::replayed_windows::{OwnWindow, UseChange, counts_from};
use super::window::{Division, Window};

/// The usage of a limit by each account.
pub enum ReplayedLimit {
    /// All accounts have the same window, so nothing of the past is stored.
    Window {
        division: Division,
        max: u64,
        others: OtherMaxima,
        window: Window,
        used: HashMap<AccountId, u64>,
        /// The accounts whose limit was reset in this window.
        resets: HashMap<AccountId, DateTime<Utc>>,
    },
    Own {
        division: Division,
        max: u64,
        others: OtherMaxima,
        uses: HashMap<AccountId, OwnWindow>,
        /// The window of the policy's calendar in which accounts without usage were last removed.
        swept_in: Window,
    },
    Each(EachTotal),
}

/// The accounts that have exceptions at some time, with the `max` of the present one.
type OtherMaxima = HashMap<AccountId, Option<u64>>;

/// A limit with a separate total for each account.
pub struct EachTotal {
    limit: Limit,
    calendar: Almanac,
    unused: Total,
    /// The totals of the last entries.
    totals: HashMap<AccountId, Total>,
    others: OtherMaxima,
    /// The number of the next entry, of any account.
    line: u64,
    /// The changes of each bucket since its first grant that will be given back.
    changes: HashMap<AccountId, Vec<NotedChange>>,
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

/// A change of a bucket, with the entry that made it.
struct NotedChange {
    id: EntryId,
    line: u64,
    change: BucketChange,
}

const FIRST_LINE: u64 = 1;
const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

impl ReplayedLimit {
    /// A limit with nothing used at the start of the replay.
    pub fn new(limit: &Limit, calendar: &Almanac, begin: DateTime<Utc>) -> Self {
        match limit.shape {
            Shape::Calendar(division) => Self::Window {
                division,
                max: limit.max,
                others: HashMap::new(),
                window: calendar.window(division, begin),
                used: HashMap::new(),
                resets: HashMap::new(),
            },
            _ => Self::Each(EachTotal {
                limit: *limit,
                calendar: calendar.clone(),
                unused: Total::unused(limit, calendar, begin, FIRST_LINE),
                totals: HashMap::new(),
                others: HashMap::new(),
                line: FIRST_LINE,
                changes: HashMap::new(),
                swept_at: begin,
            }),
        }
    }

    /// A limit whose windows follow the calendar of each account.
    pub fn of_subjects(limit: &Limit, calendar: &Almanac, begin: DateTime<Utc>) -> Self {
        match limit.shape {
            Shape::Calendar(division) => Self::Own {
                division,
                max: limit.max,
                others: HashMap::new(),
                uses: HashMap::new(),
                swept_in: calendar.window(division, begin),
            },
            _ => Self::new(limit, calendar, begin),
        }
    }

    /// The earliest instant of entries that may count at an instant.
    pub fn counts_from(limit: &Limit, calendar: &Almanac, at: DateTime<Utc>) -> DateTime<Utc> {
        let unused = Total::unused(limit, calendar, at, FIRST_LINE);
        at.min(unused.forgets_at(at) + MICROSECOND)
    }

    /// The same, at the instant that the replay has reached.
    pub fn reaches_back_to(&self, calendar: &Almanac, at: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::Window { window, .. } => window.start,
            Self::Own { division, .. } => counts_from(calendar, *division, at),
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
            Self::Own {
                division,
                uses,
                swept_in,
                ..
            } => {
                let is_over = swept_in.end <= at;
                if is_over {
                    *swept_in = calendar.window(*division, at);
                    let before = counts_from(calendar, *division, at);
                    uses.retain(|_, own| own.forget(before, at));
                }
                is_over
            }
            Self::Each(each) => each.sweep(at),
        }
    }

    /// Says which calendar an account has at its next entry.
    pub fn turn(&mut self, account: AccountId, calendar: &Almanac, at: DateTime<Utc>) {
        if let Self::Own { division, uses, .. } = self {
            let next = || calendar.window(*division, at);
            let own = OwnWindow::at(uses.remove(&account), at, next);
            uses.insert(account, own);
        }
    }

    /// Notes a change in the window of an account, if the windows follow its calendar.
    fn note(&mut self, account: AccountId, counted_at: DateTime<Utc>, change: UseChange) {
        if let Self::Own { uses, .. } = self
            && let Some(own) = uses.get_mut(&account)
        {
            own.note(counted_at, change);
        }
    }

    pub fn per(&self) -> Per {
        match self {
            Self::Window { division, .. } | Self::Own { division, .. } => Per::from(*division),
            Self::Each(each) => each.unused.per(),
        }
    }

    /// Says which other `max` an account has from its next entry on, if any. Accounts that never have one
    /// need not be told.
    pub fn set_max(&mut self, account: AccountId, other: Option<u64>) {
        let others = match self {
            Self::Window { others, .. } | Self::Own { others, .. } => others,
            Self::Each(each) => &mut each.others,
        };
        others.insert(account, other);
    }

    /// The units that an account has left. A claim that is denied is no entry, and changes nothing.
    pub fn remaining(&self, account: AccountId, at: DateTime<Utc>) -> u64 {
        match self {
            Self::Window {
                max, others, used, ..
            } => {
                let other = others.get(&account).copied().flatten();
                let used = used.get(&account).copied().unwrap_or_default();
                other.unwrap_or(*max).saturating_sub(used)
            }
            Self::Own {
                max, others, uses, ..
            } => {
                let other = others.get(&account).copied().flatten();
                let used = uses.get(&account).map_or(0, OwnWindow::used);
                other.unwrap_or(*max).saturating_sub(used)
            }
            Self::Each(each) => each.moved(account, at).remaining(),
        }
    }

    /// Takes the units of a grant or of an adjustment.
    pub fn take(&mut self, moved: ReplayedUnits) {
        match self {
            Self::Window { used, .. } => {
                let used = used.entry(moved.account).or_default();
                *used = used.saturating_add(moved.units.get());
            }
            Self::Own { .. } => {
                self.note(moved.account, moved.id.at(), UseChange::Take(moved.units))
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
            Self::Own { .. } => {
                self.note(moved.account, moved.id.at(), UseChange::Lower(moved.units))
            }
            Self::Each(each) => {
                let at = moved.id.at();
                let total = each.total(moved.account, at);
                total.lower(moved.units.get(), at, at, &Afterwards::NOTHING);
                each.note(moved, false);
            }
        }
    }

    /// Notes an entry that moves no units. It begins the limit of the account again, if its kind does.
    pub fn pass(&mut self, account: AccountId, kind: EntryKind, at: DateTime<Utc>) {
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
            Self::Own { division, .. } if kind.resets(Per::from(*division)) => {
                self.note(account, at, UseChange::Reset);
            }
            Self::Own { uses, .. } => {
                if let Some(own) = uses.get_mut(&account) {
                    own.begin();
                }
            }
            Self::Window { .. } => {}
            Self::Each(each) => {
                let is_its = kind.resets(each.unused.per());
                let total = each.total(account, at);
                if is_its {
                    total.reset(at);
                }
            }
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
            Self::Own { .. } => self.note(account, grant.at(), UseChange::Lower(units)),
            Self::Each(each) => {
                let after = each.after(account, grant, units);
                // A bucket knows each grant that it can get back. Others were denied, and are no entries.
                if after.is_none() && each.unused.kind() == LimitKind::Rate {
                    return;
                }
                let given = GivenBack {
                    units: units.get(),
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
            let line = self.line - 1;
            let noted = NotedChange { id, line, change };
            self.changes.entry(account).or_default().push(noted);
        }
    }

    /// The changes after a grant of which units are given back.
    fn after(&mut self, account: AccountId, grant: EntryId, units: Units) -> Option<AfterGrant> {
        let changes = self.changes.get_mut(&account)?;
        let place = changes.iter().position(|noted| noted.id == grant)?;
        let later = changes[place + 1..].iter().map(|noted| noted.change);
        let after = AfterGrant {
            grant: changes[place].change,
            after: Afterwards {
                line: changes[place].line,
                changes: later.collect(),
            },
        };
        let own = &mut changes[place].change;
        own.units = own.units.saturating_sub(units.get());
        Some(after)
    }

    /// The total of an account at an instant, under the `max` that it has then.
    fn moved(&self, account: AccountId, at: DateTime<Utc>) -> Total {
        let mut total = match self.others.get(&account) {
            Some(Some(max)) => {
                let limit = self.limit.with_max(*max);
                Total::unused(&limit, &self.calendar, at, self.line)
            }
            Some(None) | None => self.unused.emptied(at, self.line),
        };
        if let Some(before) = self.totals.get(&account) {
            total.go_on(before, at);
        }
        total
    }

    /// The total of the next entry of an account.
    fn total(&mut self, account: AccountId, at: DateTime<Utc>) -> &mut Total {
        let moved = self.moved(account, at);
        self.line += 1;
        self.totals.entry(account).insert_entry(moved).into_mut()
    }

    /// Removes accounts without usage, once in each span of time in which entries can count.
    fn sweep(&mut self, at: DateTime<Utc>) -> bool {
        let forgets_at = self.unused.forgets_at(at);
        let is_due = self.swept_at <= forgets_at;
        if is_due {
            self.swept_at = at;
            // Under another max, less would have returned since the last entry.
            let others = &self.others;
            self.totals.retain(|account, total| {
                others.contains_key(account) || {
                    total.age(at);
                    total.resets_at().is_some() || total.used() > 0 || total.reset_at.is_some()
                }
            });
            // Nothing is given back of a grant that is older than all that counts.
            self.changes.retain(|account, changes| {
                others.contains_key(account) || {
                    changes.retain(|noted| forgets_at < noted.change.at);
                    !changes.is_empty()
                }
            });
        }
        is_due
    }
}
