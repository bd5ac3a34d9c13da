//! Claims, and a subject's usage.

use std::sync::Arc;

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};

use super::explanation::{ExplanationQuery, explain};
use crate::answer::{ApiError, HttpAnswer, entered, entered_once, insert_fields, respond};
use crate::operation::{ACCOUNT, POLICY, SUBJECT, describe};
use crate::request::{
    Anyone, Auditor, Caller, Claimer, ClaimsData, Faults, FrequentBody, KeyHeader, PolicyPath,
    Query, RecordData, SubjectPath, Then,
};
use api::calendars::CalendarAnswer;
use api::claims::{
    BlockNote, ClaimBody, ClaimRefusal, OverrideNote, TierNote, UsageAnswer, UsageBody,
};
use api::distinct::DistinctObject;
use api::grants::ClaimAnswer;
use api::limits::LimitUsage;
use api::strict::Object;
use api::top_ups::TopUpLeft;
use domain::claim::{Claim, HoldTime, Subject, Units};
use domain::exceptions::Exceptions;
use domain::forecast::Forecast;
use domain::grant::{Followers, Grant};
use domain::key::KeyNumber;
use domain::limit::total::Total;
use domain::own_calendar::OwnCalendarDraft;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use domain::refusal::{DeniedClaim, Refusal};
use domain::shared::SharedTotal;
use engine::{Claims, Foretold, Outcome, Rehearsal, Usage};

/// Checks the body of a claim. Returns the claim, and whether it is a dry run.
pub fn check_claim(
    body: ClaimBody,
    key: KeyHeader,
    claimed_by: KeyNumber,
) -> Result<(Claim, bool), ApiError> {
    let mut faults = Faults::default();
    let units = body
        .units
        .map_or(Ok(Units::ONE), |units| Units::new(units.0));
    let metadata = body.metadata.map(DistinctObject::metadata).transpose();
    let subject = faults.body("/subject", Subject::new(&body.subject));
    let units = faults.body("/units", units);
    let metadata = faults.body("/metadata", metadata);
    let calendar = body.calendar.map(|Object(calendar)| calendar.into());
    let calendar = calendar.map(|draft: OwnCalendarDraft| draft.check("/calendar"));
    let calendar = faults.draft(calendar.transpose());
    let hold = body.hold_seconds.map(|seconds| HoldTime::new(seconds.0));
    let hold = faults.body("/hold_seconds", hold.transpose());
    let claim = subject.zip(units).zip(metadata).zip(hold).zip(calendar);
    let claim = claim.map(|((((subject, units), metadata), hold), calendar)| Claim {
        subject,
        units,
        hold,
        key: key.0,
        calendar: calendar.map(Arc::new),
        metadata,
        claimed_by,
    });
    Ok((faults.or(claim)?, body.dry_run))
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
    pub totals: Arc<[Total]>,
    pub forecast: Forecast,
    /// The instant of the answer.
    pub now: DateTime<Utc>,
}

/// Decides a claim that is no dry run.
pub async fn decide(
    claims: &Arc<Claims>,
    caller: &Arc<str>,
    policy: PolicyName,
    claim: Claim,
) -> Result<GrantedClaim, ApiError> {
    let claimed = Claimed::of(&policy, &claim);
    let admission = claims.admit(caller)?;
    let foretold = claims.claim(admission, &policy, claim).await?;
    claimed.tell(foretold, claims).await
}

impl GrantedClaim {
    /// The answer to a claim of its own.
    pub fn response(self) -> HttpResponse {
        let mut response = entered_once(self.is_repeat);
        insert_fields(&mut response, &self.totals, &[], &self.forecast, self.now);
        respond(self.answer, response)
    }
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
        claims: &Arc<Claims>,
    ) -> Result<GrantedClaim, ApiError> {
        let now = claims.instance.now();
        let Foretold { outcome, forecast } = foretold;
        let subject = Some(self.subject.as_str());
        let of_denial = forecast.clone();
        let (entry, is_repeat) = entered(outcome, of_denial, subject, self.units, now)?;
        let followers = if is_repeat {
            claims.followers(&entry).await?
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
            now,
        })
    }
}

describe! {
    /// Claim units of a policy for a subject.
    ///
    /// A grant is committed to the ledger before the answer, unless the policy lets Redis decide. A retry with
    /// the same `Idempotency-Key` gets the same grant, with status 200. If the grant was reversed, or its hold
    /// lapsed, a retry says so: the key stays used, and a new claim needs another one. A denial is not stored:
    /// the same key can be granted later.
    POST: "claim" of "claims", |it| it
        .json::<ClaimAnswer>(201, "Granted.")
        .header::<String>("RateLimit-Policy", "Each limit's quota in units and window in seconds.")
        .header::<String>("RateLimit", "The units left of each limit, and the seconds until more \
            units return.")
        .json::<ClaimAnswer>(200, "Granted before with the same key; or a dry run.")
        .header::<String>("Idempotent-Replayed", "`true` for a repeated key.")
        .problem(403, "`forbidden`: the key has another role, or is confined to other policies; \
            `subject-blocked`: the subject is blocked, and nothing was counted.")
        .problem(409, "`claim-in-progress`: a claim with the same key is being decided now; \
            `policy-inactive`: the policy is paused or not active; `grant-reversed`: the grant of \
            this key was reversed.")
        .problem(410, "`hold-lapsed`: the hold of this key lapsed.")
        .problem_with::<ClaimRefusal>(429, "`quota-exceeded`: denied; nothing was counted. Or \
            `too-many-wrong-keys`: wait for as long as `Retry-After` says.")
        .header::<u64>("Retry-After", "Seconds until `fits_at`, rounded up. Absent where `fits_at` \
            is null.")
        .header::<String>("RateLimit-Policy", "Each limit's quota in units and window in seconds.")
        .header::<String>("RateLimit", "The units left of each limit, and the seconds until more \
            units return.")
        .follows("put_policy", 201, POLICY)
}
pub async fn post(
    caller: Caller<Claimer>,
    Then(body, (policy, key)): Then<FrequentBody<ClaimBody>, (PolicyPath, KeyHeader)>,
    claims: ClaimsData,
) -> HttpAnswer {
    let (claim, dry_run) = check_claim(body.0, key, caller.key_number())?;
    if !dry_run {
        let granted = decide(&claims, &caller.key(), policy.0, claim).await?;
        return Ok(granted.response());
    }
    let claimed = Claimed::of(&policy.0, &claim);
    let admission = claims.admit(&caller.key())?;
    let now = || claims.instance.now();
    match claims.try_claim(admission, &policy.0, claim).await? {
        Rehearsal::WouldGrant {
            totals,
            would_deny,
            forecast,
        } => {
            let answer = rehearsed(would_deny, &totals, &forecast);
            Ok(tell_rehearsed(answer, &totals, &[], &forecast, now()))
        }
        Rehearsal::Ended(foretold) => match *foretold {
            Foretold {
                outcome: Outcome::Refused(_, Refusal::Denied(denied)),
                forecast,
            } => {
                let DeniedClaim { totals, shared, .. } = denied;
                let answer = ClaimAnswer {
                    outcome: "denied".into(),
                    fits_at: forecast.fits_at,
                    total: LimitUsage::shared(&shared),
                    ..rehearsed(false, &totals, &forecast)
                };
                Ok(tell_rehearsed(answer, &totals, &shared, &forecast, now()))
            }
            foretold => Ok(claimed.tell(foretold, &claims).await?.response()),
        },
    }
}

/// The answer to a dry run that would be granted.
fn rehearsed(would_deny: bool, totals: &[Total], forecast: &Forecast) -> ClaimAnswer {
    ClaimAnswer {
        outcome: "granted".into(),
        provisional: false,
        would_deny,
        grant: None,
        fits_at: forecast.fits_at,
        limits: LimitUsage::foretold(totals, forecast),
        total: Vec::new(),
    }
}

fn tell_rehearsed(
    answer: ClaimAnswer,
    totals: &[Total],
    shared: &[SharedTotal],
    forecast: &Forecast,
    now: DateTime<Utc>,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    insert_fields(&mut response, totals, shared, forecast, now);
    response.json(answer)
}

describe! {
    /// Show a subject's limits and usage now; or explain how a claim would be decided.
    ///
    /// The usage is read from the ledger. A subject that never claimed has used nothing. With one of the
    /// parameters of the query the answer is an explanation, which requires the role `audit`, `support` or
    /// `admin`.
    USAGE: "get_usage" of "claims", |it| it
        .json::<UsageAnswer>(200, "The limits, or the explanation.")
        .needs_entries()
        .follows("put_block", 201, SUBJECT)
        .follows("put_override", 201, SUBJECT)
        .follows("put_tier", 201, SUBJECT)
        .follows("claim", 201, ACCOUNT)
}
pub async fn usage(
    caller: Caller<Anyone>,
    policy: PolicyPath,
    subject: SubjectPath,
    query: Query<ExplanationQuery>,
    claims: ClaimsData,
    record: RecordData,
) -> HttpAnswer {
    if !query.0.is_empty() {
        caller.must_be::<Auditor>()?;
        return explain(&caller, policy.0, subject.0, query.0, &record).await;
    }
    let usage = claims.usage(&policy.0, &subject.0).await?;
    let usage = usage.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let kind = ReadKind::Usage;
    let subject = subject.0.as_str();
    let read = caller.record_read(&record, kind, Some(&policy.0), subject);
    read.await?;
    Ok(HttpResponse::Ok().json(usage_body(usage, subject)))
}

pub fn usage_body(usage: Usage, subject: &str) -> UsageBody {
    let Exceptions {
        tier,
        overridden,
        blocked,
    } = usage.exceptions;
    let tier = tier.filter(|terms| terms.is_in(&usage.policy.rule));
    let own = usage.calendar.as_deref();
    UsageBody {
        policy: usage.policy.name.to_string(),
        policy_version: usage.policy.version,
        time_zone: usage.policy.rule.almanac(own).zone.name().to_owned(),
        calendar: own.map(CalendarAnswer::from),
        subject: subject.to_owned(),
        limits: LimitUsage::foretold(&usage.totals, &usage.forecast),
        override_note: overridden.map(|terms| OverrideNote { until: terms.until }),
        tier: tier.map(|terms| TierNote {
            name: terms.tier.to_string(),
            until: terms.until,
        }),
        block: blocked.map(|block| BlockNote { until: block.until }),
        top_ups: TopUpLeft::all(&usage.top_ups),
        has_entries: usage.has_entries,
    }
}
