//! Batches of claims.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use actix_web::{HttpResponse, ResponseError};
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;

use super::claims::{Claimed, GrantedClaim, check_claim};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{ByHandler, Caller, Claimer, ClaimsData, FrequentBody, KeyHeader, Then};
use api::claims::{BatchAnswer, BatchBody, BatchClaim, BatchItem, ClaimBody, GrantedItem};
use domain::claim::{Claim, IdempotencyKey};
use domain::policy::PolicyName;
use engine::{Admission, Claims};
use host::chain::Chain;

/// The most claims of a batch.
const CLAIMS_MOST: usize = 1000;
/// The most claims of a batch that are in progress at once.
const UNDER_WAY_MOST: usize = 256;
/// The largest body of a batch, in bytes: the most claims with the most metadata.
pub const BATCH_MAX_BYTES: usize = 8 * 1024 * 1024;

/// A claim that can be decided, or the error that it gets.
pub type Checked = Result<(PolicyName, Claim), ApiError>;

/// The answer to a claim.
pub type BatchMember = Result<GrantedClaim, ApiError>;

/// Checks a claim. `of_batch` is its key if it has none of its own.
fn check(
    claim: BatchClaim,
    of_batch: Option<IdempotencyKey>,
    caller: &Caller<Claimer, ByHandler>,
) -> Checked {
    let policy = PolicyName::new(&claim.policy);
    let policy = policy.map_err(|error| ApiError::invalid_body("/policy", error))?;
    caller.may_use(&policy)?;
    let key = claim.idempotency_key.as_deref().map(IdempotencyKey::parse);
    let key = key.transpose();
    let key = key.map_err(|error| ApiError::invalid_body("/idempotency_key", error))?;
    let body = ClaimBody {
        subject: claim.subject,
        units: claim.units,
        hold_seconds: claim.hold_seconds,
        calendar: claim.calendar,
        dry_run: false,
        metadata: claim.metadata,
    };
    let key = KeyHeader(key.or(of_batch));
    let (claim, _) = check_claim(body, key, caller.key_number())?;
    Ok((policy, claim))
}

describe! {
    /// Claim units of several policies and subjects at once.
    ///
    /// Each item of the answer has the status and the body that the claim alone would get. The order does not
    /// say which of two claims gets the last unit. With `atomic`, all claims are granted in one transaction,
    /// those of a subject in their order, or none is: then a claim that alone would have been granted gets 424.
    ///
    /// With an `Idempotency-Key` of the batch, each claim without a key of its own has this key with its
    /// number: the second claim of the batch `order-17` has `order-17#2`. So send the same claims in the same
    /// order again. An atomic batch with a key is one claim: with other claims, fewer or more of them, its key
    /// is reused.
    ///
    /// The grants of an atomic batch are a bundle, which can be reversed and confirmed by its id.
    POST: "claim_batch" of "claims", |it| it
        .json::<BatchAnswer>(200, "The result of each claim, in the order of the claims.")
        .needs_entries()
}
pub async fn post(
    caller: Caller<Claimer, ByHandler>,
    Then(body, key): Then<FrequentBody<BatchBody>, KeyHeader>,
    claims: ClaimsData,
) -> HttpAnswer {
    let BatchBody {
        claims: sent,
        atomic,
    } = body.0;
    if !(1..=CLAIMS_MOST).contains(&sent.len()) {
        let detail = format!("write 1 to {CLAIMS_MOST} claims in a batch");
        return Err(ApiError::invalid_body("/claims", detail));
    }
    let keys = key.of_members(sent.len())?;
    let has_key = key.0.is_some();
    let checked = sent.into_iter().zip(keys);
    let checked = checked.map(|(claim, key)| check(claim.0, key, &caller));
    let checked: Vec<Checked> = checked.collect();
    let members = if atomic {
        claim_together(&caller.key(), checked, has_key, &claims).await?
    } else {
        claim_each(&caller.key(), checked, &claims).await
    };
    log_failures(&members);
    let bundle = bundle_of(&members).filter(|_| atomic);
    let items = members.into_iter().map(batch_item).collect();
    Ok(HttpResponse::Ok().json(BatchAnswer { bundle, items }))
}

/// The bundle of claims that are all granted: of those granted now, or else of those granted before.
fn bundle_of(members: &[BatchMember]) -> Option<Uuid> {
    if members.iter().any(Result::is_err) {
        return None;
    }
    let granted = || members.iter().flatten();
    let now = granted().find(|granted| !granted.is_repeat);
    let granted = now.or(granted().next())?;
    granted.answer.grant.as_ref()?.bundle
}

/// Decides each claim by itself. A claim begins when its caller has a free place, so that a batch
/// does not take all places at once.
async fn claim_each(
    caller: &Arc<str>,
    checked: Vec<Checked>,
    claims: &ClaimsData,
) -> Vec<BatchMember> {
    let deadline = claims.claim_deadline();
    let admitted = stream::iter(checked).then(async |claim| {
        let admission = claims.admit_in_turn(caller, deadline);
        match claim {
            Ok((policy, claim)) => Ok((policy, claim, admission.await?)),
            Err(error) => Err(error),
        }
    });
    let members = admitted.map(
        async |claim: Result<(PolicyName, Claim, Admission), ApiError>| {
            let (policy, claim, admission) = claim?;
            let claimed = Claimed::of(&policy, &claim);
            let foretold = claims.claim(admission, &policy, claim).await?;
            claimed.tell(foretold, claims).await
        },
    );
    members.buffered(UNDER_WAY_MOST).collect().await
}

/// Decides the claims of an atomic batch. `has_key` tells that the batch has a key, which makes one claim of them.
pub async fn claim_together(
    caller: &Arc<str>,
    checked: Vec<Checked>,
    has_key: bool,
    claims: &Arc<Claims>,
) -> Result<Vec<BatchMember>, ApiError> {
    // 1. Refuse the whole batch if two claims have the same key.
    let mut keys = HashSet::new();
    for (index, claim) in checked.iter().enumerate() {
        let Ok((policy, claim)) = claim else { continue };
        let key = claim.key.as_ref().map(IdempotencyKey::as_str);
        if key.is_some_and(|key| !keys.insert((policy, key))) {
            let pointer = format!("/claims/{index}/idempotency_key");
            return Err(ApiError::invalid_body(
                &pointer,
                "another claim of the batch has this key: use a key for each claim",
            ));
        }
    }
    // 2. Decide the valid claims together. With a wrong claim it grants none.
    let is_doomed = checked.iter().any(Result::is_err);
    let valid = checked.iter().flatten().cloned().collect();
    let members = claims
        .claim_together(caller, valid, has_key, is_doomed)
        .await;
    let mut members = members.map_err(ApiError::from)?.into_iter();
    // 3. Answer in the order of the request. The answers are those of the valid claims.
    let mut answers = Vec::with_capacity(checked.len());
    for claim in checked {
        let member = claim.map(|claim| (claim, members.next()));
        answers.push(match member {
            Ok(((policy, claim), Some(Ok(foretold)))) => {
                Claimed::of(&policy, &claim).tell(foretold, claims).await
            }
            Ok((_, Some(Err(failure)))) => Err(failure.into()),
            Ok((_, None)) => Err(ApiError::FailedDependency),
            Err(error) => Err(error),
        });
    }
    Ok(answers)
}

fn batch_item(member: BatchMember) -> BatchItem {
    match member {
        Ok(granted) => BatchItem::Granted(GrantedItem {
            status: if granted.is_repeat { 200 } else { 201 },
            answer: granted.answer,
        }),
        Err(ApiError::Denied(denial)) => BatchItem::Denied(denial.body()),
        Err(error) => BatchItem::Refused(error.problem()),
    }
}

/// Logs failures of the service: one line for each cause, with the number of claims.
fn log_failures(members: &[BatchMember]) {
    let failures = members.iter().filter_map(|member| member.as_ref().err());
    let logged = failures.filter(|error| error.status_code().is_server_error());
    let mut causes: BTreeMap<String, usize> = BTreeMap::new();
    for error in logged.filter(|error| !error.is_told_elsewhere()) {
        *causes.entry(Chain(error).to_string()).or_default() += 1;
    }
    for (cause, claims) in causes {
        tracing::error!(cause, claims, "claims of a batch failed");
    }
}
