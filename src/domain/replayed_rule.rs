//! All limits of a draft in a backtest: those of each subject, and those that all subjects share.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::claim::Units;
use super::grant::Direction;
use super::identity::{AccountId, EntryId};
use super::kind::EntryKind;
use super::limit::per::Per;
use super::limit::shape::{Limit, Shape};
use super::own_calendar::OwnCalendar;
use super::policy::Rule;
use super::replay::{ReplayedLimit, ReplayedUnits};
use super::replayed_top_ups::ReplayedTopUps;
use super::replayed_windows;
use super::top_up::TopUps;

/// A shared limit is one of an account that no subject has.
const ALL: AccountId = AccountId(Uuid::nil());

pub struct ReplayedRule {
    /// The calendar counts, and so do the maxima of its tiers.
    rule: Rule,
    /// The zones and the anchors that accounts have of their own.
    calendars: HashMap<AccountId, Arc<OwnCalendar>>,
    top_ups: ReplayedTopUps,
    own: Vec<ReplayedLimit>,
    shared: Vec<ReplayedLimit>,
}

/// The earliest instant of entries that count in a limit of each subject at an instant.
pub fn limit_counts_from(rule: &Rule, limit: &Limit, at: DateTime<Utc>) -> DateTime<Utc> {
    match limit.shape {
        Shape::Calendar(division) if rule.calendar_owner.lets_subjects_own() => {
            replayed_windows::counts_from(&rule.calendar, division, at)
        }
        _ => ReplayedLimit::counts_from(limit, &rule.calendar, at),
    }
}

fn shared(rule: &Rule) -> Vec<Limit> {
    rule.shared.iter().map(|limit| limit.limit()).collect()
}

impl ReplayedRule {
    /// The earliest instant of entries that count at an instant.
    pub fn counts_from(rule: &Rule, at: DateTime<Utc>) -> DateTime<Utc> {
        let shared = shared(rule);
        let shared = shared
            .iter()
            .map(|limit| ReplayedLimit::counts_from(limit, &rule.calendar, at));
        let own = rule
            .limits
            .iter()
            .map(|limit| limit_counts_from(rule, limit, at));
        own.chain(shared).min().unwrap_or(at)
    }

    /// A rule with nothing used at the start of the replay.
    pub fn new(rule: Rule, begin: DateTime<Utc>) -> Self {
        let shared_limit = |limit: &Limit| ReplayedLimit::new(limit, &rule.calendar, begin);
        let own_limit = if rule.calendar_owner.lets_subjects_own() {
            ReplayedLimit::of_subjects
        } else {
            ReplayedLimit::new
        };
        let own = rule.limits.iter();
        Self {
            calendars: HashMap::new(),
            top_ups: ReplayedTopUps::default(),
            own: own
                .map(|limit| own_limit(limit, &rule.calendar, begin))
                .collect(),
            shared: shared(&rule).iter().map(shared_limit).collect(),
            rule,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = (Option<AccountId>, &mut ReplayedLimit)> {
        let own = self.own.iter_mut().map(|limit| (None, limit));
        let shared = self.shared.iter_mut().map(|limit| (Some(ALL), limit));
        own.chain(shared)
    }

    /// Says which other maxima an account has from its next entry on.
    pub fn set_max(&mut self, account: AccountId, max_of: impl Fn(&Rule, Per) -> Option<u64>) {
        for limit in &mut self.own {
            limit.set_max(account, max_of(&self.rule, limit.per()));
        }
    }

    /// Says which calendar an account has at its next entry; `None` if the entry does not tell.
    pub fn set_calendar(
        &mut self,
        account: AccountId,
        told: Option<&Arc<OwnCalendar>>,
        at: DateTime<Utc>,
    ) {
        if !self.rule.calendar_owner.lets_subjects_own() {
            return;
        }
        let had = told.or_else(|| self.calendars.get(&account));
        let own = self.rule.own_calendar(had, None, at);
        let almanac = self.rule.almanac(own.as_deref());
        for limit in &mut self.own {
            limit.turn(account, &almanac, at);
        }
        if let Some(own) = own {
            self.calendars.insert(account, own);
        }
    }

    pub fn fits(&self, account: AccountId, units: Units, at: DateTime<Utc>) -> bool {
        let mut shared = self.shared.iter();
        let topped_up = self.top_ups.left(account);
        units.get() <= self.room(account, at).saturating_add(topped_up)
            && shared.all(|limit| units.get() <= limit.remaining(ALL, at))
    }

    fn room(&self, account: AccountId, at: DateTime<Utc>) -> u64 {
        let own = self.own.iter().map(|limit| limit.remaining(account, at));
        own.min().unwrap_or(u64::MAX)
    }

    /// Goes on to the next entry of an account, whose line has these top-ups.
    pub fn meet(
        &mut self,
        account: AccountId,
        id: EntryId,
        kind: EntryKind,
        told: Option<&Arc<TopUps>>,
    ) {
        self.top_ups.meet(account, id, kind, told);
    }

    /// Takes the units of a grant that fits: from the limits, and the rest from top-ups.
    pub fn grant(&mut self, moved: ReplayedUnits, kind: EntryKind) {
        let ReplayedUnits {
            account, id, units, ..
        } = moved;
        let at = id.at();
        let asked = (units, self.room(account, at));
        let own = self.top_ups.draw(account, id, asked, moved.is_given_back);
        for (all, limit) in self.all() {
            match (all, own) {
                (Some(account), _) => limit.take(ReplayedUnits { account, ..moved }),
                (None, Some(units)) => limit.take(ReplayedUnits { units, ..moved }),
                (None, None) => limit.pass(account, kind, at),
            }
        }
    }

    /// Takes the units of an adjustment.
    fn take(&mut self, moved: ReplayedUnits) {
        for (all, limit) in self.all() {
            let account = all.unwrap_or(moved.account);
            limit.take(ReplayedUnits { account, ..moved });
        }
    }

    pub fn give_back(
        &mut self,
        account: AccountId,
        units: Units,
        grant: EntryId,
        at: DateTime<Utc>,
    ) {
        let own = self.top_ups.give_back(account, grant, units);
        for (all, limit) in self.all() {
            match (all, own) {
                (Some(all), _) => limit.give_back(all, units, grant, at),
                (None, Some(own)) => limit.give_back(account, own, grant, at),
                (None, None) => {}
            }
        }
    }

    /// Gives back to top-ups what an entry gave back of a grant that is older than the replay.
    pub fn give_back_as(&mut self, account: AccountId, told: Option<&Arc<TopUps>>) {
        self.top_ups.give_back_as(account, told);
    }

    pub fn adjust(&mut self, moved: ReplayedUnits, direction: Direction) {
        match direction {
            Direction::Up => self.take(moved),
            Direction::Down => {
                for (all, limit) in self.all() {
                    let account = all.unwrap_or(moved.account);
                    limit.take_off(ReplayedUnits { account, ..moved });
                }
            }
        }
    }

    /// Notes an entry that moves no units. A reset begins limits of its account again.
    pub fn pass(&mut self, account: AccountId, kind: EntryKind, at: DateTime<Utc>) {
        for limit in &mut self.own {
            limit.pass(account, kind, at);
        }
    }

    /// Forgets units that have returned. If there were any, returns the earliest instant of entries that still
    /// count.
    pub fn move_on(&mut self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut has_moved = false;
        for limit in self.own.iter_mut().chain(&mut self.shared) {
            has_moved |= limit.move_on(&self.rule.calendar, at);
        }
        let limits = self.own.iter().chain(&self.shared);
        let starts = limits.map(|limit| limit.reaches_back_to(&self.rule.calendar, at));
        has_moved.then(|| starts.min().unwrap_or(at))
    }
}
