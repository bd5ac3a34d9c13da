//! Claims, and a subject's usage.

use std::sync::Arc;

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::ToSchema;

use super::explanation::{ExplanationQuery, explain};
use crate::api::claims::{BlockNote, ClaimRefusal, OverrideNote, UsageAnswer, UsageBody};
use crate::api::grants::ClaimAnswer;
use crate::api::limits::LimitUsage;
use crate::api::strict::WholeNumber;
use crate::domain::claim::{Claim, HoldTime, Subject, Units};
use crate::domain::forecast::Forecast;
use crate::domain::grant::{Followers, Grant};
use crate::domain::key::KeyNumber;
use crate::domain::limit::total::Total;
use crate::domain::policy::PolicyName;
use crate::domain::reads::ReadKind;
use crate::domain::refusal::Refusal;
use crate::engine::{Foretold, Outcome, Rehearsal};
use crate::http::answer::{ApiError, HttpAnswer, entered, entered_once, insert_fields, respond};
use crate::http::request::{
    Anyone, Auditor, Body, Caller, Claimer, DistinctObject, EngineData, Faults,
    IdempotencyKeyField, KeyHeader, PolicyPath, Query, SubjectPath, Then,
};

/// A request to take units of a policy for a subject.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// The subject to count: 1 to 256 bytes of UTF-8. Send an id, not a name: control characters,
    /// characters that nobody can see, blanks other than a plain space within the text, and text
    /// that is not in Unicode's normalization form C are refused.
    #[schema(
        example = "member-42",
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub subject: String,
    /// The number of units. Default: 1.
    #[schema(value_type = Option<u64>, example = 1, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub units: Option<WholeNumber>,
    /// Makes the grant a hold: it lapses after this many seconds and gives its units back, unless
    /// it is confirmed before.
    #[schema(value_type = Option<u64>, example = 600, minimum = 1, maximum = 2_592_000_u64)]
    pub hold_seconds: Option<WholeNumber>,
    /// Whether to only show what would happen. Nothing is counted.
    #[serde(default)]
    pub dry_run: bool,
    /// Stored with the grant. At most 4 KiB of compact JSON, at most 32 levels deep. The names in an
    /// object differ. Numbers are 64-bit integers or IEEE 754 doubles.
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<DistinctObject>,
}

impl ClaimBody {
    /// Checks the body. Returns the claim, and whether it is a dry run.
    pub fn check(self, key: KeyHeader, claimed_by: KeyNumber) -> Result<(Claim, bool), ApiError> {
        let mut faults = Faults::default();
        let units = self
            .units
            .map_or(Ok(Units::ONE), |units| Units::new(units.0));
        let metadata = self.metadata.map(DistinctObject::metadata).transpose();
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

/// What a claim asked for. The answer needs it.
pub struct Claimed {
    policy: PolicyName,
    subject: String,
    units: Units,
}

/// A claim that was granted, now or before.
pub struct GrantedClaim {
    /// Whether the claim was granted before.
    pub is_repeat: bool,
    pub answer: ClaimAnswer,
    totals: Arc<[Total]>,
    forecast: Forecast,
}

impl Claimed {
    pub fn of(policy: &PolicyName, claim: &Claim) -> Self {
        Self {
            policy: policy.clone(),
            subject: claim.subject.as_str().to_owned(),
            units: claim.units,
        }
    }

    /// The answer to the claim with this outcome.
    pub async fn tell(
        self,
        foretold: Foretold,
        engine: &EngineData,
    ) -> Result<GrantedClaim, ApiError> {
        let now = engine.instance.now();
        let Foretold { outcome, forecast } = foretold;
        let subject = Some(self.subject.as_str());
        let of_denial = forecast.clone();
        let (entry, is_repeat) = entered(outcome, of_denial, subject, self.units, now)?;
        let followers = if is_repeat {
            engine.claims.followers(&entry).await?
        } else {
            Followers::default()
        };
        // The grant may have ended since the decision.
        if let Some(end) = followers.end_of(&entry, now).filter(|_| is_repeat) {
            return Err(ApiError::retried(end));
        }
        let grant = Grant {
            entry,
            policy: self.policy,
            subject: Some(self.subject),
            followers,
        };
        let totals = grant.entry.line.totals.clone();
        Ok(GrantedClaim {
            is_repeat,
            answer: ClaimAnswer::of(&grant, &forecast, now),
            totals,
            forecast,
        })
    }
}

/// Claim units of a policy for a subject.
///
/// A grant is committed to the ledger before the answer, unless the policy lets Redis decide. A
/// retry with the same `Idempotency-Key` is safe: the same claim gets the same grant, with status
/// 200 and `Idempotent-Replayed: true`. If the grant was reversed, or its hold lapsed, a retry says
/// so: its key stays used, and a new claim needs another key. A denial is not stored: the same key
/// can be granted later.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/policies/{policy}/claims", operation_id = "claim", tag = "claims",
    params(IdempotencyKeyField),
    request_body = ClaimBody,
    responses(
        (status = 201, description = "Granted.", body = ClaimAnswer, headers(
            ("RateLimit-Policy" = String, description = "Each limit's quota in units and window in seconds."),
            ("RateLimit" = String, description = "The units left of each limit, and the seconds until more units return."),
        )),
        (status = 200, description = "Granted before with the same key; or a dry run.", body = ClaimAnswer, headers(
            ("Idempotent-Replayed" = String, description = "`true` for a repeated key."),
        )),
        (status = 403, description = "`forbidden`: the key has another role, or is confined to other policies; `subject-blocked`: the subject is blocked, and nothing was counted.", headers(
            ("Retry-After" = u64, description = "Seconds until the claim would be granted, if that is known."),
        )),
        (status = 409, description = "`claim-in-progress`: a claim with the same key is being decided now; `policy-inactive`: the policy is paused or not active, and `Retry-After` says when the claim would be granted, if that is known; `grant-reversed`: the grant of this key was reversed."),
        (status = 410, description = "`hold-lapsed`: the hold of this key lapsed."),
        (status = 429, description = "`quota-exceeded`: denied; nothing was counted. Or `too-many-wrong-keys`: wait for as long as `Retry-After` says.", body = ClaimRefusal, content_type = "application/problem+json", headers(
            ("Retry-After" = u64, description = "Seconds until `fits_at`, rounded up. Absent where `fits_at` is null."),
            ("RateLimit-Policy" = String, description = "Each limit's quota in units and window in seconds."),
            ("RateLimit" = String, description = "The units left of each limit, and the seconds until more units return."),
        )),
    ),
)]
pub async fn post(
    caller: Caller<Claimer>,
    Then(body, (policy, key)): Then<Body<ClaimBody>, (PolicyPath, KeyHeader)>,
    engine: EngineData,
) -> HttpAnswer {
    let (claim, dry_run) = body.0.check(key, caller.key_number())?;
    let claimed = Claimed::of(&policy.0, &claim);
    let admission = engine.claims.admit(&caller.key())?;
    let foretold = if dry_run {
        match engine.claims.try_claim(admission, &policy.0, claim).await? {
            Rehearsal::WouldGrant {
                totals,
                would_deny,
                forecast,
            } => {
                return Ok(rehearsed(
                    "granted",
                    would_deny,
                    &totals,
                    &forecast,
                    engine.instance.now(),
                ));
            }
            Rehearsal::Ended(Foretold {
                outcome: Outcome::Refused(_, Refusal::Denied(denied)),
                forecast,
            }) => {
                return Ok(rehearsed(
                    "denied",
                    false,
                    &denied.totals,
                    &forecast,
                    engine.instance.now(),
                ));
            }
            Rehearsal::Ended(foretold) => foretold,
        }
    } else {
        engine.claims.claim(admission, &policy.0, claim).await?
    };
    let granted = claimed.tell(foretold, &engine).await?;
    let mut response = entered_once(granted.is_repeat);
    insert_fields(
        &mut response,
        &granted.totals,
        &granted.forecast,
        engine.instance.now(),
    );
    Ok(respond(granted.answer, response))
}

fn rehearsed(
    outcome: &'static str,
    would_deny: bool,
    totals: &[Total],
    forecast: &Forecast,
    now: DateTime<Utc>,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    insert_fields(&mut response, totals, forecast, now);
    response.json(ClaimAnswer {
        outcome: outcome.into(),
        provisional: false,
        would_deny,
        grant: None,
        fits_at: forecast.fits_at,
        limits: LimitUsage::foretold(totals, forecast),
    })
}

/// Show a subject's limits and usage now; or explain how a claim would be decided.
///
/// The usage is read from the ledger. A subject that never claimed has used nothing. With one of
/// the parameters the answer is an explanation: the limits in force at an instant, their usage, the
/// entries that used them, and the outcome of a claim, by the entries of the ledger. Explanations
/// require the role `audit` or `admin`.
///
/// Roles: `claim`, `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/subjects/{subject}", operation_id = "get_usage", tag = "claims",
    params(ExplanationQuery),
    responses((status = 200, description = "The limits, or the explanation.", body = UsageAnswer)),
)]
pub async fn usage(
    caller: Caller<Anyone>,
    policy: PolicyPath,
    subject: SubjectPath,
    query: Query<ExplanationQuery>,
    engine: EngineData,
) -> HttpAnswer {
    if !query.0.is_empty() {
        caller.must_be::<Auditor>()?;
        return explain(&caller, policy.0, subject.0, query.0, &engine).await;
    }
    let usage = engine.claims.usage(&policy.0, &subject.0).await?;
    let usage = usage.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let kind = ReadKind::Usage;
    let subject = subject.0.as_str();
    let read = caller.record_read(&engine, kind, Some(&policy.0), subject);
    read.await?;
    let block = usage.policy.blocked;
    let until = usage.override_terms.map(|terms| terms.until);
    Ok(HttpResponse::Ok().json(UsageBody {
        policy: usage.policy.name.to_string(),
        policy_version: usage.policy.version,
        time_zone: usage.policy.rule.calendar.zone.name().to_owned(),
        subject: subject.to_owned(),
        limits: LimitUsage::foretold(&usage.totals, &usage.forecast),
        override_note: until.map(|until| OverrideNote { until }),
        block: block.map(|block| BlockNote { until: block.until }),
    }))
}
