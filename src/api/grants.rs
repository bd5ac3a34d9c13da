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

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "reason": "SMS gateway refused" }))]
pub struct ReversalRequest {
    #[schema(min_length = 1, max_length = 1000)]
    pub reason: String,
    /// Gives only these units back, and needs an `Idempotency-Key`, so that a repeated request gives nothing
    /// back again. Default: all that are left.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991u64)]
    pub units: Option<WholeNumber>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "units": 1 }))]
pub struct ConfirmationRequest {
    /// Only these units stay used, and the others are given back. Default: all that are left.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991u64)]
    pub units: Option<WholeNumber>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantBody {
    /// The order of ids is the order of the grants.
    pub id: Uuid,
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = 1)]
    pub policy_version: u32,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    #[schema(example = 1)]
    pub units: u64,
    /// What reversals of some units gave back, before the grant was reversed or the hold lapsed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false, example = 1)]
    pub returned_units: u64,
    /// The units that came from top-ups, because the windows had no room for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(required = false, example = 0)]
    pub topped_up_units: u64,
    /// A grant is `granted` as long as a unit is left.
    #[schema(value_type = words::GrantState, example = "granted")]
    pub state: Word,

    #[serde(serialize_with = "instant::serialize")]
    pub granted_at: DateTime<Utc>,
    /// Redis alone decided the claim, and the ledger recorded the grant afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// The grant went over a limit. Only a provisional grant can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub over: bool,
    /// The policy only observed, and would have denied the claim in the mode `enforce`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// The levels that the grant reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<words::WarningLevel>)]
    pub crossed: Vec<u8>,
    /// The bundle of the grant: the claims of an atomic batch, which were granted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub bundle: Option<Uuid>,
    /// When the hold lapses unless it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_until: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub confirmation: Option<ConfirmationBody>,
    /// The reversal of the units that were left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reversal: Option<ReversalBody>,
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
pub(super) fn is_zero(units: &u64) -> bool {
    *units == 0
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfirmationBody {
    /// The units that stay used.
    #[schema(example = 1)]
    pub units: u64,
    pub at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReversalBody {
    pub at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub by: String,
    #[schema(example = "SMS gateway refused")]
    pub reason: String,
}

impl GrantBody {
    /// Whether a unit of the grant is left.
    pub fn is_left(&self) -> bool {
        ["granted", "held"].contains(&&*self.state)
    }

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
            topped_up_units: entry.topped_up_units(),
            state: grant.state(now).as_str().into(),
            granted_at: entry.counted_at(),
            provisional: entry.provisional.is_some(),
            over: entry.provisional == Some(Provisional::Over),
            would_deny: entry.would_deny,
            crossed: entry.crossed.percents().collect(),
            bundle: entry.bundle.map(|bundle| bundle.0),
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

/// A claim that was granted, now or before.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ClaimAnswer {
    /// `denied` only in a dry run.
    #[schema(value_type = words::ClaimOutcome, example = "granted")]
    pub outcome: Word,
    /// Redis alone decided, as the policy allows: the ledger records the grant afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// The policy only observes, and would have denied the claim in the mode `enforce`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// Absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub grant: Option<GrantBody>,
    /// As in a denial, for a dry run that is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    pub fits_at: Option<DateTime<Utc>>,
    /// The limits at the grant.
    pub limits: Vec<LimitUsage>,
    /// As in a denial, for a dry run that is denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub total: Vec<LimitUsage>,
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
            total: Vec::new(),
        }
    }
}

page!(GrantList of GrantBody);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CorrectionAnswer {
    pub grant: GrantBody,
    /// The limits after the correction.
    pub limits: Vec<LimitUsage>,
}
