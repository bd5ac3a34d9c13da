//! Grants, the answers to granted claims, and corrections.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::instant;
use super::limits::LimitUsage;
use super::page::page;
use super::strict::WholeNumber;
use super::words::{self, Word};
use domain::forecast::Forecast;
use domain::grant::{EntryKind, Follower, Followers, Grant, Provisional};

/// The reason for which a grant is reversed, and how many of its units.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "SMS gateway refused" }))]
pub struct ReversalRequest {
    /// The reason: 1 to 1000 characters.
    #[schema(example = "SMS gateway refused", min_length = 1, max_length = 1000)]
    pub reason: String,
    /// Gives only these units back; others are left. It needs an `Idempotency-Key`, so that a repeated
    /// request gives nothing back again. Default: all units that are left.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991u64, example = 1)]
    pub units: Option<WholeNumber>,
}

/// How many units of a hold are confirmed. The body is optional.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "units": 1 }))]
pub struct ConfirmationRequest {
    /// Only these units stay used, and the others are given back. Default: all units that are left.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991u64, example = 1)]
    pub units: Option<WholeNumber>,
}

/// A grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantBody {
    /// A UUIDv7. The order of ids is the order of the grants.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Uuid,
    #[schema(example = "benefit")]
    pub policy: String,
    /// The version of the policy that granted it.
    #[schema(example = 1)]
    pub policy_version: u32,
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    #[schema(example = 1)]
    pub units: u64,
    /// The units that reversals of some units have given back, before the grant was reversed or the
    /// hold lapsed. Absent without any.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false, example = 1)]
    pub returned_units: u64,
    /// `held`, `granted`, `reversed` or `lapsed`. A grant is `granted` as long as a unit is left.
    #[schema(value_type = words::GrantState, example = "granted")]
    pub state: Word,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    #[serde(serialize_with = "instant::serialize")]
    pub granted_at: DateTime<Utc>,
    /// `true` where Redis alone decided the claim, and the ledger recorded the grant afterwards.
    /// Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// `true` where the grant went over a limit. Only a provisional grant can. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub over: bool,
    /// `true` where the policy only observed, and would have denied the claim in the mode
    /// `enforce`. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// For a hold: the instant at which it lapses unless it is confirmed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<DateTime<Utc>>,
    /// The confirmation of a hold. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<ConfirmationBody>,
    /// The reversal of the units that were left. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reversal: Option<ReversalBody>,
    /// The metadata of the claim.
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
fn is_zero(units: &u64) -> bool {
    *units == 0
}

/// A confirmation of a hold.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfirmationBody {
    /// The units that stay used.
    #[schema(example = 1)]
    pub units: u64,
    /// When it was made.
    pub at: DateTime<Utc>,
    /// Who made it: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
}

/// A reversal of a grant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReversalBody {
    /// When it was made.
    pub at: DateTime<Utc>,
    /// Who made it: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
    /// The reason.
    #[schema(example = "SMS gateway refused")]
    pub reason: String,
}

impl GrantBody {
    /// The grant with its state at an instant.
    pub fn new(grant: &Grant, now: DateTime<Utc>) -> Self {
        let entry = &grant.entry;
        let metadata = entry.metadata.as_ref();
        let Followers {
            returned,
            parts: _,
            confirmation,
            closing,
        } = &grant.followers;
        let reversal = closing
            .as_ref()
            .filter(|closing| matches!(closing.kind, EntryKind::Reversal { .. }));
        let by = |follower: &Follower| {
            let note = follower.note.as_ref();
            note.map(|note| note.by.to_string()).unwrap_or_default()
        };
        let reason = |follower: &Follower| follower.note.as_ref()?.reason.clone();
        Self {
            id: entry.id.0,
            policy: grant.policy.to_string(),
            policy_version: entry.line.policy_version,
            subject: grant.subject.clone(),
            units: entry.units.get(),
            returned_units: *returned,
            state: grant.state(now).as_str().into(),
            granted_at: entry.counted_at(),
            provisional: entry.provisional.is_some(),
            over: entry.provisional == Some(Provisional::Over),
            would_deny: entry.would_deny,
            held_until: entry.held_until(),
            confirmation: confirmation.as_ref().map(|confirmation| ConfirmationBody {
                units: confirmation.units.get(),
                at: confirmation.at,
                by: by(confirmation),
            }),
            reversal: reversal.map(|reversal| ReversalBody {
                at: reversal.at,
                by: by(reversal),
                reason: reason(reversal).unwrap_or_default(),
            }),
            metadata: metadata
                .and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok()),
        }
    }
}

/// The answer to a claim that was granted, now or before.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimAnswer {
    /// `granted`; in a dry run also `denied`.
    #[schema(value_type = words::ClaimOutcome, example = "granted")]
    pub outcome: Word,
    /// `true` where Redis alone decided, as the policy allows: the ledger records the grant
    /// afterwards. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// `true` where the policy only observes, and would have denied the claim in the mode
    /// `enforce`. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// The grant. Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantBody>,
    /// In a dry run that is denied: the earliest instant at which the claim would be granted, as in a
    /// denial. Absent otherwise, and where nothing that is known makes room for the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub fits_at: Option<DateTime<Utc>>,
    /// The policy's limits as they were at the grant, in the policy's order.
    pub limits: Vec<LimitUsage>,
}

impl ClaimAnswer {
    /// The answer for a grant, with its state at an instant.
    pub fn of(grant: &Grant, forecast: &Forecast, now: DateTime<Utc>) -> Self {
        let entry = &grant.entry;
        Self {
            outcome: "granted".into(),
            provisional: entry.provisional.is_some(),
            would_deny: entry.would_deny,
            grant: Some(GrantBody::new(grant, now)),
            fits_at: None,
            limits: LimitUsage::foretold(&entry.line.totals, forecast),
        }
    }
}

page! {
    /// A page of grants.
    GrantList of GrantBody
    /// The cursor of the next page; null on the last page. It stays valid while grants are made.
}

/// A grant that was corrected, now or before.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CorrectionAnswer {
    pub grant: GrantBody,
    /// The policy's limits after the correction, in the policy's order.
    pub limits: Vec<LimitUsage>,
}
