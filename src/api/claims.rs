//! Claims and their answers, and a subject's usage.

use chrono::{DateTime, Utc};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::calendars::{CalendarAnswer, CalendarBody};
use super::distinct::DistinctObject;
use super::explanation::ClaimExplanation;
use super::grants::{ClaimAnswer, GrantBody};
use super::instant;
use super::limits::LimitUsage;
use super::problem::Problem;
use super::strict::{Object, WholeNumber};
use super::top_ups::TopUpLeft;
use super::words::{self, Word, any_of};

pub const QUOTA_EXCEEDED_TYPE: &str =
    "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "subject": "member-42", "units": 1, "metadata": { "order": "A-17" } }))]
pub struct ClaimBody {
    /// 1 to 256 bytes of UTF-8 in Unicode's normalization form C, without characters that nobody can see; the
    /// only blanks are plain spaces within the text. Send an id, not a name.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub subject: String,
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub units: Option<WholeNumber>,
    /// Makes the grant a hold: it lapses after this time and gives its units back, unless it is confirmed
    /// before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 2_592_000_u64)]
    pub hold_seconds: Option<WholeNumber>,
    /// The time zone and the anchor that the subject has of its own from here on, under a policy whose `calendar`
    /// is not `policy`. A part that is left out stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CalendarBody>)]
    pub calendar: Option<Object<CalendarBody>>,
    /// Only shows what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// Stored with the grant: at most 4 KiB of compact JSON, 32 levels deep. Numbers are 64-bit integers or
    /// IEEE 754 doubles.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<DistinctObject>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "claims": [
        { "policy": "benefit", "subject": "member-42", "idempotency_key": "order-17" },
        { "policy": "benefit", "subject": "member-7", "units": 2, "idempotency_key": "order-18" },
    ],
}))]
pub struct BatchBody {
    #[schema(value_type = Vec<BatchClaim>, min_items = 1, max_items = 1000)]
    pub claims: Vec<Object<BatchClaim>>,
    /// Grants either all claims or none. What is granted is a bundle.
    #[serde(default)]
    pub atomic: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchClaim {
    #[schema(example = "benefit", pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub policy: String,
    /// 1 to 256 bytes of UTF-8 in Unicode's normalization form C, without characters that nobody can see; the
    /// only blanks are plain spaces within the text. Send an id, not a name.
    #[schema(
        example = "member-42",
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub subject: String,
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, example = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub units: Option<WholeNumber>,
    /// As in a single claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, example = 600, minimum = 1, maximum = 2_592_000_u64)]
    pub hold_seconds: Option<WholeNumber>,
    /// As in a single claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CalendarBody>)]
    pub calendar: Option<Object<CalendarBody>>,
    /// As in a single claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<DistinctObject>,
    /// Makes a retry safe. Unique in its policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "order-17",
        pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#
    )]
    pub idempotency_key: Option<String>,
}

/// A denial (draft-ietf-httpapi-ratelimit-headers-11, "quota-exceeded").
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DenialBody {
    /// `https://iana.org/assignments/http-problem-types#quota-exceeded`.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    pub kind: Word,
    #[schema(value_type = words::QuotaExceeded, example = "quota-exceeded")]
    pub code: Word,
    #[schema(value_type = String, example = "Quota exceeded")]
    pub title: Word,
    #[schema(example = 429)]
    pub status: u16,
    #[schema(
        example = "member-42 has used 3 of 3 for today under benefit; the next window begins at 2026-11-21T16:00:00Z"
    )]
    pub detail: String,
    /// The page that explains this code.
    #[schema(value_type = String, example = "/docs/problems#quota-exceeded")]
    pub page: Word,
    /// As in the field `X-Request-Id` and in the server's log. Absent in an item of a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0199a3c4-6d0e-7f3a-8b1c-2f60a1d3e4b5")]
    pub request_id: Option<String>,
    /// The trace of the request's `traceparent` (W3C Trace Context), as in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0af7651916cd43dd8448eb211c80319c")]
    pub trace_id: Option<String>,
    #[schema(value_type = words::Denied, example = "denied")]
    pub outcome: Word,
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = "member-42")]
    pub subject: String,
    /// The earliest instant at which the claim would be granted, if nobody else claims and nothing else
    /// changes. It knows the windows, open holds that lapse, the end of an override, and a scheduled version.
    /// Null where nothing that is known makes room.
    #[serde(serialize_with = "instant::serialize_some")]
    pub fits_at: Option<DateTime<Utc>>,
    /// The names of the limits without room for the units. That of a limit that all subjects share begins with
    /// `total`, as in `total day`.
    #[serde(rename = "violated-policies")]
    #[schema(example = json!(["day"]))]
    pub violated_policies: Vec<String>,
    /// With the present usage.
    pub limits: Vec<LimitUsage>,
    /// The limits that all subjects share, where they lack room and the subject itself has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub total: Vec<LimitUsage>,
}

/// The answer to a claim with status 429.
pub enum ClaimRefusal {}

any_of!(
    ClaimRefusal,
    "A denial; or the problem `too-many-wrong-keys`.",
    [DenialBody, Problem],
    "code": ["quota-exceeded" => DenialBody, "too-many-wrong-keys" => Problem]
);

/// What all subjects of a policy share.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TotalBody {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = 1)]
    pub policy_version: u32,
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    /// The limits that all subjects share, with their usage now. Empty for a policy without them.
    pub total: Vec<LimitUsage>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UsageBody {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = 1)]
    pub policy_version: u32,
    /// That of the subject, if it has one of its own.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    pub time_zone: String,
    /// The time zone and the anchor that the subject has of its own. Absent under a policy whose own calendar
    /// divides time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub calendar: Option<CalendarAnswer>,
    #[schema(example = "member-42")]
    pub subject: String,
    /// The units that the subject has beside its windows, in the order in which they are used. The header fields
    /// do not tell of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_ups: Vec<TopUpLeft>,
    /// Whether the subject has entries under this policy, or grants that wait for the ledger.
    pub has_entries: bool,
    pub limits: Vec<LimitUsage>,
    /// The override in force.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub override_note: Option<OverrideNote>,
    /// The tier that the subject is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tier: Option<TierNote>,
    /// The block in force: every claim is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub block: Option<BlockNote>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BlockNote {
    pub until: Option<DateTime<Utc>>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TierNote {
    #[schema(example = "gold")]
    pub name: String,
    pub until: Option<DateTime<Utc>>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct OverrideNote {
    pub until: Option<DateTime<Utc>>,
}

/// The answer to a request for a subject's limits.
pub enum UsageAnswer {}

any_of!(
    UsageAnswer,
    "The limits; or an explanation, where a parameter asks for one.",
    [UsageBody, ClaimExplanation]
);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// The bundle of an atomic batch whose claims are all granted, now or before. A retry has the bundle of then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub bundle: Option<Uuid>,
    /// In the order of the claims.
    pub items: Vec<BatchItem>,
}

/// The answer that the claim alone would get, with its status.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum BatchItem {
    /// Granted now (201) or before (200).
    Granted(GrantedItem),
    /// Denied (429).
    Denied(DenialBody),
    /// Refused, with the status of the problem. In an atomic batch: 424, `failed-dependency`, for a
    /// claim that alone would have been granted.
    Refused(Problem),
}

#[derive(Debug, Serialize, ToSchema)]
pub struct GrantedItem {
    /// 201, or 200 where it was granted before.
    #[schema(example = 201)]
    pub status: u16,
    #[serde(flatten)]
    #[schema(value_type = GrantedAnswer)]
    pub answer: ClaimAnswer,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "read by the derive")]
struct GrantedAnswer {
    #[schema(value_type = words::Granted, example = "granted")]
    outcome: Word,
    /// Redis alone decided, as the policy allows: the ledger records the grant afterwards.
    #[schema(required = false, example = false)]
    provisional: bool,
    grant: GrantBody,
    /// The limits at the grant.
    limits: Vec<LimitUsage>,
}

impl<'de> Deserialize<'de> for BatchItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ItemHead {
            status: u16,
            outcome: Option<String>,
        }
        let item = Value::deserialize(deserializer)?;
        let read = || {
            let ItemHead { status, outcome } = ItemHead::deserialize(&item)?;
            Ok(match outcome.as_deref() {
                Some("granted") => Self::Granted(GrantedItem {
                    status,
                    answer: ClaimAnswer::deserialize(&item)?,
                }),
                Some(_) => Self::Denied(DenialBody::deserialize(&item)?),
                None => Self::Refused(Problem::deserialize(&item)?),
            })
        };
        read().map_err(|error: serde_json::Error| D::Error::custom(error))
    }
}

// A denial is a problem too. So an item matches one of these schemas or more.
any_of!(
    BatchItem,
    "The answer that the claim alone would get, with its status: granted; denied (429); or a \
     problem. In an atomic batch the problem is 424 for a claim that alone would have been granted.",
    [GrantedItem, DenialBody, Problem]
);
