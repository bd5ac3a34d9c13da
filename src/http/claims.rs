//! Claims, and a subject's usage.

use std::sync::Arc;

use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::body::Body;
use super::caller::{Anyone, Caller, Claimer};
use super::denial::Asked;
use super::error::ApiError;
use super::extract::{
    EngineData, Faults, KeyHeader, PolicyPath, SubjectPath, Then, WholeNumber, engine,
};
use super::grants::GrantBody;
use super::limits::{self, LimitUsage};
use super::openapi::{
    Faults4xx, Faults5xx, Faults404, FaultsBody, IdempotencyKeyField, SubjectInPath,
};
use super::plain::write_plain;
use super::words;
use crate::domain::account::Refusal;
use crate::domain::claim::{Claim, HoldTime, Metadata, Subject, Units};
use crate::domain::grant::{Followers, Grant, Total};
use crate::domain::key::KeyNumber;
use crate::domain::policy::PolicyName;
use crate::engine::{Outcome, Rehearsal};

const JSON: (HeaderName, HeaderValue) =
    (CONTENT_TYPE, HeaderValue::from_static("application/json"));

/// A request to take units of a policy for a subject.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// Whom to count: 1 to 256 bytes of UTF-8 without control characters.
    #[schema(
        example = "member-42",
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub subject: String,
    /// How many units; 1 when absent.
    #[schema(value_type = Option<u64>, example = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub units: Option<WholeNumber>,
    /// Makes the grant a hold: it lapses after so many seconds, and gives its units back, unless
    /// it is confirmed before.
    #[schema(value_type = Option<u64>, example = 600, minimum = 1, maximum = 2_592_000_u64)]
    pub hold_seconds: Option<WholeNumber>,
    /// Only says what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// Kept beside the grant: at most 4 KiB of compact JSON, at most 32 levels deep. Numbers
    /// are 64-bit integers or IEEE 754 doubles.
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Map<String, Value>>,
}

/// A claim that was granted, now or before.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClaimAnswer {
    /// `granted`, or in a dry run `denied`.
    #[schema(value_type = words::ClaimOutcome, example = "granted")]
    pub outcome: &'static str,
    /// `true` where Redis alone decided, as the policy's owner chose: the ledger records it
    /// afterwards. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// `true` where the policy only observes, and would have denied it. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// The grant. A dry run makes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantBody>,
    /// The policy's limits as they were at the grant, in the policy's order.
    pub limits: Vec<LimitUsage>,
}

/// A subject's limits as they are now.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageBody {
    #[schema(example = "benefit")]
    policy: String,
    #[schema(example = 1)]
    policy_version: u32,
    /// The policy's.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    time_zone: String,
    #[schema(example = "member-42")]
    subject: String,
    /// In the policy's order.
    limits: Vec<LimitUsage>,
    /// The subject's override, while one holds; absent otherwise.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    override_note: Option<OverrideNote>,
}

/// That a subject's limits are not the policy's own.
#[derive(Debug, Serialize, ToSchema)]
pub struct OverrideNote {
    /// From this instant on the policy's own limits hold again; null for no end.
    until: Option<DateTime<Utc>>,
}

impl ClaimBody {
    /// The claim, and whether it is a dry run.
    ///
    /// # Errors
    /// [`ApiError::Invalid`].
    pub fn check(self, key: KeyHeader, claimed_by: KeyNumber) -> Result<(Claim, bool), ApiError> {
        let mut faults = Faults::default();
        let units = self
            .units
            .map_or(Ok(Units::ONE), |units| Units::new(units.0));
        let metadata = self.metadata.map(Metadata::new).transpose();
        let subject = faults.body("/subject", Subject::new(&self.subject));
        let units = faults.body("/units", units);
        let metadata = faults.body("/metadata", metadata);
        let hold = self.hold_seconds.map(|seconds| HoldTime::new(seconds.0));
        let hold = faults.body("/hold_seconds", hold.transpose());
        let claim = subject.zip(units).zip(metadata).zip(hold);
        let claim = claim.map(|(((subject, units), metadata), hold)| Claim {
            subject,
            units,
            hold,
            key: key.0,
            metadata,
            claimed_by,
        });
        Ok((faults.or(claim)?, self.dry_run))
    }
}

/// What a claim asked for, to tell what became of it.
pub struct Claimed {
    policy: PolicyName,
    subject: String,
    units: Units,
}

/// A claim that was granted, now or before.
pub struct GrantedClaim {
    /// Whether it was granted before.
    pub is_repeat: bool,
    /// The body.
    pub answer: ClaimAnswer,
    totals: Arc<[Total]>,
}

impl Claimed {
    /// What a claim asks for.
    pub fn of(policy: &PolicyName, claim: &Claim) -> Self {
        Self {
            policy: policy.clone(),
            subject: claim.subject.as_str().to_owned(),
            units: claim.units,
        }
    }

    /// What became of it.
    ///
    /// # Errors
    /// [`ApiError`] for what is not granted.
    pub async fn tell(self, outcome: Outcome, data: &EngineData) -> Result<GrantedClaim, ApiError> {
        let now = data.now();
        let (entry, followers, is_repeat) = match outcome {
            Outcome::Entered(entry) => (entry, Followers::default(), false),
            Outcome::Repeated(entry) => {
                let followers = engine(data).followers(&entry).await?;
                (entry, followers, true)
            }
            Outcome::KeyReused => return Err(ApiError::KeyReused),
            Outcome::Refused(policy, refusal) => {
                let asked = Asked {
                    policy,
                    subject: self.subject,
                    units: self.units,
                    now,
                };
                return Err(ApiError::refused(asked, refusal));
            }
        };
        let grant = Grant {
            entry,
            policy: self.policy,
            subject: Some(self.subject),
            followers,
        };
        let totals = grant.entry.line.totals.clone();
        Ok(GrantedClaim {
            is_repeat,
            answer: ClaimAnswer::of(&grant, now),
            totals,
        })
    }
}

impl ClaimAnswer {
    /// A grant as it stands at an instant.
    pub fn of(grant: &Grant, now: DateTime<Utc>) -> Self {
        let entry = &grant.entry;
        Self {
            outcome: "granted",
            provisional: entry.provisional.is_some(),
            would_deny: entry.would_deny,
            grant: Some(GrantBody::new(grant, now)),
            limits: entry.line.totals.iter().map(LimitUsage::from).collect(),
        }
    }

    /// The answer with this body.
    pub fn respond(self, mut response: HttpResponseBuilder) -> HttpResponse {
        match write_plain(&self) {
            Some(json) => response.insert_header(JSON).body(json),
            None => response.json(self),
        }
    }
}

/// Claim units of a policy for a subject.
///
/// Answered after the grant is committed to the ledger. Safe to retry with the same
/// `Idempotency-Key`: the same claim gets the same grant, with status 200 and
/// `Idempotent-Replayed: true`. A denial is not remembered: the same key may be granted later.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/policies/{policy}/claims", operation_id = "claim", tag = "claims",
    params(
        ("policy" = String, Path, pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit"),
        IdempotencyKeyField,
    ),
    request_body = ClaimBody,
    responses(
        // Before the denial, which has the status of too many wrong keys.
        FaultsBody, Faults4xx, Faults404, Faults5xx,
        (status = 201, description = "Granted.", body = ClaimAnswer, headers(
            ("RateLimit-Policy" = String, description = "The limits' quotas in units and windows in seconds."),
            ("RateLimit" = String, description = "What remains, and in how many seconds each window ends."),
        )),
        (status = 200, description = "Granted before, under the same key; or a dry run.", body = ClaimAnswer, headers(
            ("Idempotent-Replayed" = String, description = "`true` for a repeated key."),
        )),
        (status = 409, description = "`claim-in-progress`: the same key is being decided right now; `policy-inactive`: the policy grants nothing just now.", body = super::error::Problem, content_type = "application/problem+json"),
        (status = 429, description = "`quota-exceeded`: denied; nothing was counted. Or `too-many-wrong-keys`: wait for as long as `Retry-After` says.", body = super::denial::ClaimRefusal, content_type = "application/problem+json", headers(
            ("Retry-After" = u64, description = "Seconds until the claim could fit."),
            ("RateLimit-Policy" = String, description = "The limits' quotas in units and windows in seconds."),
            ("RateLimit" = String, description = "What remains, and in how many seconds each window ends."),
        )),
    ),
)]
pub async fn post(
    caller: Caller<Claimer>,
    Then(body, (policy, key)): Then<Body<ClaimBody>, (PolicyPath, KeyHeader)>,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let (claim, dry_run) = body.0.check(key, caller.key_number())?;
    let claimed = Claimed::of(&policy.0, &claim);
    let admission = data.admit(&caller.key())?;
    let outcome = match dry_run {
        true => match engine(&data).try_claim(admission, &policy.0, claim).await? {
            Rehearsal::WouldGrant { totals, would_deny } => {
                return Ok(rehearsed("granted", would_deny, &totals, data.now()));
            }
            Rehearsal::Ended(Outcome::Refused(_, Refusal::Denied(totals))) => {
                return Ok(rehearsed("denied", false, &totals, data.now()));
            }
            Rehearsal::Ended(outcome) => outcome,
        },
        false => data.claim(admission, &policy.0, claim).await?,
    };
    let granted = claimed.tell(outcome, &data).await?;
    let mut response = match granted.is_repeat {
        true => HttpResponse::Ok(),
        false => HttpResponse::Created(),
    };
    if granted.is_repeat {
        response.insert_header(("Idempotent-Replayed", "true"));
    }
    limits::insert_fields(&mut response, &granted.totals, data.now());
    Ok(granted.answer.respond(response))
}

fn rehearsed(
    outcome: &'static str,
    would_deny: bool,
    totals: &[Total],
    now: DateTime<Utc>,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    limits::insert_fields(&mut response, totals, now);
    response.json(ClaimAnswer {
        outcome,
        provisional: false,
        would_deny,
        grant: None,
        limits: totals.iter().map(LimitUsage::from).collect(),
    })
}

/// A subject's limits as they are now.
///
/// Read from the ledger. A subject that never claimed has used nothing.
///
/// Roles: `claim`, `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/subjects/{subject}", operation_id = "get_usage", tag = "claims",
    params(
        ("policy" = String, Path, pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit"),
        SubjectInPath,
    ),
    responses(
        (status = 200, description = "The limits.", body = UsageBody),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn usage(
    _caller: Caller<Anyone>,
    policy: PolicyPath,
    subject: SubjectPath,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let usage = engine(&data).usage(&policy.0, &subject.0).await?;
    let usage = usage.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    Ok(HttpResponse::Ok().json(UsageBody {
        policy: usage.policy.name.to_string(),
        policy_version: usage.policy.version,
        time_zone: usage.policy.rule.calendar.zone.name().to_owned(),
        subject: subject.0.as_str().to_owned(),
        limits: usage.totals.iter().map(LimitUsage::from).collect(),
        override_note: usage
            .override_terms
            .map(|terms| OverrideNote { until: terms.until }),
    }))
}
