//! The courses of a policy. A course is a list of versions, with limits of every kind. A history
//! has one course.

use chrono::DateTime;
use perdiem::domain::limit::draft::LimitDraft;
use perdiem::domain::policy::{Policy, PolicyId, PolicyName, RuleDraft};

use super::Counting;
use crate::plain::{PlainLimit, Return};

/// A version of the policy, with the facts that the judge needs.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    zone: &'static str,
    pub hours_east: i64,
    pub limits: &'static [VersionLimit],
    /// What all subjects share.
    pub total: Option<VersionTotal>,
    /// Whether subjects have zones of their own.
    pub has_own_zones: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct VersionTotal {
    pub max: u64,
    pub per: &'static str,
    /// The first version of those that have it without a break.
    pub since: u32,
}

#[derive(Debug, Clone, Copy)]
pub enum VersionLimit {
    /// The `max`, and the window of the calendar.
    Calendar(u64, &'static str),
    Ever(u64),
    Returns(PlainLimit),
}

/// The versions of the policy, in the order in which they are made.
pub type Course = &'static [Version];

const SECOND: i64 = 1_000_000;

const fn day(max: u64) -> VersionLimit {
    VersionLimit::Calendar(max, "day")
}

const fn hour(max: u64) -> VersionLimit {
    VersionLimit::Calendar(max, "hour")
}

const fn ever(max: u64) -> VersionLimit {
    VersionLimit::Ever(max)
}

const fn returns(max: u64, seconds: i64, returns: Return) -> VersionLimit {
    let per = seconds * SECOND;
    VersionLimit::Returns(PlainLimit { max, per, returns })
}

const fn first_claim(max: u64, seconds: i64) -> VersionLimit {
    returns(max, seconds, Return::FromFirstClaim)
}

const fn sliding(max: u64, seconds: i64) -> VersionLimit {
    returns(max, seconds, Return::Sliding { step: None })
}

const fn stepped(max: u64, seconds: i64, step: i64) -> VersionLimit {
    let step = Some(step * SECOND);
    returns(max, seconds, Return::Sliding { step })
}

const fn rate(max: u64, seconds: i64, burst: u64) -> VersionLimit {
    returns(max, seconds, Return::Rate { burst })
}

const fn utc(limits: &'static [VersionLimit]) -> Version {
    Version {
        zone: "UTC",
        hours_east: 0,
        limits,
        total: None,
        has_own_zones: false,
    }
}

/// A version whose subjects share a limit, since a version.
const fn sharing(max: u64, per: &'static str, since: u32, version: Version) -> Version {
    let total = VersionTotal { max, per, since };
    Version {
        total: Some(total),
        ..version
    }
}

const fn gmt_8(limits: &'static [VersionLimit]) -> Version {
    Version {
        zone: "+08:00",
        hours_east: 8,
        limits,
        total: None,
        has_own_zones: false,
    }
}

/// A version whose subjects have zones of their own.
const fn own_zones(version: Version) -> Version {
    Version {
        has_own_zones: true,
        ..version
    }
}

const CALENDAR: Course = &[
    utc(&[day(2)]),
    gmt_8(&[day(1)]),
    utc(&[day(3), hour(2)]),
    utc(&[day(4)]),
];

const OWN_ZONES: Course = &[
    own_zones(utc(&[day(2)])),
    own_zones(utc(&[day(3), hour(2)])),
    own_zones(gmt_8(&[day(2), sliding(2, 4)])),
    own_zones(utc(&[day(4)])),
];

/// One course for each kind of limit, which later changes to another kind. Some courses have
/// several kinds at once.
pub const COURSES: &[Course] = &[
    CALENDAR,
    &[
        utc(&[ever(2)]),
        gmt_8(&[ever(3)]),
        utc(&[ever(4), hour(2)]),
        utc(&[sliding(2, 4)]),
    ],
    &[
        utc(&[first_claim(2, 3)]),
        utc(&[first_claim(3, 3)]),
        utc(&[first_claim(2, 5)]),
        utc(&[sliding(2, 5)]),
    ],
    &[
        utc(&[sliding(2, 4)]),
        utc(&[sliding(1, 4)]),
        utc(&[sliding(3, 6)]),
        utc(&[first_claim(2, 4)]),
    ],
    &[
        utc(&[stepped(2, 4, 1)]),
        utc(&[stepped(3, 4, 1)]),
        utc(&[stepped(2, 4, 2)]),
        utc(&[sliding(2, 4)]),
    ],
    &[
        utc(&[rate(1, 2, 2)]),
        utc(&[rate(2, 2, 2)]),
        utc(&[rate(1, 2, 3)]),
        utc(&[rate(2, 5, 2)]),
    ],
    &[
        utc(&[rate(2, 3, 2)]),
        utc(&[stepped(2, 6, 2)]),
        utc(&[rate(2, 3, 2), day(4)]),
        utc(&[rate(1, 3, 1), sliding(3, 7)]),
    ],
    &[
        utc(&[sliding(3, 5), rate(1, 2, 2)]),
        utc(&[day(2)]),
        utc(&[first_claim(2, 3), ever(5)]),
        utc(&[stepped(2, 6, 3), rate(1, 1, 1)]),
    ],
    &[
        sharing(3, "day", 1, utc(&[day(2)])),
        sharing(2, "day", 1, utc(&[day(3)])),
        utc(&[day(3)]),
        sharing(4, "hour", 4, gmt_8(&[sliding(3, 4)])),
    ],
    &[
        utc(&[day(2)]),
        sharing(3, "ever", 2, utc(&[first_claim(2, 3)])),
        sharing(5, "ever", 2, gmt_8(&[day(4)])),
        sharing(3, "hour", 4, utc(&[day(4)])),
    ],
    OWN_ZONES,
];

/// Redis decides alone only under limits of the calendar.
pub const COUNTED_COURSES: &[Course] = &[
    CALENDAR,
    CALENDAR,
    CALENDAR,
    &[
        utc(&[day(2)]),
        utc(&[sliding(2, 4)]),
        gmt_8(&[day(3), hour(2)]),
        utc(&[rate(1, 2, 2), first_claim(3, 5)]),
    ],
    &[
        utc(&[day(2)]),
        own_zones(utc(&[day(3), hour(2)])),
        own_zones(gmt_8(&[day(2)])),
        own_zones(utc(&[day(4)])),
    ],
];

impl Version {
    /// Whether Redis may decide alone under this version.
    pub fn may_be_counted(&self) -> bool {
        let mut limits = self.limits.iter();
        !self.has_own_zones && limits.all(|limit| matches!(limit, VersionLimit::Calendar(..)))
    }

    /// The limits whose units return after a time.
    pub fn returning(&self) -> Vec<PlainLimit> {
        let limits = self.limits.iter();
        let returning = limits.filter_map(|limit| match limit {
            VersionLimit::Returns(limit) => Some(*limit),
            VersionLimit::Calendar(..) | VersionLimit::Ever(_) => None,
        });
        returning.collect()
    }
}

impl VersionLimit {
    fn draft(&self) -> LimitDraft {
        let (max, per) = match self {
            Self::Calendar(max, per) => (*max, (*per).to_owned()),
            Self::Ever(max) => (*max, "ever".to_owned()),
            Self::Returns(limit) => (limit.max, seconds(limit.per)),
        };
        let draft = LimitDraft {
            max: max.into(),
            per,
            ..LimitDraft::default()
        };
        let Self::Returns(limit) = self else {
            return draft;
        };
        let (kind, step, burst) = match limit.returns {
            Return::FromFirstClaim => ("from_first_claim", None, None),
            Return::Sliding { step } => ("sliding", step, None),
            Return::Rate { burst } => ("rate", None, Some(burst)),
        };
        LimitDraft {
            kind: Some(kind.to_owned()),
            step: step.map(seconds),
            burst: burst.map(i128::from),
            ..draft
        }
    }
}

impl VersionTotal {
    fn draft(&self) -> LimitDraft {
        LimitDraft {
            max: self.max.into(),
            per: self.per.to_owned(),
            ..LimitDraft::default()
        }
    }
}

fn seconds(micros: i64) -> String {
    format!("{}s", micros / SECOND)
}

/// Builds a version of a course as the production code's policy.
pub fn policy(course: Course, version: u32, counting: Counting) -> Policy {
    let own = &course[version as usize - 1];
    let is_so = |wanted| counting == wanted && own.may_be_counted();
    let draft = RuleDraft {
        time_zone: own.zone.to_owned(),
        limits: own.limits.iter().map(VersionLimit::draft).collect(),
        total: own.total.iter().map(VersionTotal::draft).collect(),
        calendar: own.has_own_zones.then(|| "subject".to_owned()),
        durability: is_so(Counting::Always).then(|| "counted".to_owned()),
        on_ledger_outage: is_so(Counting::InOutage).then(|| "count".to_owned()),
        ..RuleDraft::default()
    };
    let mut rule = draft.check().expect("a rule");
    for (shared, total) in rule.shared.iter_mut().zip(own.total) {
        shared.since = total.since;
    }
    Policy {
        id: PolicyId(1),
        name: PolicyName::new("benefit").expect("a name"),
        version,
        rule,
        archived: false,
        effective_at: DateTime::UNIX_EPOCH,
        changed_at: DateTime::UNIX_EPOCH,
        changed_by: "simulator".to_owned(),
        reason: None,
        blocked: None,
    }
}
