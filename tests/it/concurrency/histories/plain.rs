//! The plain model of the histories: a list of entries with their instants. Each operation follows
//! the definitions of the glossary.

use std::collections::HashMap;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use perdiem::domain::almanac::Almanac;
use perdiem::domain::limit::shape::{Limit, Shape};
use perdiem::domain::own_calendar::{CalendarOwner, OwnCalendar};
use perdiem::domain::window::{Calendar, Length};
use perdiem::domain::zone::Zone;
use serde_json::Value;

use super::entries::{Entry, Given, Source, What};
use super::limits::{Dividing, can_take_off, used_and_left};
use super::steps::{Adjustment, CALENDARS, Claim, Move, OverrideChoice, Reset, RuleChoice};

/// A grant, and what became of it.
#[derive(Clone)]
pub struct Grant {
    pub claim: Claim,
    /// The number of the grant's entry.
    pub entry: usize,
    pub at: DateTime<Utc>,
    pub id: String,
    /// The limits in the answer.
    pub limits: Value,
    /// The answer to the confirmation.
    pub confirmed: Option<Value>,
    /// The units that partial reversals gave back.
    pub returned: u64,
    /// Where each unit that is left came from, in the order in which they were taken.
    pub sources: Vec<Source>,
    /// The units that came from top-ups.
    pub topped_up: u64,
    pub closed: Option<Closed>,
}

#[derive(Clone)]
pub enum Closed {
    /// The answer to the reversal.
    Reversed(Value),
    Lapsed,
}

/// An adjustment that was made.
#[derive(Clone)]
pub struct Adjusted {
    pub subject: usize,
    pub units: i64,
    /// The instant in whose windows the units count.
    pub at: DateTime<Utc>,
    pub entered_at: DateTime<Utc>,
    pub answer: Value,
}

/// The request that a key belongs to.
#[derive(Clone, Copy)]
pub enum Done {
    /// The grant in this place.
    Grant(usize),
    /// The adjustment in this place.
    Adjustment(usize),
    /// The reset in this place.
    Reset(usize),
    /// The move in this place.
    Move(usize),
    /// The top-up in this place.
    TopUp(usize),
}

/// The expected outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Granted,
    /// The claim gets the grant in this place again.
    Repeated(usize),
    /// The grant of the key was reversed.
    Reversed,
    /// The hold of the key lapsed.
    Lapsed,
    KeyReused,
    /// The policy is archived.
    Unknown,
    /// The policy is paused.
    Inactive,
    NeverFits,
    /// The calendar of the policy divides time, and the claim tells another one.
    NoCalendar,
    Denied,
}

#[derive(Clone)]
pub struct Version {
    pub choice: RuleChoice,
    effective_at: DateTime<Utc>,
    is_archived: bool,
}

/// The whole state of the model.
#[derive(Clone, Default)]
pub struct Model {
    pub versions: Vec<Version>,
    overrides: HashMap<usize, (OverrideChoice, Option<DateTime<Utc>>)>,
    tiers: HashMap<usize, (&'static str, Option<DateTime<Utc>>)>,
    pub entries: Vec<Entry>,
    pub grants: Vec<Grant>,
    pub adjustments: Vec<Adjusted>,
    /// The resets that were made, with their answers.
    pub resets: Vec<(Reset, Value)>,
    /// The moves that were made, with their answers.
    pub moves: Vec<(Move, Value)>,
    pub top_ups: Vec<Given>,
    pub keys: HashMap<usize, Done>,
    /// The bundle of each key of a batch: its claims, and the place of its first grant.
    pub bundles: HashMap<usize, (Vec<Claim>, usize)>,
    /// Until this instant, counters that were rolled back may deny as if no unit was given back.
    pub doubtful_until: Option<DateTime<Utc>>,
}

impl Grant {
    pub fn held_until(&self) -> Option<DateTime<Utc>> {
        let seconds = self.claim.hold_seconds?;
        Some(self.at + TimeDelta::seconds(seconds.cast_signed()))
    }

    /// The units that no partial reversal gave back.
    pub fn left(&self) -> u64 {
        self.claim.units - self.returned
    }

    pub fn state(&self, now: DateTime<Utc>) -> &'static str {
        match (&self.closed, self.held_until()) {
            (Some(Closed::Reversed(_)), _) => "reversed",
            (Some(Closed::Lapsed), _) => "lapsed",
            (None, Some(until)) if self.confirmed.is_none() => {
                if now < until {
                    "held"
                } else {
                    "lapsed"
                }
            }
            (None, _) => "granted",
        }
    }

    /// Whether two claims ask for the same.
    pub fn is(&self, claim: Claim) -> bool {
        let what = |claim: Claim| (claim.subject, claim.units, claim.hold_seconds);
        what(self.claim) == what(claim)
    }
}

impl Adjusted {
    /// Whether the adjustment equals another one that names this instant.
    pub fn is(&self, other: &Adjustment, at: Option<DateTime<Utc>>) -> bool {
        (self.subject, self.units) == (other.subject, other.units)
            && self.at == at.unwrap_or(self.entered_at)
    }
}

impl Model {
    /// The policy's highest version, in force or not; `None` after the policy is archived.
    fn newest(&self) -> Option<&Version> {
        self.versions.last().filter(|version| !version.is_archived)
    }

    /// The number of the highest version whose time has come.
    pub fn version_at(&self, now: DateTime<Utc>) -> usize {
        let mut versions = self.versions.iter();
        let found = versions.rposition(|version| version.effective_at <= now);
        found.expect("the first version")
    }

    pub fn in_force(&self, now: DateTime<Utc>) -> &Version {
        &self.versions[self.version_at(now)]
    }

    pub fn is_archived(&self, now: DateTime<Utc>) -> bool {
        self.in_force(now).is_archived
    }

    pub fn is_doubtful(&self, now: DateTime<Utc>) -> bool {
        self.doubtful_until.is_some_and(|until| now <= until)
    }

    pub fn is_paused(&self, now: DateTime<Utc>) -> bool {
        self.in_force(now).choice.is_paused
    }

    /// Puts the policy: at once, or from its next day on. Returns the instant from which the
    /// version is in force; `None` if the change waits and there is no policy.
    pub fn put(
        &mut self,
        choice: RuleChoice,
        waits: bool,
        now: DateTime<Utc>,
    ) -> Option<DateTime<Utc>> {
        let is_so =
            |newest: &Version| newest.choice == choice && (waits || newest.effective_at <= now);
        if let Some(newest) = self.newest().filter(|newest| is_so(newest)) {
            return Some(newest.effective_at);
        }
        // The calendar stays while a total counts by it.
        let before = self.newest().map(|version| version.choice);
        let has_total = |choice: &RuleChoice| choice.total.is_some();
        let calendar = |choice: RuleChoice| choice.rule().calendar;
        if let Some(before) = before.filter(has_total)
            && has_total(&choice)
            && calendar(before) != calendar(choice)
        {
            return None;
        }
        let effective_at = if waits {
            self.newest()?;
            let calendar = self.in_force(now).choice.rule().calendar;
            calendar.window(Length::Day, now).end
        } else {
            now
        };
        self.versions.push(Version {
            choice,
            effective_at,
            is_archived: false,
        });
        Some(effective_at)
    }

    /// The choice with the pause that the policy has: a change keeps it.
    pub fn with_pause(&self, choice: RuleChoice, now: DateTime<Utc>) -> RuleChoice {
        let is_paused = !self.versions.is_empty() && self.is_paused(now);
        choice.with_pause(is_paused)
    }

    /// Pauses the policy, or ends its pause. What is scheduled stays so. Returns the status.
    pub fn pause(&mut self, is_paused: bool, now: DateTime<Utc>) -> u16 {
        let Some(newest) = self.newest().cloned() else {
            return 404;
        };
        if self.is_paused(now) == is_paused {
            return if is_paused { 200 } else { 404 };
        }
        let with_pause = |version: &Version| version.choice.with_pause(is_paused);
        let at_once = Version {
            choice: with_pause(self.in_force(now)),
            effective_at: now,
            is_archived: false,
        };
        self.versions.push(at_once);
        if newest.effective_at > now {
            let choice = with_pause(&newest);
            self.versions.push(Version { choice, ..newest });
        }
        200
    }

    /// Archives the policy. Returns whether it was not archived before.
    pub fn archive(&mut self, now: DateTime<Utc>) -> bool {
        let Some(newest) = self.newest().cloned() else {
            return false;
        };
        self.versions.push(Version {
            effective_at: now,
            is_archived: true,
            ..newest
        });
        true
    }

    /// Puts a subject's override, if the policy is not archived and has the limit now or will have it.
    pub fn put_override(
        &mut self,
        subject: usize,
        choice: OverrideChoice,
        until: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<(), &'static str> {
        let newest = self.newest().ok_or("unknown-policy")?;
        let mut limits = newest.choice.rule().limits;
        limits.extend(self.in_force(now).choice.rule().limits);
        if limits.iter().all(|limit| limit.per() != choice.per()) {
            return Err("invalid");
        }
        self.overrides.insert(subject, (choice, until));
        Ok(())
    }

    /// Deletes a subject's override, if there is one.
    pub fn delete_override(&mut self, subject: usize) -> Result<(), &'static str> {
        self.newest().ok_or("unknown-policy")?;
        self.overrides
            .remove(&subject)
            .map_or(Err("not-found"), |_| Ok(()))
    }

    /// Puts a subject into a tier, if the policy is not archived and has the tier now or will have it.
    pub fn put_tier(
        &mut self,
        subject: usize,
        tier: &'static str,
        until: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<(), &'static str> {
        let newest = self.newest().ok_or("unknown-policy")?;
        let mut tiers = newest.choice.tiers();
        tiers.extend(self.in_force(now).choice.tiers());
        if tiers.iter().all(|(name, _)| *name != tier) {
            return Err("invalid");
        }
        self.tiers.insert(subject, (tier, until));
        Ok(())
    }

    /// Takes a subject out of its tier, if it is in one.
    pub fn end_tier(&mut self, subject: usize) -> Result<(), &'static str> {
        self.newest().ok_or("unknown-policy")?;
        self.tiers
            .remove(&subject)
            .map_or(Err("not-found"), |_| Ok(()))
    }

    /// The maxima of the tier that a subject is in.
    fn tier_of(&self, subject: usize, now: DateTime<Utc>) -> Vec<(String, u64)> {
        let Some((name, until)) = self.tiers.get(&subject) else {
            return Vec::new();
        };
        let tiers = self.in_force(now).choice.tiers();
        let holds = until.is_none_or(|until| now < until);
        let found = tiers.into_iter().find(|(tier, _)| holds && tier == name);
        found.map_or(Vec::new(), |(_, maxima)| maxima)
    }

    /// The limits that hold for a subject.
    pub fn limits(&self, subject: usize, now: DateTime<Utc>) -> Vec<Limit> {
        let overridden = self.overrides.get(&subject);
        let overridden = overridden.filter(|(_, until)| until.is_none_or(|until| now < until));
        let rule = self.in_force(now).choice.rule();
        let tier = self.tier_of(subject, now);
        let limits = rule.limits.iter().map(|limit| {
            let of_tier = tier.iter().find(|(per, _)| *per == limit.per().to_string());
            let limit = of_tier.map_or(*limit, |(_, max)| limit.with_max(*max));
            let other = overridden.filter(|(other, _)| other.per() == limit.per());
            other.map_or(limit, |(other, _)| limit.with_max(other.max))
        });
        limits.collect()
    }

    /// The units used and left of each limit, by the calendar in force, without the holds that have
    /// lapsed.
    pub fn used_and_left(
        &self,
        subject: usize,
        calendar: Option<usize>,
        now: DateTime<Utc>,
    ) -> Vec<(u64, u64)> {
        let mut after = self.clone();
        after.lapse(subject, now);
        let calendar = after.dividing(subject, calendar, now);
        let entries: Vec<&Entry> = after.entries_of(subject).collect();
        let limits = self.limits(subject, now);
        let used = limits
            .iter()
            .map(|limit| used_and_left(limit, &calendar, &entries, now));
        used.collect()
    }

    /// Whether an adjustment can take off so many units that counted at an instant.
    pub fn can_take_off(
        &self,
        subject: usize,
        units: u64,
        counted_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> bool {
        let mut after = self.clone();
        after.lapse(subject, now);
        let calendar = after.dividing(subject, None, now);
        let entries: Vec<&Entry> = after.entries_of(subject).collect();
        let limits = self.limits(subject, now);
        limits
            .iter()
            .all(|limit| can_take_off(units, counted_at, limit, &calendar, &entries, now))
    }

    /// The expected outcome of a claim.
    pub fn expect(&self, claim: Claim, now: DateTime<Utc>) -> Expected {
        match claim.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::Grant(place)) if self.grants[*place].is(claim) => {
                return self.expect_again(*place, now);
            }
            Some(_) => return Expected::KeyReused,
            None => {}
        }
        if self.is_archived(now) {
            return Expected::Unknown;
        }
        if self.is_paused(now) {
            return Expected::Inactive;
        }
        if claim.calendar.is_some() && !self.takes_calendars(now) {
            return Expected::NoCalendar;
        }
        let mut after = self.clone();
        after.lapse(claim.subject, now);
        let most = after.given_to(claim.subject, now);
        let limits = self.limits(claim.subject, now);
        if limits
            .iter()
            .any(|limit| claim.units > limit.ceiling + most)
            || self.exceeds_total(claim, now)
        {
            return Expected::NeverFits;
        }
        if claim.units <= self.own_room(claim, now) && self.total_fits(claim, now) {
            Expected::Granted
        } else {
            Expected::Denied
        }
    }

    /// The expected outcome of a claim whose grant is known.
    pub fn expect_again(&self, place: usize, now: DateTime<Utc>) -> Expected {
        match self.grants[place].state(now) {
            "reversed" => Expected::Reversed,
            "lapsed" => Expected::Lapsed,
            _ => Expected::Repeated(place),
        }
    }

    /// The units that the subject itself has, in its windows and its top-ups.
    pub fn own_room(&self, claim: Claim, now: DateTime<Utc>) -> u64 {
        let mut after = self.clone();
        after.lapse(claim.subject, now);
        after.room(claim, now) + after.topped_up(claim.subject, now)
    }

    /// The units that all windows have room for.
    pub fn room(&self, claim: Claim, now: DateTime<Utc>) -> u64 {
        let left = self.used_and_left(claim.subject, claim.calendar, now);
        let left = left.into_iter().map(|(_, left)| left);
        left.min().expect("a limit")
    }

    /// Records a grant, with the id and the limits of the answer.
    pub fn grant(&mut self, claim: Claim, now: DateTime<Utc>, id: String, limits: Value) {
        self.lapse(claim.subject, now);
        let room = self.room(claim, now);
        let sources = self.draw(claim.subject, claim.units, room, now);
        let topped_up = sources.iter().flatten().count() as u64;
        let units = claim.units.cast_signed();
        self.enter_in(claim.calendar, claim.subject, What::Grant, units, now, now);
        let own = claim.units - topped_up;
        self.count_last(own.cast_signed());
        if let Some(key) = claim.key {
            self.keys.insert(key, Done::Grant(self.grants.len()));
        }
        self.grants.push(Grant {
            claim,
            entry: self.entries.len() - 1,
            at: now,
            id,
            limits,
            confirmed: None,
            returned: 0,
            sources,
            topped_up,
            closed: None,
        });
    }

    /// Appends lapses for the subject's holds that are due, the earliest hold first. Each is at the
    /// end of its hold, under the limits of the entry before it. A decision and every other entry does
    /// this first.
    pub fn lapse(&mut self, subject: usize, now: DateTime<Utc>) {
        let grants = self.grants.iter().enumerate();
        let mut due: Vec<(DateTime<Utc>, String, usize)> = grants
            .filter(|(_, grant)| grant.claim.subject == subject && grant.closed.is_none())
            .filter(|(_, grant)| grant.state(now) == "lapsed")
            .filter_map(|(place, grant)| Some((grant.held_until()?, grant.id.clone(), place)))
            .collect();
        due.sort();
        for (until, _, place) in due {
            let grant = &mut self.grants[place];
            grant.closed = Some(Closed::Lapsed);
            let units = grant.left().cast_signed();
            let at = grant.at;
            let entry = grant.entry;
            let own = self.give_units_back(place, units.unsigned_abs());
            let before = self.entries_of(subject).next_back().expect("the grant");
            let lapse = Entry {
                number: self.entries.len(),
                what: What::Lapse(entry),
                units: -units,
                in_windows: -own.cast_signed(),
                at,
                entered_at: until.max(before.entered_at),
                ..before.clone()
            };
            self.entries.push(lapse);
        }
    }

    /// The model at a later instant, if nobody claims: each hold has lapsed at its end.
    pub fn with_lapses(&self, subject: usize, at: DateTime<Utc>) -> Self {
        let mut after = self.clone();
        let ends = self.grants.iter().filter_map(Grant::held_until);
        let mut ends: Vec<_> = ends.filter(|end| *end <= at).collect();
        ends.sort();
        for end in ends {
            let last = after.entries_of(subject).next_back();
            let end = last.map_or(end, |last| last.entered_at.max(end));
            after.lapse(subject, end);
        }
        after
    }

    /// Instants from which on a claim of a subject could be decided in another way.
    pub fn changes(&self, subject: usize, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        let versions = self.versions.iter().map(|version| version.effective_at);
        let holds = self.grants.iter().filter_map(Grant::held_until);
        let of_override = self.overrides.get(&subject).and_then(|(_, until)| *until);
        let of_tier = self.tiers.get(&subject).and_then(|(_, until)| *until);
        let far = now + TimeDelta::days(800);
        let of_top_ups = self.top_ups.iter().map(|given| given.until);
        let ends = of_override.into_iter().chain(of_tier).chain(of_top_ups);
        let all = versions.chain(holds).chain(ends).chain([now, far]);
        all.filter(|at| *at >= now).collect()
    }

    /// Whether subjects have calendars of their own.
    pub fn takes_calendars(&self, now: DateTime<Utc>) -> bool {
        self.in_force(now).choice.owner != CalendarOwner::Policy
    }

    /// The zone and the anchor of a subject at its next entry, which tells one of [`CALENDARS`].
    pub fn own(&self, subject: usize, calendar: Option<usize>, now: DateTime<Utc>) -> OwnCalendar {
        let last = self.entries_of(subject).next_back();
        let mut own = last.map_or_else(OwnCalendar::default, |last| last.own.clone());
        if !self.takes_calendars(now) {
            return own;
        }
        if let Some((zone, anchor)) = calendar.map(|calendar| CALENDARS[calendar]) {
            let zone = zone.map(|zone| Zone::parse(zone).expect("a zone"));
            own.zone = zone.or(own.zone);
            own.anchor = anchor
                .map(|anchor| anchor.parse().expect("a date"))
                .or(own.anchor);
        }
        let choice = self.in_force(now).choice;
        if choice.owner == CalendarOwner::FirstGrant && own.anchor.is_none() {
            let calendar = choice.rule().calendar;
            let zone = own.zone.as_ref().unwrap_or(&calendar.zone);
            let since_midnight = calendar.day_starts_at - NaiveTime::MIN;
            own.anchor = Some((zone.latest_local(now) - since_midnight).date());
        }
        own
    }

    /// What divides the time of a subject at its next entry.
    fn dividing(&self, subject: usize, calendar: Option<usize>, now: DateTime<Utc>) -> Dividing {
        let of_policy = self.in_force(now).choice.rule().calendar;
        if !self.takes_calendars(now) {
            return Dividing {
                calendar: of_policy,
                begun: Vec::new(),
            };
        }
        let own = self.own(subject, calendar, now);
        let last = self.entries_of(subject).next_back();
        Dividing {
            calendar: Almanac::from(Calendar {
                zone: own.zone.unwrap_or_else(|| of_policy.zone.clone()),
                anchor: own.anchor,
                ..Calendar::clone(&of_policy)
            }),
            begun: last.map_or_else(Vec::new, |last| last.windows.clone()),
        }
    }

    /// Appends units that count at an instant, after the lapses that are due.
    pub fn enter(
        &mut self,
        subject: usize,
        what: What,
        units: i64,
        at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        self.enter_in(None, subject, what, units, at, now);
    }

    /// As [`Model::enter`], for an entry that tells a calendar.
    pub fn enter_in(
        &mut self,
        calendar: Option<usize>,
        subject: usize,
        what: What,
        units: i64,
        at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) {
        self.lapse(subject, now);
        let dividing = self.dividing(subject, calendar, now);
        let limits = self.limits(subject, now);
        let windows = limits.iter().filter_map(|limit| match limit.shape {
            Shape::Calendar(division) => Some((limit.per(), dividing.window(division, now))),
            _ => None,
        });
        let windows = windows.collect();
        let own = self.own(subject, calendar, now);
        self.entries.push(Entry {
            subject,
            number: self.entries.len(),
            version: self.version_at(now),
            what,
            units,
            in_windows: units,
            at,
            entered_at: now,
            limits,
            own,
            windows,
        });
    }

    /// Says how many units of the last entry count in windows.
    pub fn count_last(&mut self, in_windows: i64) {
        let last = self.entries.last_mut().expect("an entry");
        last.in_windows = in_windows;
    }

    pub fn entries_of(&self, subject: usize) -> impl DoubleEndedIterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| entry.subject == subject)
    }
}

/// The instant that an adjustment names.
pub fn counted_at(adjustment: Adjustment, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = adjustment.seconds_ago?;
    Some(now - TimeDelta::seconds(seconds))
}
