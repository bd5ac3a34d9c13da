//! A policy: a named rule that says how many units a subject may take in a window of local time.

use std::fmt;
use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::sync::Arc;

use chrono::{DateTime, NaiveTime, Utc, Weekday};

use super::almanac::Almanac;
use super::blocks::BlockTerms;
use super::calendar_words::{parse_minute, parse_weekday};
use super::fault::{Fault, choose};
use super::limit::draft::{LimitDraft, check_limits};
use super::limit::per::Per;
use super::limit::shape::{Limit, Shape};
use super::name::is_name;
use super::own_calendar::CalendarOwner;
use super::shared_limit::{SharedLimit, check_total};
use super::tiers::{Tier, TierDraft, TierName, check_tiers};
use super::warning::Levels;
use super::window::{Calendar, Division};
use super::zone::Zone;

/// The longest description or reason, in characters.
pub const TEXT_MAX_CHARACTERS: usize = 1000;

/// For how many days a policy can keep idempotency keys.
const IDEMPOTENCY_DAYS: RangeInclusive<u16> = 1..=3650;

/// The name of a policy: `[a-z0-9][a-z0-9-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName(Box<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the policy name is invalid; write 1 to 63 of a-z, 0-9 and -, and do not start with -")]
pub struct PolicyNameError;

impl PolicyName {
    /// # Errors
    /// [`PolicyNameError`] for any other text.
    pub fn new(text: &str) -> Result<Self, PolicyNameError> {
        is_name(text)
            .then(|| Self(text.into()))
            .ok_or(PolicyNameError)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The number of a policy in the ledger. The number is short, since every entry has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub i32);

/// Where a grant must be stored before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Recorded,
    /// In Redis, which queues the grants for the ledger.
    Counted,
}

/// Who decides claims while the ledger is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLedgerOutage {
    /// No one: claims get a 503.
    Refuse,
    /// Redis, which queues the grants for the ledger.
    Count,
}

impl Durability {
    pub const ALL: [Self; 2] = [Self::Recorded, Self::Counted];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Counted => "counted",
        }
    }
}

impl OnLedgerOutage {
    pub const ALL: [Self; 2] = [Self::Refuse, Self::Count];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Count => "count",
        }
    }
}

/// Whether a policy denies claims without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Claims without room are denied.
    Enforce,
    /// All claims are granted. A claim without room is marked.
    Observe,
}

impl Mode {
    /// All modes, the default first.
    pub const ALL: [Self; 2] = [Self::Enforce, Self::Observe];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

/// The content of a version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A text for people.
    pub description: String,
    /// The calendar that divides the local time into windows.
    pub calendar: Almanac,
    /// Whose calendar divides time into windows. Limits that all subjects share have the policy's.
    pub calendar_owner: CalendarOwner,
    /// One or more limits in their order, no two with the same `per`.
    pub limits: Vec<Limit>,
    pub active_from: Option<DateTime<Utc>>,
    pub active_until: Option<DateTime<Utc>>,
    /// Whether the policy is paused. Only its own verb changes this: another change keeps it.
    pub paused: bool,
    pub mode: Mode,
    /// Where a grant must be stored before it is answered.
    pub durability: Durability,
    /// Who decides claims while the ledger is unavailable.
    pub on_ledger_outage: OnLedgerOutage,
    /// The levels of use whose crossing is marked.
    pub warn_at: Levels,
    /// For at least how many days a claim can be repeated with its idempotency key.
    pub idempotency_days: Option<NonZeroU16>,
    /// Other maxima for the subjects that are in a tier, no two with the same name.
    pub tiers: Arc<[Tier]>,
    /// Limits that all subjects share, no two with the same `per`.
    pub shared: Vec<SharedLimit>,
}

/// Why a policy grants nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inactive {
    Paused,
    /// The instant `active_from` has not come yet.
    Before(DateTime<Utc>),
    /// The instant `active_until` has passed.
    After(DateTime<Utc>),
}

impl Rule {
    /// Whether Redis alone may decide claims, so that grants may wait in its queue.
    pub fn may_be_counted(&self) -> bool {
        self.durability == Durability::Counted || self.on_ledger_outage == OnLedgerOutage::Count
    }

    /// How the calendar is divided by a word, or by the limit with this name.
    pub fn division(&self, per: Per) -> Option<Division> {
        if let Per::Calendar(length) = per {
            return Some(length.into());
        }
        let named = self.limits.iter().find(|limit| limit.per() == per);
        match named?.shape {
            Shape::Calendar(division) => Some(division),
            _ => None,
        }
    }

    /// The tier with this name.
    pub fn tier(&self, name: &TierName) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.name == *name)
    }

    /// The reason why the rule grants nothing at an instant; `None` while the rule is active.
    pub fn inactive(&self, now: DateTime<Utc>) -> Option<Inactive> {
        if self.paused {
            return Some(Inactive::Paused);
        }
        let before = self.active_from.filter(|from| now < *from);
        let after = self.active_until.filter(|until| now >= *until);
        before.map(Inactive::Before).or(after.map(Inactive::After))
    }
}

/// Who paused a policy, when and why. These are told by the first version of those that are paused
/// without a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPause {
    pub since: DateTime<Utc>,
    pub by: String,
    pub reason: Option<String>,
}

/// A rule as a client wrote it, before it is checked.
#[derive(Debug, Clone, Default)]
pub struct RuleDraft {
    /// A text for people; empty by default.
    pub description: Option<String>,
    /// An IANA name or a fixed offset.
    pub time_zone: String,
    pub limits: Vec<LimitDraft>,
    /// `HH:MM`; midnight by default.
    pub day_starts_at: Option<String>,
    /// The English name of a weekday; Monday by default.
    pub week_starts_on: Option<String>,
    /// `policy`, `subject` or `first_grant`; `policy` by default.
    pub calendar: Option<String>,
    /// See [`Rule::active_from`].
    pub active_from: Option<DateTime<Utc>>,
    /// See [`Rule::active_until`].
    pub active_until: Option<DateTime<Utc>>,
    /// See [`Rule::paused`].
    pub paused: bool,
    /// `enforce` or `observe`; `enforce` by default.
    pub mode: Option<String>,
    /// `recorded` or `counted`; `recorded` by default.
    pub durability: Option<String>,
    /// `refuse` or `count`; `refuse` by default.
    pub on_ledger_outage: Option<String>,
    /// Levels of use in percent, without an order; none by default.
    pub warn_at: Vec<i128>,
    /// See [`Rule::idempotency_days`].
    pub idempotency_days: Option<i128>,
    /// None by default.
    pub tiers: Vec<TierDraft>,
    /// See [`Rule::shared`]; none by default.
    pub total: Vec<LimitDraft>,
}

impl RuleDraft {
    /// Checks the draft.
    ///
    /// # Errors
    /// All faults of the draft.
    pub fn check(self) -> Result<Rule, Vec<Fault>> {
        let mut faults = Vec::new();
        // 1. Each member is checked alone. A faulty member gets a default, so that all faults are
        //    found.
        let zone = Zone::parse(&self.time_zone)
            .map_err(|error| faults.push(Fault::new("/time_zone", error)))
            .ok();
        let limits = check_limits(&self.limits, &mut faults);
        let are_sound = limits.len() == self.limits.len();
        let tiers = check_tiers(&self.tiers, are_sound.then_some(&*limits), &mut faults);
        let shared = check_total(&self.total, &mut faults);
        let description = self.description.unwrap_or_default();
        if let Err(detail) = check_text(&description) {
            faults.push(Fault::new("/description", detail));
        }
        let day_starts_at = match self.day_starts_at.as_deref().map(parse_minute) {
            None => NaiveTime::MIN,
            Some(Some(time)) => time,
            Some(None) => {
                faults.push(Fault::new(
                    "/day_starts_at",
                    "the time is invalid; write HH:MM, such as 06:00",
                ));
                NaiveTime::MIN
            }
        };
        let week_starts_on = match self.week_starts_on.as_deref().map(parse_weekday) {
            None => Weekday::Mon,
            Some(Some(weekday)) => weekday,
            Some(None) => {
                let detail =
                    "the weekday is unknown; write its English name in lower case, such as monday";
                faults.push(Fault::new("/week_starts_on", detail));
                Weekday::Mon
            }
        };
        let calendar_owner = choose(
            self.calendar.as_deref(),
            &CalendarOwner::ALL.map(|choice| (choice.as_str(), choice)),
            "/calendar",
            &mut faults,
        );
        let mode = choose(
            self.mode.as_deref(),
            &Mode::ALL.map(|choice| (choice.as_str(), choice)),
            "/mode",
            &mut faults,
        );
        let durability = choose(
            self.durability.as_deref(),
            &Durability::ALL.map(|choice| (choice.as_str(), choice)),
            "/durability",
            &mut faults,
        );
        let on_ledger_outage = choose(
            self.on_ledger_outage.as_deref(),
            &OnLedgerOutage::ALL.map(|choice| (choice.as_str(), choice)),
            "/on_ledger_outage",
            &mut faults,
        );
        let warn_at = Levels::of(&self.warn_at).unwrap_or_else(|error| {
            faults.push(Fault::new("/warn_at", error));
            Levels::default()
        });
        let idempotency_days = self.idempotency_days.and_then(|days| {
            let checked = u16::try_from(days).ok();
            let checked = checked.filter(|days| IDEMPOTENCY_DAYS.contains(days));
            let checked = checked.and_then(NonZeroU16::new);
            if checked.is_none() {
                faults.push(Fault::new(
                    "/idempotency_days",
                    format!(
                        "{days} is out of bounds; write {} to {} days",
                        IDEMPOTENCY_DAYS.start(),
                        IDEMPOTENCY_DAYS.end()
                    ),
                ));
            }
            checked
        });
        // 2. Members are checked against each other.
        let mut need_the_ledger = |detail: &dyn Fn(&str) -> String| {
            if durability == Durability::Counted {
                faults.push(Fault::new("/durability", detail("recorded")));
            }
            if on_ledger_outage == OnLedgerOutage::Count {
                faults.push(Fault::new("/on_ledger_outage", detail("refuse")));
            }
        };
        let uncounted = limits.iter().find(|limit| !limit.shape.may_be_counted());
        if let Some(limit) = uncounted {
            need_the_ledger(&|instead| {
                format!(
                    "Redis cannot count the limit per {}; write {instead}, or use only limits per \
                     kind calendar, per a word such as day, a part of a day such as 15m, or weeks",
                    limit.per()
                )
            });
        }
        if calendar_owner.lets_subjects_own() {
            need_the_ledger(&|instead| {
                format!(
                    "Redis cannot count by the calendars of subjects; write {instead}, or calendar policy"
                )
            });
        }
        if !self.total.is_empty() {
            need_the_ledger(&|instead| {
                format!(
                    "Redis cannot count a total of all subjects; write {instead}, or leave total out"
                )
            });
        }
        if let (Some(from), Some(until)) = (self.active_from, self.active_until)
            && from >= until
        {
            faults.push(Fault::new(
                "/active_until",
                "active_until is not after active_from; write a later instant",
            ));
        }
        // 3. Only a draft without faults becomes a rule.
        match zone {
            Some(zone) if faults.is_empty() => Ok(Rule {
                description,
                calendar: Almanac::from(Calendar {
                    zone,
                    day_starts_at,
                    week_starts_on,
                    anchor: None,
                }),
                calendar_owner,
                limits,
                active_from: self.active_from,
                active_until: self.active_until,
                paused: self.paused,
                mode,
                durability,
                on_ledger_outage,
                warn_at,
                idempotency_days,
                tiers: tiers.into(),
                shared,
            }),
            _ => Err(faults),
        }
    }
}

/// Checks a text for people: a description or a reason.
///
/// # Errors
/// The fault of the text.
pub fn check_text(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err("the text has U+0000; remove it".to_owned());
    }
    match text.chars().count() {
        0..=TEXT_MAX_CHARACTERS => Ok(()),
        count => Err(format!(
            "the text has {count} characters; write at most {TEXT_MAX_CHARACTERS}"
        )),
    }
}

/// Checks a required reason.
///
/// # Errors
/// The fault of the reason.
pub fn check_reason(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        Err("the reason is empty; say why".to_owned())
    } else {
        check_text(text)
    }
}

/// A version of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub id: PolicyId,
    pub name: PolicyName,
    /// 1, 2, 3 …: every change creates a new version.
    pub version: u32,
    pub rule: Rule,
    /// Whether this version takes no claims.
    pub archived: bool,
    /// The instant from which on this version is active, unless a higher version is.
    pub effective_at: DateTime<Utc>,
    pub changed_at: DateTime<Utc>,
    pub changed_by: String,
    /// The reason; optional for a first version.
    pub reason: Option<String>,
    /// The block of a subject, in the terms of its account. `None` in a version of the ledger.
    pub blocked: Option<BlockTerms>,
}

impl Policy {
    /// This version, with another `max` for some of its limits.
    pub fn with_max(&self, max: impl Fn(Per) -> Option<u64>) -> Self {
        let mut policy = self.clone();
        policy.set_maxima(max);
        policy
    }

    /// Gives some limits another `max`.
    pub fn set_maxima(&mut self, max: impl Fn(Per) -> Option<u64>) {
        for limit in &mut self.rule.limits {
            if let Some(max) = max(limit.per()) {
                *limit = limit.with_max(max);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::UNITS_MAX;
    use crate::window::Length;

    fn draft() -> RuleDraft {
        RuleDraft {
            time_zone: "GMT+8".to_owned(),
            limits: vec![LimitDraft {
                max: 3,
                per: "day".to_owned(),
                ..LimitDraft::default()
            }],
            ..RuleDraft::default()
        }
    }

    fn pointers(draft: RuleDraft) -> Vec<String> {
        let faults = draft.check().unwrap_err();
        faults.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn names() {
        for good in ["a", "0", "benefit-3", &"a".repeat(63)] {
            assert!(PolicyName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a b", "ä", &"a".repeat(64)] {
            assert_eq!(PolicyName::new(bad), Err(PolicyNameError), "{bad}");
        }
    }

    #[test]
    fn a_draft_has_defaults() {
        let rule = draft().check().unwrap();
        assert_eq!(rule.calendar.day_starts_at, NaiveTime::MIN);
        assert_eq!(rule.calendar.week_starts_on, Weekday::Mon);
        assert_eq!(rule.limits, [Limit::new(3, Length::Day)]);
        assert_eq!(rule.inactive(DateTime::UNIX_EPOCH), None);
    }

    #[test]
    fn every_fault_is_told() {
        let limit = |max, per: &str| LimitDraft {
            max,
            per: per.to_owned(),
            ..LimitDraft::default()
        };
        let wrong = RuleDraft {
            description: Some("x".repeat(1001)),
            time_zone: "Asia/Shangai".to_owned(),
            limits: vec![
                limit(0, "day"),
                limit(-1, "fortnight"),
                limit(1, "day"),
                limit(i128::from(UNITS_MAX) + 1, "hour"),
            ],
            day_starts_at: Some("6:00".to_owned()),
            week_starts_on: Some("Monday".to_owned()),
            calendar: Some("own".to_owned()),
            active_from: Some(DateTime::UNIX_EPOCH),
            active_until: Some(DateTime::UNIX_EPOCH),
            paused: false,
            mode: Some("enforced".to_owned()),
            durability: Some("count".to_owned()),
            on_ledger_outage: Some(String::new()),
            warn_at: vec![80, 81],
            idempotency_days: Some(0),
            tiers: vec![TierDraft {
                name: "Gold".to_owned(),
                limits: Vec::new(),
            }],
            total: vec![limit(0, "day")],
        };
        assert_eq!(
            pointers(wrong),
            [
                "/time_zone",
                "/limits/0/max",
                "/limits/1/max",
                "/limits/1/per",
                "/limits/2/per",
                "/limits/3/max",
                "/tiers/0/limits",
                "/tiers/0/name",
                "/total/0/max",
                "/description",
                "/day_starts_at",
                "/week_starts_on",
                "/calendar",
                "/mode",
                "/durability",
                "/on_ledger_outage",
                "/warn_at",
                "/idempotency_days",
                "/active_until",
            ]
        );
        let none = RuleDraft {
            limits: Vec::new(),
            ..draft()
        };
        assert_eq!(pointers(none), ["/limits"]);
    }

    #[test]
    fn a_rule_is_active_from_and_until() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let rule = RuleDraft {
            active_from: Some(at(10)),
            active_until: Some(at(20)),
            ..draft()
        };
        let rule = rule.check().unwrap();
        assert_eq!(rule.inactive(at(9)), Some(Inactive::Before(at(10))));
        assert_eq!(rule.inactive(at(10)), None);
        assert_eq!(rule.inactive(at(19)), None);
        assert_eq!(rule.inactive(at(20)), Some(Inactive::After(at(20))));
        let paused = Rule {
            paused: true,
            ..rule
        };
        assert_eq!(paused.inactive(at(15)), Some(Inactive::Paused));
    }
}
