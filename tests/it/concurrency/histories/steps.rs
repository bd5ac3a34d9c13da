//! What may happen in a history.

use std::collections::HashSet;

use perdiem::domain::policy::{LimitDraft, Rule, RuleDraft};
use perdiem::domain::window::Per;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::subject_text;

pub const SUBJECTS: usize = 3;
const KEYS: usize = 6;

/// One step of a history. A grant is chosen among all that there are.
#[derive(Debug, Clone)]
pub enum Step {
    Claim(Claim),
    /// A dry run.
    Rehearse(Claim),
    /// An atomic batch.
    ClaimTogether(Vec<Claim>),
    Reverse(Index),
    Confirm(Index),
    Adjust(Adjustment),
    Usage {
        subject: usize,
    },
    Grant(Index),
    List {
        state: usize,
    },
    /// The policy is put, at once or from its next day on.
    Rule {
        choice: RuleChoice,
        waits: bool,
    },
    Archive,
    Override {
        subject: usize,
        choice: OverrideChoice,
    },
    DeleteOverride {
        subject: usize,
    },
    Wait {
        seconds: i64,
    },
    Tamper(Tampering),
}

#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub subject: usize,
    pub units: u64,
    pub hold_seconds: Option<u64>,
    pub key: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Adjustment {
    pub subject: usize,
    pub units: i64,
    /// How long ago they count; at the present instant when absent.
    pub seconds_ago: Option<i64>,
    pub key: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleChoice {
    zone: usize,
    limits: usize,
    max: u64,
    day_starts_at: usize,
    pub is_paused: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct OverrideChoice {
    pub per: Per,
    pub max: u64,
    /// After so many seconds the policy's own limits hold again.
    pub seconds: Option<i64>,
}

/// What happens to Redis.
#[derive(Debug, Clone, Copy)]
pub enum Tampering {
    /// Every counter of the ledger is gone.
    Flush,
    /// One counter is gone.
    Forget(usize),
    /// A counter claims more entries and units than there are; nobody confirmed it lately.
    TooHigh(usize),
    /// The counters are kept, to be brought back later.
    Remember,
    /// They are what they were then, as after a fail-over.
    RollBack,
    /// A line with another instant, an older one or one to come.
    OtherInstant(usize, i64),
    /// A line whose first hold lapses at another instant, or that has none.
    OtherLapse(usize, Option<i64>),
    /// A field that nobody can read.
    Junk(usize, usize),
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 20..120)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => claim().prop_map(Step::Claim),
        2 => claim().prop_map(Step::Rehearse),
        4 => together().prop_map(Step::ClaimTogether),
        6 => any::<Index>().prop_map(Step::Reverse),
        6 => any::<Index>().prop_map(Step::Confirm),
        4 => adjustment().prop_map(Step::Adjust),
        3 => (0..SUBJECTS).prop_map(|subject| Step::Usage { subject }),
        2 => any::<Index>().prop_map(Step::Grant),
        1 => (0..4usize).prop_map(|state| Step::List { state }),
        3 => (rule(), prop::bool::weighted(0.3))
            .prop_map(|(choice, waits)| Step::Rule { choice, waits }),
        1 => Just(Step::Archive),
        2 => (0..SUBJECTS, override_choice())
            .prop_map(|(subject, choice)| Step::Override { subject, choice }),
        1 => (0..SUBJECTS).prop_map(|subject| Step::DeleteOverride { subject }),
        6 => wait().prop_map(|seconds| Step::Wait { seconds }),
        4 => tampering().prop_map(Step::Tamper),
    ]
}

fn claim() -> impl Strategy<Value = Claim> {
    let hold_seconds = prop_oneof![
        3 => 1u64..10,
        2 => 600u64..20_000,
        1 => 50_000u64..200_000,
    ];
    let claim = (
        0..SUBJECTS,
        prop_oneof![6 => Just(1u64), 3 => 2u64..4, 1 => 4u64..9],
        prop::option::weighted(0.4, hold_seconds),
        prop::option::weighted(0.5, 0..KEYS),
    );
    claim.prop_map(|(subject, units, hold_seconds, key)| Claim {
        subject,
        units,
        hold_seconds,
        key,
    })
}

/// No two claims of a batch have one key.
fn together() -> impl Strategy<Value = Vec<Claim>> {
    prop::collection::vec(claim(), 1..6).prop_map(|mut claims| {
        let mut keys = HashSet::new();
        for claim in &mut claims {
            claim.key = claim.key.filter(|key| keys.insert(*key));
        }
        claims
    })
}

fn adjustment() -> impl Strategy<Value = Adjustment> {
    let adjustment = (
        0..SUBJECTS,
        prop_oneof![-4i64..=-1, 1i64..=4],
        prop::option::weighted(0.5, prop_oneof![0i64..10, 600i64..400_000]),
        prop::option::weighted(0.5, 0..KEYS),
    );
    adjustment.prop_map(|(subject, units, seconds_ago, key)| Adjustment {
        subject,
        units,
        seconds_ago,
        key,
    })
}

fn rule() -> impl Strategy<Value = RuleChoice> {
    let rule = (
        0..ZONES.len(),
        0..4usize,
        1u64..12,
        0..3usize,
        prop::bool::weighted(0.2),
    );
    rule.prop_map(|(zone, limits, max, day_starts_at, is_paused)| RuleChoice {
        zone,
        limits,
        max,
        day_starts_at,
        is_paused,
    })
}

fn override_choice() -> impl Strategy<Value = OverrideChoice> {
    let per = prop_oneof![4 => Just(Per::Day), 1 => Just(Per::Hour), 1 => Just(Per::Week)];
    let seconds = prop_oneof![1i64..20, 600i64..100_000];
    (per, 0u64..20, prop::option::of(seconds)).prop_map(|(per, max, seconds)| OverrideChoice {
        per,
        max,
        seconds,
    })
}

fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0i64..10,
        2 => 600i64..20_000,
        1 => 50_000i64..200_000,
    ]
}

fn tampering() -> impl Strategy<Value = Tampering> {
    let subject = 0..SUBJECTS;
    let seconds = -100_000i64..100_000;
    prop_oneof![
        1 => Just(Tampering::Flush),
        2 => subject.clone().prop_map(Tampering::Forget),
        2 => subject.clone().prop_map(Tampering::TooHigh),
        2 => Just(Tampering::Remember),
        3 => Just(Tampering::RollBack),
        2 => (subject.clone(), seconds.clone())
            .prop_map(|(subject, seconds)| Tampering::OtherInstant(subject, seconds)),
        2 => (subject.clone(), prop::option::of(seconds))
            .prop_map(|(subject, seconds)| Tampering::OtherLapse(subject, seconds)),
        1 => (subject, 0..4usize).prop_map(|(subject, field)| Tampering::Junk(subject, field)),
    ]
}

impl Claim {
    /// As clients send it.
    pub fn body(&self) -> Value {
        json!({
            "subject": subject_text(self.subject),
            "units": self.units,
            "hold_seconds": self.hold_seconds,
        })
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
        is_paused: false,
    };

    fn limits(&self) -> Vec<(u64, &'static str)> {
        let max = self.max;
        match self.limits {
            0 => vec![(max, "day")],
            1 => vec![(max, "day"), (2 * max, "week")],
            2 => vec![(max, "hour"), (2 * max, "day"), (20, "month")],
            _ => vec![(2 * max, "week"), (max, "minute")],
        }
    }

    fn day_starts_at(&self) -> &'static str {
        ["00:00", "06:00", "17:30"][self.day_starts_at]
    }

    /// As clients put it.
    pub fn body(&self, waits: bool) -> Value {
        let limits = self.limits();
        let limits = limits
            .iter()
            .map(|(max, per)| json!({ "max": max, "per": per }));
        json!({
            "time_zone": ZONES[self.zone],
            "limits": limits.collect::<Vec<_>>(),
            "day_starts_at": self.day_starts_at(),
            "paused": self.is_paused,
            "effective": if waits { "next_window" } else { "now" },
            "reason": "a test",
        })
    }

    pub fn rule(&self) -> Rule {
        let limits = self.limits();
        let limits = limits.iter().map(|(max, per)| LimitDraft {
            max: i128::from(*max),
            per: (*per).to_owned(),
        });
        let draft = RuleDraft {
            time_zone: ZONES[self.zone].to_owned(),
            limits: limits.collect(),
            day_starts_at: Some(self.day_starts_at().to_owned()),
            paused: self.is_paused,
            ..RuleDraft::default()
        };
        draft.check().expect("a rule")
    }
}
