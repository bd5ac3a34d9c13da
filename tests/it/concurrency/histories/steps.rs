//! The possible steps of a history. Dice choose among them.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::limit::draft::LimitDraft;
use perdiem::domain::limit::per::Per;
use perdiem::domain::own_calendar::CalendarOwner;
use perdiem::domain::policy::{Rule, RuleDraft};
use serde_json::{Value, json};

use super::subject_text;
use crate::support::dice::Dice;

pub const SUBJECTS: usize = 3;
const KEYS: usize = 6;

#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub subject: usize,
    pub units: u64,
    pub hold_seconds: Option<u64>,
    pub key: Option<usize>,
    /// What the claim tells of [`CALENDARS`].
    pub calendar: Option<usize>,
}

/// What claims and moves tell of a calendar: a zone, and an anchor.
pub const CALENDARS: [(Option<&str>, Option<&str>); 5] = [
    (Some("America/New_York"), None),
    (Some("+14:00"), Some("2026-01-31")),
    (None, Some("2024-02-29")),
    (Some("Australia/Lord_Howe"), Some("2026-11-20")),
    (Some("UTC"), None),
];

/// The body of one of them.
pub fn calendar_body(calendar: usize) -> Value {
    let (zone, anchor) = CALENDARS[calendar];
    let mut body = json!({});
    if let Some(zone) = zone {
        body["time_zone"] = json!(zone);
    }
    if let Some(anchor) = anchor {
        body["anchor"] = json!(anchor);
    }
    body
}

/// A move of a subject's calendar by an admin.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    pub subject: usize,
    pub calendar: usize,
    pub key: Option<usize>,
}

impl Move {
    pub fn draw(dice: &mut Dice) -> Self {
        Self {
            subject: draw_subject(dice),
            calendar: dice.below(CALENDARS.len()),
            key: draw_key(dice),
        }
    }
}

/// Units beside the windows of a subject.
#[derive(Debug, Clone, Copy)]
pub struct TopUpChoice {
    pub subject: usize,
    pub units: u64,
    /// After so many seconds the top-up ends.
    seconds: i64,
    pub key: Option<usize>,
}

impl TopUpChoice {
    pub fn draw(dice: &mut Dice) -> Self {
        let seconds = [dice.between(1, 19), dice.between(600, 400_000)][dice.below(2)];
        Self {
            subject: draw_subject(dice),
            units: dice.between(1, 5),
            seconds: seconds.cast_signed(),
            key: draw_key(dice),
        }
    }

    pub fn until(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + TimeDelta::seconds(self.seconds)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Adjustment {
    pub subject: usize,
    pub units: i64,
    /// How many seconds ago the units count; now if absent.
    pub seconds_ago: Option<i64>,
    pub key: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Reset {
    pub subject: usize,
    /// The name of the limit; all limits if absent.
    pub per: Option<&'static str>,
    pub key: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleChoice {
    zone: usize,
    limits: usize,
    max: u64,
    day_starts_at: usize,
    /// How many tiers the policy has.
    tiers: usize,
    pub owner: CalendarOwner,
    /// The units of a day that all subjects share.
    pub total: Option<u64>,
    pub is_paused: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct OverrideChoice {
    /// The name of the limit.
    per: &'static str,
    pub max: u64,
    /// After so many seconds the override ends.
    pub seconds: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
pub struct TierChoice {
    pub tier: &'static str,
    /// After so many seconds the subject leaves the tier.
    pub seconds: Option<i64>,
}

pub fn draw_subject(dice: &mut Dice) -> usize {
    dice.below(SUBJECTS)
}

pub fn draw_key(dice: &mut Dice) -> Option<usize> {
    dice.percent(50).then(|| dice.below(KEYS))
}

impl Claim {
    pub fn draw(dice: &mut Dice) -> Self {
        let hold_seconds = match dice.below(6) {
            0..3 => dice.between(1, 9),
            3..5 => dice.between(600, 20_000),
            _ => dice.between(50_000, 200_000),
        };
        Self {
            subject: draw_subject(dice),
            units: match dice.below(10) {
                0..6 => 1,
                6..9 => dice.between(2, 3),
                _ => dice.between(4, 8),
            },
            hold_seconds: dice.percent(40).then_some(hold_seconds),
            key: draw_key(dice),
            calendar: dice.percent(25).then(|| dice.below(CALENDARS.len())),
        }
    }

    /// A batch in which no two claims have the same key.
    pub fn draw_together(dice: &mut Dice) -> Vec<Self> {
        let count = dice.between(1, 5);
        let mut claims: Vec<Self> = (0..count).map(|_| Self::draw(dice)).collect();
        let mut keys = HashSet::new();
        for claim in &mut claims {
            claim.key = claim.key.filter(|key| keys.insert(*key));
        }
        claims
    }

    /// The body of the client's request.
    pub fn body(&self) -> Value {
        json!({
            "subject": subject_text(self.subject),
            "units": self.units,
            "hold_seconds": self.hold_seconds,
            "calendar": self.calendar.map(calendar_body),
        })
    }
}

impl Adjustment {
    pub fn draw(dice: &mut Dice) -> Self {
        let seconds_ago = [dice.between(0, 9), dice.between(600, 400_000)][dice.below(2)];
        Self {
            subject: draw_subject(dice),
            units: [-4, -3, -2, -1, 1, 2, 3, 4][dice.below(8)],
            seconds_ago: dice.percent(50).then_some(seconds_ago.cast_signed()),
            key: draw_key(dice),
        }
    }
}

/// Names of limits, those of many rules more often.
const LIMITS: [&str; 12] = [
    "day", "day", "day", "day", "hour", "week", "2 weeks", "12h", "ever", "10s", "10s", "1h",
];

impl Reset {
    pub fn draw(dice: &mut Dice) -> Self {
        Self {
            subject: draw_subject(dice),
            per: dice.percent(50).then(|| LIMITS[dice.below(LIMITS.len())]),
            key: draw_key(dice),
        }
    }

    pub fn per(&self) -> Option<Per> {
        self.per.map(|per| per.parse().expect("a limit's name"))
    }
}

impl OverrideChoice {
    pub fn draw(dice: &mut Dice) -> Self {
        let seconds = [dice.between(1, 19), dice.between(600, 100_000)][dice.below(2)];
        Self {
            per: LIMITS[dice.below(LIMITS.len())],
            max: dice.between(1, 19),
            seconds: dice.percent(50).then_some(seconds.cast_signed()),
        }
    }

    pub fn per(&self) -> Per {
        self.per.parse().expect("a limit's name")
    }
}

pub const TIERS: [&str; 2] = ["gold", "slow"];

impl TierChoice {
    pub fn draw(dice: &mut Dice) -> Self {
        let seconds = [dice.between(1, 19), dice.between(600, 100_000)][dice.below(2)];
        Self {
            tier: TIERS[dice.below(TIERS.len())],
            seconds: dice.percent(50).then_some(seconds.cast_signed()),
        }
    }
}

const ZONES: [&str; 5] = [
    "GMT+8",
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
];

impl RuleChoice {
    /// 3 a day.
    pub const FIRST: Self = Self {
        zone: 0,
        limits: 0,
        max: 3,
        day_starts_at: 0,
        tiers: 2,
        owner: CalendarOwner::Policy,
        total: None,
        is_paused: false,
    };

    pub fn draw(dice: &mut Dice) -> Self {
        Self {
            zone: dice.below(ZONES.len()),
            // The first limits are drawn twice as often. No two numbers mean the same rule: the model
            // compares choices.
            limits: dice.below(14).saturating_sub(1),
            max: dice.between(1, 11),
            day_starts_at: dice.below(3),
            tiers: dice.below(3),
            owner: CalendarOwner::ALL[dice.below(5).min(2)],
            total: dice.percent(30).then(|| dice.between(3, 15)),
            is_paused: false,
        }
    }

    fn limits(&self) -> Vec<LimitDraft> {
        let max = self.max;
        let limit = |max: u64, per: &str| LimitDraft {
            max: max.into(),
            per: per.to_owned(),
            ..LimitDraft::default()
        };
        let of_kind = |max, per, kind: &str| LimitDraft {
            kind: Some(kind.to_owned()),
            ..limit(max, per)
        };
        let stepped = |max, per, step: &str| LimitDraft {
            step: Some(step.to_owned()),
            ..of_kind(max, per, "sliding")
        };
        let bursting = |max, per, burst: u64| LimitDraft {
            burst: Some(burst.into()),
            ..of_kind(max, per, "rate")
        };
        let weeks = LimitDraft {
            from: Some("2026-01-08".to_owned()),
            ..limit(2 * max, "2 weeks")
        };
        match self.limits {
            0 => vec![limit(max, "day")],
            1 => vec![limit(max, "day"), limit(2 * max, "week")],
            2 => vec![
                limit(max, "hour"),
                limit(2 * max, "day"),
                limit(20, "month"),
            ],
            3 => vec![limit(2 * max, "week"), limit(max, "minute")],
            4 => vec![limit(20 + 2 * max, "ever"), limit(max, "day")],
            5 => vec![of_kind(max, "10s", "from_first_claim")],
            6 => vec![of_kind(max, "10s", "sliding"), limit(2 * max, "day")],
            7 => vec![stepped(2 * max, "1h", "10m")],
            8 => vec![of_kind(max, "10s", "rate")],
            9 => vec![bursting(max, "1h", 2 * max)],
            10 => vec![of_kind(max, "12h", "calendar"), limit(2 * max, "day")],
            11 => vec![limit(max, "day"), weeks],
            _ => vec![
                bursting(max, "10s", 3),
                of_kind(max, "1h", "sliding"),
                of_kind(max, "12h", "from_first_claim"),
                limit(30 + max, "ever"),
            ],
        }
    }

    /// The tiers: their names, and the names and the maxima of some limits.
    pub fn tiers(&self) -> Vec<(&'static str, Vec<(String, u64)>)> {
        let limits = self.limits();
        let per = |index: usize| limits[index].per.clone();
        let last = limits.len() - 1;
        let gold = limits
            .iter()
            .map(|limit| (limit.per.clone(), 2 * self.max + 3));
        let tiers = vec![
            (TIERS[0], gold.collect()),
            (TIERS[1], vec![(per(last), self.max.div_ceil(2))]),
        ];
        tiers.into_iter().take(self.tiers).collect()
    }

    fn day_starts_at(&self) -> &'static str {
        ["00:00", "06:00", "17:30"][self.day_starts_at]
    }

    /// The choice, paused or not.
    pub fn with_pause(self, is_paused: bool) -> Self {
        Self { is_paused, ..self }
    }

    /// The body of the client's request.
    pub fn body(&self, waits: bool) -> Value {
        let limits = self.limits();
        let limits = limits.iter().map(|limit| {
            let fields = [
                ("max", json!(u64::try_from(limit.max).expect("few units"))),
                ("per", json!(limit.per)),
                ("kind", json!(limit.kind)),
                ("step", json!(limit.step)),
                ("from", json!(limit.from)),
                (
                    "burst",
                    json!(
                        limit
                            .burst
                            .map(|burst| u64::try_from(burst).expect("few units"))
                    ),
                ),
            ];
            let told = fields.into_iter().filter(|(_, value)| !value.is_null());
            told.map(|(name, value)| (name.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
        });
        let tiers = self.tiers().into_iter().map(|(name, maxima)| {
            let limit = |(per, max)| json!({ "max": max, "per": per });
            json!({ "name": name, "limits": maxima.into_iter().map(limit).collect::<Vec<_>>() })
        });
        let total = self.total.map(|max| json!({ "max": max, "per": "day" }));
        json!({
            "total": total.into_iter().collect::<Vec<_>>(),
            "time_zone": ZONES[self.zone],
            "calendar": self.owner.as_str(),
            "tiers": tiers.collect::<Vec<_>>(),
            "limits": limits.collect::<Vec<_>>(),
            "day_starts_at": self.day_starts_at(),
            "orphaned_overrides": "keep",
            "effective": if waits { "next_window" } else { "now" },
            "reason": "a test",
        })
    }

    pub fn rule(&self) -> Rule {
        let draft = RuleDraft {
            time_zone: ZONES[self.zone].to_owned(),
            limits: self.limits(),
            day_starts_at: Some(self.day_starts_at().to_owned()),
            paused: self.is_paused,
            calendar: Some(self.owner.as_str().to_owned()),
            ..RuleDraft::default()
        };
        draft.check().expect("a rule")
    }
}
