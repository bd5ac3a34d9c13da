//! Policies and their versions.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::instant::written;
use super::limits::LimitAnswer;
use super::orphans::OrphansBody;
use super::page::page;
use super::strict::{Object, WholeNumber};
use super::tiers::{TierAnswer, TierBody};
use super::words::{self, Word};
use domain::calendar_words::{format_minute, weekday_name};
use domain::limit::draft::LimitDraft;
use domain::policy::{Policy, PolicyPause, Rule, RuleDraft};
use domain::zone_hints::warning;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "stock is out" }))]
pub struct PauseBody {
    #[schema(value_type = String, required, min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "description": "3 benefit claims per member per day",
    "time_zone": "Asia/Shanghai",
    "limits": [{ "max": 3, "per": "day" }],
    "tiers": [{ "name": "gold", "limits": [{ "max": 10, "per": "day" }] }],
    "reason": "campaign 7",
}))]
pub struct PolicyBody {
    /// For people.
    #[schema(example = "3 benefit claims per member per day", max_length = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// An IANA name, or a fixed offset written `+08:00`, `UTC+8` or `GMT+8`.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    /// No two with the same `per`.
    #[schema(value_type = Vec<LimitBody>, min_items = 1, max_items = 10)]
    pub limits: Vec<Object<LimitBody>>,
    /// Default: midnight.
    #[schema(example = "00:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_starts_at: Option<String>,
    /// Default: `monday`.
    #[schema(value_type = Option<words::Weekday>, example = "monday")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week_starts_on: Option<String>,
    /// Whose calendar divides time into windows. Default: `policy`.
    #[schema(value_type = Option<words::CalendarOwner>, example = "policy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// Before this instant the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_from: Option<String>,
    /// From this instant on the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_until: Option<String>,
    /// Leave it out: a pause has its own URL, and another value than the present one is refused.
    #[schema(example = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Default: `enforce`.
    #[schema(value_type = Option<words::Mode>, example = "enforce")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Default: `recorded`.
    #[schema(value_type = Option<words::Durability>, example = "recorded")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Default: `refuse`.
    #[schema(value_type = Option<words::OnLedgerOutage>, example = "refuse")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ledger_outage: Option<String>,
    /// The entry that brings a limit to one of these levels is marked with it. Default: none.
    #[schema(value_type = Option<Vec<words::WarningLevel>>, example = json!([80, 100]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warn_at: Option<Vec<WholeNumber>>,
    /// For at least how many days a claim can be repeated with its `Idempotency-Key`. After that, and when all windows
    /// have ended, its entries may be archived and dropped. Default: 400 days.
    #[schema(value_type = Option<u32>, example = 30, minimum = 1, maximum = 3650)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_days: Option<WholeNumber>,
    /// Other maxima for the subjects that are put into a tier, no two with the same name. Default: none.
    #[schema(value_type = Option<Vec<TierBody>>, max_items = 20)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Vec<Object<TierBody>>>,
    /// Limits that all subjects share, such as the first 1,000 of each day, no two with the same `per`; only of the
    /// calendar. Default: none.
    #[schema(value_type = Option<Vec<LimitBody>>, max_items = 10)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Vec<Object<LimitBody>>>,
    /// When the change takes effect: `now`; `next_window`, the start of the policy's next local day; the start
    /// of a local day, such as `2026-12-01`; or an instant. Default: `now`.
    #[schema(example = "now", format = "effective-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
    /// Required when a policy is replaced or revived.
    #[schema(example = "campaign 7", min_length = 1, max_length = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Required if there are such overrides, or subjects in a tier that the policy loses.
    #[schema(value_type = Option<words::OnOrphans>, example = "keep")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_overrides: Option<String>,
}

/// Settings to change, as in a new policy: what is absent stays, and `null` means the default (RFC 7396).
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "limits": [{ "max": 4, "per": "day" }], "reason": "campaign 7" }))]
pub struct PolicyPatch {
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub description: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "not_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = String, required = false, format = "time-zone")]
    pub time_zone: Option<String>,
    /// They replace the present ones.
    #[serde(
        default,
        deserialize_with = "not_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(required = false, value_type = Vec<LimitBody>, min_items = 1, max_items = 10)]
    pub limits: Option<Vec<Object<LimitBody>>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub day_starts_at: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Weekday>)]
    pub week_starts_on: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::CalendarOwner>)]
    pub calendar: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub active_from: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub active_until: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Mode>)]
    pub mode: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Durability>)]
    pub durability: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::OnLedgerOutage>)]
    pub on_ledger_outage: Option<Option<String>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Vec<words::WarningLevel>>)]
    pub warn_at: Option<Option<Vec<WholeNumber>>>,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 3650)]
    pub idempotency_days: Option<Option<WholeNumber>>,
    /// They replace the present ones.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Vec<TierBody>>, max_items = 20)]
    pub tiers: Option<Option<Vec<Object<TierBody>>>>,
    /// They replace the present ones.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Vec<LimitBody>>, max_items = 10)]
    pub total: Option<Option<Vec<Object<LimitBody>>>>,
    /// Default: when the version that it changes takes effect, if that is later; otherwise now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "effective-time")]
    pub effective: Option<String>,
    /// Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::OnOrphans>)]
    pub orphaned_overrides: Option<String>,
}

/// A value that was given: `null` too.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A value that has no default.
fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl PolicyPatch {
    /// The whole policy after the change of a version.
    pub fn onto(self, version: PolicyAnswer) -> PolicyBody {
        let before = PolicyBody::from(version);
        PolicyBody {
            description: self.description.unwrap_or(before.description),
            time_zone: self.time_zone.unwrap_or(before.time_zone),
            limits: self.limits.unwrap_or(before.limits),
            day_starts_at: self.day_starts_at.unwrap_or(before.day_starts_at),
            week_starts_on: self.week_starts_on.unwrap_or(before.week_starts_on),
            calendar: self.calendar.unwrap_or(before.calendar),
            active_from: self.active_from.unwrap_or(before.active_from),
            active_until: self.active_until.unwrap_or(before.active_until),
            paused: None,
            mode: self.mode.unwrap_or(before.mode),
            durability: self.durability.unwrap_or(before.durability),
            on_ledger_outage: self.on_ledger_outage.unwrap_or(before.on_ledger_outage),
            warn_at: self.warn_at.unwrap_or(before.warn_at),
            idempotency_days: self.idempotency_days.unwrap_or(before.idempotency_days),
            tiers: self.tiers.unwrap_or(before.tiers),
            total: self.total.unwrap_or(before.total),
            effective: self.effective,
            reason: self.reason,
            orphaned_overrides: self.orphaned_overrides,
        }
    }
}

/// The settings of a version, to write them again.
/// Without the instants, which are texts here.
impl From<PolicyBody> for RuleDraft {
    fn from(body: PolicyBody) -> Self {
        let drafts = |limits: Vec<Object<LimitBody>>| {
            let limits = limits.into_iter();
            limits.map(|Object(limit)| limit.into()).collect()
        };
        let levels = body.warn_at.unwrap_or_default().into_iter();
        let tiers = body.tiers.unwrap_or_default().into_iter();
        Self {
            description: body.description,
            time_zone: body.time_zone,
            limits: drafts(body.limits),
            day_starts_at: body.day_starts_at,
            week_starts_on: body.week_starts_on,
            calendar: body.calendar,
            active_from: None,
            active_until: None,
            paused: false,
            mode: body.mode,
            durability: body.durability,
            on_ledger_outage: body.on_ledger_outage,
            warn_at: levels.map(|level| level.0).collect(),
            idempotency_days: body.idempotency_days.map(|days| days.0),
            tiers: tiers.map(|Object(tier)| tier.into()).collect(),
            total: drafts(body.total.unwrap_or_default()),
        }
    }
}

impl From<PolicyAnswer> for PolicyBody {
    fn from(version: PolicyAnswer) -> Self {
        let bodies = |limits: Vec<LimitAnswer>| {
            let limits = limits.into_iter();
            limits.map(LimitBody::from).map(Object).collect()
        };
        let levels = version.warn_at.into_iter();
        let tiers = version.tiers.into_iter();
        Self {
            description: Some(version.description),
            time_zone: version.time_zone,
            limits: bodies(version.limits),
            day_starts_at: Some(version.day_starts_at),
            week_starts_on: Some(version.week_starts_on.into_owned()),
            calendar: Some(version.calendar.into_owned()).filter(|it| !it.is_empty()),
            active_from: version.active_from.map(written),
            active_until: version.active_until.map(written),
            paused: None,
            mode: Some(version.mode.into_owned()),
            effective: None,
            durability: Some(version.durability.into_owned()),
            on_ledger_outage: Some(version.on_ledger_outage.into_owned()),
            warn_at: Some(levels.map(|level| WholeNumber(level.into())).collect()),
            idempotency_days: version
                .idempotency_days
                .map(|days| WholeNumber(days.into())),
            tiers: Some(tiers.map(TierBody::from).map(Object).collect()),
            total: Some(bodies(version.total)),
            reason: None,
            orphaned_overrides: None,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitBody {
    #[schema(value_type = u64, example = 3, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub max: WholeNumber,
    /// A duration requires a `kind`, and several weeks require `from`.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: String,
    /// Required for a duration.
    #[schema(value_type = Option<words::LimitKind>, example = "sliding")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For `sliding`: instants are rounded up to multiples of this duration, which divides `per` into at most
    /// 100 parts. Without it, `max` is at most 100.
    #[schema(example = "1h", pattern = "^[0-9]+[smhd]$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// For `rate`: the most units at once. Default: `max`.
    #[schema(value_type = Option<u64>, example = 20, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<WholeNumber>,
    /// Required for several weeks: the first day of one window. The others lie before and after it.
    #[schema(example = "2026-01-05", format = Date)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl From<LimitBody> for LimitDraft {
    fn from(limit: LimitBody) -> Self {
        Self {
            max: limit.max.0,
            per: limit.per,
            kind: limit.kind,
            step: limit.step,
            burst: limit.burst.map(|burst| burst.0),
            from: limit.from,
        }
    }
}

impl From<LimitAnswer> for LimitBody {
    fn from(limit: LimitAnswer) -> Self {
        Self {
            max: WholeNumber(limit.max.into()),
            per: limit.per.as_text().into_owned(),
            kind: limit.kind.map(Word::into_owned),
            step: limit.step.map(|step| step.to_string()),
            burst: limit.burst.map(|burst| WholeNumber(burst.into())),
            from: limit.from.map(|from| from.to_string()),
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PauseAnswer {
    pub since: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
    #[schema(example = "stock is out")]
    pub reason: Option<String>,
}

impl From<PolicyPause> for PauseAnswer {
    fn from(pause: PolicyPause) -> Self {
        let PolicyPause { since, by, reason } = pause;
        Self { since, by, reason }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswer {
    #[schema(example = "benefit")]
    pub name: String,
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "3 benefit claims per member per day")]
    pub description: String,
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    pub limits: Vec<LimitAnswer>,
    #[schema(example = "00:00")]
    pub day_starts_at: String,
    #[schema(value_type = words::Weekday, example = "monday")]
    pub week_starts_on: Word,
    #[serde(default)]
    #[schema(required, value_type = words::CalendarOwner, example = "policy")]
    pub calendar: Word,
    pub active_from: Option<DateTime<Utc>>,
    pub active_until: Option<DateTime<Utc>>,
    /// A paused policy grants no claim.
    pub paused: bool,
    /// Absent in lists of versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub pause: Option<PauseAnswer>,
    #[schema(value_type = words::Mode, example = "enforce")]
    pub mode: Word,
    #[schema(value_type = words::Durability, example = "recorded")]
    pub durability: Word,
    #[schema(value_type = words::OnLedgerOutage, example = "refuse")]
    pub on_ledger_outage: Word,
    #[serde(default)]
    #[schema(required, value_type = Vec<words::WarningLevel>)]
    pub warn_at: Vec<u8>,
    #[serde(default)]
    #[schema(required)]
    pub idempotency_days: Option<u32>,
    #[serde(default)]
    #[schema(required)]
    pub tiers: Vec<TierAnswer>,
    /// The limits that all subjects share. They count from the version on that brought them.
    #[serde(default)]
    #[schema(required)]
    pub total: Vec<LimitAnswer>,
    /// An archived policy takes no more claims.
    pub archived: bool,
    /// When this version takes effect. From then on it is in force, unless a higher version is.
    pub effective_at: DateTime<Utc>,
    /// The version in force now. Absent in lists of versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false, example = 1)]
    pub in_force_version: Option<u32>,
    pub changed_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    #[schema(example = "campaign 7")]
    pub reason: Option<String>,
    /// What the policy may not mean as its author takes it, such as a time zone whose clocks never change, or
    /// whose sign is the opposite of the usual one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub warnings: Vec<String>,
    /// Those that this change orphans.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub orphaned_overrides: Option<OrphansBody>,
}

page!(PolicyList of PolicyAnswer);

impl From<Policy> for PolicyAnswer {
    fn from(policy: Policy) -> Self {
        let Rule { calendar, .. } = &policy.rule;
        let shared = policy.rule.shared.iter();
        Self {
            name: policy.name.to_string(),
            version: policy.version,
            time_zone: calendar.zone.name().to_owned(),
            warnings: warning(&calendar.zone).into_iter().collect(),
            limits: policy.rule.limits.iter().map(LimitAnswer::from).collect(),
            day_starts_at: format_minute(calendar.day_starts_at),
            week_starts_on: weekday_name(calendar.week_starts_on).into(),
            calendar: policy.rule.calendar_owner.as_str().into(),
            description: policy.rule.description,
            active_from: policy.rule.active_from,
            active_until: policy.rule.active_until,
            paused: policy.rule.paused,
            pause: None,
            mode: policy.rule.mode.as_str().into(),
            durability: policy.rule.durability.as_str().into(),
            on_ledger_outage: policy.rule.on_ledger_outage.as_str().into(),
            warn_at: policy.rule.warn_at.percents().collect(),
            idempotency_days: policy.rule.idempotency_days.map(|days| days.get().into()),
            tiers: policy.rule.tiers.iter().map(TierAnswer::from).collect(),
            total: shared.map(|it| LimitAnswer::from(&it.limit())).collect(),
            archived: policy.archived,
            effective_at: policy.effective_at,
            in_force_version: None,
            changed_at: policy.changed_at,
            changed_by: policy.changed_by,
            reason: policy.reason,
            orphaned_overrides: None,
        }
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowAnswer {
    pub start: DateTime<Utc>,
    /// The first instant after the window.
    pub end: DateTime<Utc>,
    /// The local date of the window, or of its first day.
    pub local_date: NaiveDate,
    /// The version in force when the window began. If the calendar changed inside the window: the version that
    /// brought the calendar.
    #[schema(example = 1)]
    pub policy_version: u32,
    #[schema(example = "+08:00")]
    pub time_zone: String,
}

page!(WindowList of WindowAnswer);
