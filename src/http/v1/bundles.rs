//! Bundles: the grants of an atomic batch, by one id.

use std::collections::BTreeSet;

use actix_web::HttpResponse;
use futures_util::future::try_join_all;

use crate::answer::{ApiError, HttpAnswer, entered, made};
use crate::operation::{BUNDLE, describe};
use crate::request::{
    Auditor, Body, BundlePath, ByHandler, Caller, ClaimsData, Corrector, NeedlessKey, OptionalBody,
    RecordData, Then,
};
use api::bundles::{BundleBody, BundleConfirmationRequest, BundleReversalRequest};
use domain::forecast::Forecast;
use domain::grant::Grant;
use domain::identity::BundleId;
use domain::policy::check_reason;
use domain::reads::ReadKind;
use engine::{BundleCorrected, Correction};

describe! {
    /// Show a bundle: the grants of an atomic batch.
    ///
    /// Each grant has its state now.
    GET: "get_bundle" of "grants", |it| it
        .json::<BundleBody>(200, "The bundle.")
        .needs_entries()
        .follows("claim_batch", 200, BUNDLE)
}
pub async fn get(
    caller: Caller<Auditor, ByHandler>,
    id: BundlePath,
    record: RecordData,
) -> HttpAnswer {
    let id = BundleId(id.0);
    let grants = usable(&caller, record.claims.bundle(id).await?)?;
    let shown = grants
        .iter()
        .map(|grant| (&grant.policy, grant.subject.as_deref()));
    let shown: BTreeSet<_> = shown.collect();
    let reads = shown.into_iter().map(|(policy, subject)| {
        caller.record_read(&record, ReadKind::Grant, Some(policy), subject)
    });
    try_join_all(reads).await?;
    let now = record.instance.now();
    Ok(HttpResponse::Ok().json(BundleBody::new(id, &grants, now)))
}

describe! {
    /// Reverse a bundle: give the units of all of its grants back.
    ///
    /// What is left of each grant is given back in one transaction. Grants that were reversed alone, and holds that
    /// lapsed, gave their units back already. A repeated request answers 200.
    REVERSE: "reverse_bundle" of "grants", |it| it
        .json::<BundleBody>(201, "Reversed.")
        .json::<BundleBody>(200, "Nothing was left to reverse.")
        .problem(410, "`archived`: grants of the bundle were archived and dropped.")
        .follows("claim_batch", 200, BUNDLE)
}
pub async fn reverse(
    caller: Caller<Corrector, ByHandler>,
    Then(body, (_, id)): Then<Body<BundleReversalRequest>, (NeedlessKey, BundlePath)>,
    claims: ClaimsData,
) -> HttpAnswer {
    let reason = body.0.reason;
    check_reason(&reason).map_err(|detail| ApiError::invalid_body("/reason", detail))?;
    let id = BundleId(id.0);
    let grants = usable(&caller, claims.bundle(id).await?)?;
    let correction = Correction::Reversal(None);
    correct(&caller, id, grants, correction, Some(reason), &claims).await
}

describe! {
    /// Confirm a bundle: the units of all of its holds stay taken.
    ///
    /// All holds are confirmed in one transaction, or none is: if one of them lapsed or was reversed, the request is
    /// refused. A repeated request answers 200.
    CONFIRM: "confirm_bundle" of "grants", |it| it
        .json::<BundleBody>(201, "Confirmed.")
        .json::<BundleBody>(200, "Already confirmed.")
        .problem(409, "`not-a-hold`: no grant of the bundle is a hold; `grant-reversed`: a hold was \
            reversed, and its units were given back.")
        .problem(410, "`hold-lapsed`: a hold was not confirmed in time; `archived`: grants of the \
            bundle were archived and dropped.")
        .follows("claim_batch", 200, BUNDLE)
}
pub async fn confirm(
    caller: Caller<Corrector, ByHandler>,
    Then(_, (_, id)): Then<OptionalBody<BundleConfirmationRequest>, (NeedlessKey, BundlePath)>,
    claims: ClaimsData,
) -> HttpAnswer {
    let id = BundleId(id.0);
    let grants = usable(&caller, claims.bundle(id).await?)?;
    if grants
        .iter()
        .all(|grant| grant.entry.held_until().is_none())
    {
        return Err(ApiError::NotAHold);
    }
    let correction = Correction::Confirmation(None);
    correct(&caller, id, grants, correction, None, &claims).await
}

/// The grants of a bundle, if the caller may use the policies of all of them.
fn usable<W, P>(caller: &Caller<W, P>, grants: Vec<Grant>) -> Result<Vec<Grant>, ApiError> {
    if grants.is_empty() {
        return Err(ApiError::NotFound("there is no bundle with this id"));
    }
    for grant in &grants {
        caller.may_use(&grant.policy)?;
    }
    Ok(grants)
}

async fn correct(
    caller: &Caller<Corrector, ByHandler>,
    id: BundleId,
    grants: Vec<Grant>,
    correction: Correction,
    reason: Option<String>,
    claims: &ClaimsData,
) -> HttpAnswer {
    let note = caller.note(reason);
    let key = caller.key();
    let number = caller.key_number();
    let correcting = claims.correct_bundle(&key, grants, correction, number, &note);
    let is_repeat = match correcting.await? {
        BundleCorrected::Done { is_repeat } => is_repeat,
        BundleCorrected::Refused(grant, refused) => {
            let subject = grant.subject.as_deref();
            let units = grant.entry.units;
            let now = claims.instance.now();
            entered(*refused, Forecast::default(), subject, units, now)?.1
        }
    };
    let grants = claims.bundle(id).await?;
    Ok(made(is_repeat).json(BundleBody::new(id, &grants, claims.instance.now())))
}
