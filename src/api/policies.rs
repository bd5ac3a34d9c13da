//! Policies and their versions.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::instant::written;
use super::limits::LimitAnswer;
use super::orphans::OrphansBody;
use super::page::page;
use super::strict::{Object, WholeNumber};
use super::words::{self, Word};
use domain::limit::draft::LimitDraft;
use domain::policy::{Policy, PolicyPause, Rule, RuleDraft, format_minute, weekday_name};
use domain::zone_hints::warning;

/// A pause to begin.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "stock is out" }))]
pub struct PauseBody {
    /// The reason: 1 to 1000 characters.
    #[schema(value_type = String, required, example = "stock is out", min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
}

/// A policy to create, or to replace another one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "description": "3 benefit claims per member per day",
    "time_zone": "Asia/Shanghai",
    "limits": [{ "max": 3, "per": "day" }],
    "reason": "campaign 7",
}))]
pub struct PolicyBody {
    /// A text for people: at most 1000 characters.
    #[schema(example = "3 benefit claims per member per day", max_length = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The time zone of the policy: an IANA name, or a fixed offset written `+08:00`, `UTC+8` or
    /// `GMT+8`.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    /// One or more limits, no two with the same `per`.
    #[schema(value_type = Vec<LimitBody>, min_items = 1, max_items = 10)]
    pub limits: Vec<Object<LimitBody>>,
    /// The local time at which a day begins, as `HH:MM`. Default: midnight.
    #[schema(example = "00:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_starts_at: Option<String>,
    /// The first day of a week, as an English name in lower case. Default: `monday`.
    #[schema(value_type = Option<words::Weekday>, example = "monday")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week_starts_on: Option<String>,
    /// Before this instant the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_from: Option<String>,
    /// From this instant on the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_until: Option<String>,
    /// Leave it out: a pause has its own URL, and this request does not change it. A value that is not
    /// the present one is refused with 422.
    #[schema(example = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// `enforce`: claims that do not fit are denied. `observe`: all claims are granted, up to 2^53
    /// − 1 units in a window, and those that would have been denied are marked. Default: `enforce`.
    #[schema(value_type = Option<words::Mode>, example = "enforce")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `recorded`: a grant is committed to the ledger before the claim is answered. `counted`:
    /// Redis alone decides, and queues the grant for the ledger. A claim then does not wait for the
    /// ledger, but a grant is only as durable as Redis. Default: `recorded`.
    #[schema(value_type = Option<words::Durability>, example = "recorded")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// What happens to claims while the ledger cannot decide. `refuse`: they are answered with 503.
    /// `count`: Redis decides, perhaps over a limit, and the ledger records the grants afterwards.
    /// Default: `refuse`.
    #[schema(value_type = Option<words::OnLedgerOutage>, example = "refuse")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_ledger_outage: Option<String>,
    /// When the change takes effect: `now`; with `next_window` at the start of the policy's next local day;
    /// at the start of a local day, such as `2026-12-01`; or at an instant, such as
    /// `2026-12-01T00:00:00Z`. Default: `now`.
    #[schema(example = "now", format = "effective-time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<String>,
    /// The reason: 1 to 1000 characters. Required when a policy is replaced or revived.
    #[schema(example = "campaign 7", min_length = 1, max_length = 1000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What becomes of overrides that the change leaves without their limit, or beyond its bounds.
    /// `drop`: they end, when the change takes effect. `keep`: they stay, and have no effect on the
    /// limits that they lost. Required if there are such overrides.
    #[schema(value_type = Option<words::OnOrphans>, example = "keep")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_overrides: Option<String>,
}

/// Settings of a policy to change; a JSON merge patch (RFC 7396). What is absent stays, and `null` means
/// the default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "limits": [{ "max": 4, "per": "day" }], "reason": "campaign 7" }))]
pub struct PolicyPatch {
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, example = "3 benefit claims per member per day", max_length = 1000)]
    pub description: Option<Option<String>>,
    /// As in a new policy; not `null`.
    #[serde(
        default,
        deserialize_with = "not_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = String, required = false, example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: Option<String>,
    /// All limits: they replace the present ones. Not `null`.
    #[serde(
        default,
        deserialize_with = "not_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(required = false, value_type = Vec<LimitBody>, min_items = 1, max_items = 10)]
    pub limits: Option<Vec<Object<LimitBody>>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, example = "00:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub day_starts_at: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Weekday>, example = "monday")]
    pub week_starts_on: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub active_from: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DateTime<Utc>>)]
    pub active_until: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Mode>, example = "enforce")]
    pub mode: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::Durability>, example = "recorded")]
    pub durability: Option<Option<String>>,
    /// As in a new policy.
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<words::OnLedgerOutage>, example = "refuse")]
    pub on_ledger_outage: Option<Option<String>>,
    /// When the change takes effect, as in a new policy. Default: when the version that it changes takes
    /// effect, if that is later; otherwise now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "now", format = "effective-time")]
    pub effective: Option<String>,
    /// The reason: 1 to 1000 characters. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "campaign 7", min_length = 1, max_length = 1000)]
    pub reason: Option<String>,
    /// As in a new policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::OnOrphans>, example = "keep")]
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
            active_from: self.active_from.unwrap_or(before.active_from),
            active_until: self.active_until.unwrap_or(before.active_until),
            paused: None,
            mode: self.mode.unwrap_or(before.mode),
            durability: self.durability.unwrap_or(before.durability),
            on_ledger_outage: self.on_ledger_outage.unwrap_or(before.on_ledger_outage),
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
        let limits = body.limits.into_iter().map(|Object(limit)| LimitDraft {
            max: limit.max.0,
            per: limit.per,
            kind: limit.kind,
            step: limit.step,
            burst: limit.burst.map(|burst| burst.0),
        });
        Self {
            description: body.description,
            time_zone: body.time_zone,
            limits: limits.collect(),
            day_starts_at: body.day_starts_at,
            week_starts_on: body.week_starts_on,
            active_from: None,
            active_until: None,
            paused: false,
            mode: body.mode,
            durability: body.durability,
            on_ledger_outage: body.on_ledger_outage,
        }
    }
}

impl From<PolicyAnswer> for PolicyBody {
    fn from(version: PolicyAnswer) -> Self {
        Self {
            description: Some(version.description),
            time_zone: version.time_zone,
            limits: version
                .limits
                .into_iter()
                .map(LimitBody::from)
                .map(Object)
                .collect(),
            day_starts_at: Some(version.day_starts_at),
            week_starts_on: Some(version.week_starts_on.into_owned()),
            active_from: version.active_from.map(written),
            active_until: version.active_until.map(written),
            paused: None,
            mode: Some(version.mode.into_owned()),
            effective: None,
            durability: Some(version.durability.into_owned()),
            on_ledger_outage: Some(version.on_ledger_outage.into_owned()),
            reason: None,
            orphaned_overrides: None,
        }
    }
}

/// `max` units `per` window.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitBody {
    /// The most units in a window.
    #[schema(value_type = u64, example = 3, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub max: WholeNumber,
    /// `minute`, `hour`, `day`, `week`, `month`, `year` or `ever`; or a duration from 1s to 400d,
    /// such as `24h`. A duration requires a `kind`.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: String,
    /// Required for a duration. `from_first_claim`: all units return together, one duration after
    /// the first grant. `sliding`: each unit returns one duration after it was taken. `rate`: units
    /// return evenly.
    #[schema(value_type = Option<words::LimitKind>, example = "sliding")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// For `sliding`: instants are rounded up to multiples of this duration. It divides `per` into
    /// at most 100 parts. Without it, `max` is at most 100.
    #[schema(example = "1h", pattern = "^[0-9]+[smhd]$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// For `rate`: the most units at once. Default: `max`.
    #[schema(value_type = Option<u64>, example = 20, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<WholeNumber>,
}

impl From<LimitAnswer> for LimitBody {
    fn from(limit: LimitAnswer) -> Self {
        Self {
            max: WholeNumber(limit.max.into()),
            per: limit.per.as_text().into_owned(),
            kind: limit.kind.map(Word::into_owned),
            step: limit.step.map(|step| step.to_string()),
            burst: limit.burst.map(|burst| WholeNumber(burst.into())),
        }
    }
}

/// Why a policy is paused, since when, and by whom.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PauseAnswer {
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub since: DateTime<Utc>,
    /// A key's id, or `PERDIEM_ADMIN_KEY`.
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

/// A version of a policy.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyAnswer {
    #[schema(example = "benefit")]
    pub name: String,
    /// The number of the version: 1, 2, 3 … Every change makes a new version.
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "3 benefit claims per member per day")]
    pub description: String,
    /// An IANA name, or a fixed offset written `+08:00`.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    pub limits: Vec<LimitAnswer>,
    #[schema(example = "00:00")]
    pub day_starts_at: String,
    #[schema(value_type = words::Weekday, example = "monday")]
    pub week_starts_on: Word,
    pub active_from: Option<DateTime<Utc>>,
    pub active_until: Option<DateTime<Utc>>,
    /// Whether the policy is paused: it grants no claim.
    pub paused: bool,
    /// The pause. Absent while the policy is not paused, and in lists of versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub pause: Option<PauseAnswer>,
    /// `enforce` or `observe`.
    #[schema(value_type = words::Mode, example = "enforce")]
    pub mode: Word,
    /// `recorded` or `counted`.
    #[schema(value_type = words::Durability, example = "recorded")]
    pub durability: Word,
    /// `refuse` or `count`.
    #[schema(value_type = words::OnLedgerOutage, example = "refuse")]
    pub on_ledger_outage: Word,
    /// Whether this version takes no more claims.
    pub archived: bool,
    /// When this version takes effect. From then on it is in force, unless a higher version is.
    pub effective_at: DateTime<Utc>,
    /// The number of the version in force now. It is lower than `version` until this version takes
    /// effect. Absent in lists of versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, example = 1)]
    pub in_force_version: Option<u32>,
    /// When this version was made.
    pub changed_at: DateTime<Utc>,
    /// Who made this version: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub changed_by: String,
    /// The reason.
    #[schema(example = "campaign 7")]
    pub reason: Option<String>,
    /// What the policy may not mean as its author takes it: a name of a time zone whose clocks never
    /// change, or whose sign is the opposite of the usual one. Absent if there is nothing to tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub warnings: Vec<String>,
    /// In the answer to a change, and to a dry run of one: the overrides that the change orphans. Absent
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_overrides: Option<OrphansBody>,
}

page! {
    /// A page of policies.
    PolicyList of PolicyAnswer
    /// The cursor of the next page; null on the last page.
}

impl From<Policy> for PolicyAnswer {
    fn from(policy: Policy) -> Self {
        let Rule { calendar, .. } = &policy.rule;
        Self {
            name: policy.name.to_string(),
            version: policy.version,
            time_zone: calendar.zone.name().to_owned(),
            warnings: warning(&calendar.zone).into_iter().collect(),
            limits: policy.rule.limits.iter().map(LimitAnswer::from).collect(),
            day_starts_at: format_minute(calendar.day_starts_at),
            week_starts_on: weekday_name(calendar.week_starts_on).into(),
            description: policy.rule.description,
            active_from: policy.rule.active_from,
            active_until: policy.rule.active_until,
            paused: policy.rule.paused,
            pause: None,
            mode: policy.rule.mode.as_str().into(),
            durability: policy.rule.durability.as_str().into(),
            on_ledger_outage: policy.rule.on_ledger_outage.as_str().into(),
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

/// A window of a policy.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowAnswer {
    #[schema(example = "2026-11-20T16:00:00Z")]
    pub start: DateTime<Utc>,
    /// The end of the window: the first instant after it.
    #[schema(example = "2026-11-21T16:00:00Z")]
    pub end: DateTime<Utc>,
    /// The local date of the window, or of its first day.
    #[schema(example = "2026-11-21")]
    pub local_date: NaiveDate,
    /// The version of the policy that was in force when the window began. If the calendar changed
    /// inside the window: the version that brought the calendar.
    #[schema(example = 1)]
    pub policy_version: u32,
    /// The time zone of that version.
    #[schema(example = "+08:00")]
    pub time_zone: String,
}

page! {
    /// A page of windows.
    WindowList of WindowAnswer
    /// The cursor of the next page; null on the last page.
}
