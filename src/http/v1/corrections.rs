//! Reversals and confirmations of grants.

use tokio::time::timeout_at;

use crate::answer::{ApiError, HttpAnswer, entered, made};
use crate::operation::{GRANT, describe};
use crate::request::{
    Body, ByHandler, Caller, ClaimsData, Corrector, GrantPath, KeyHeader, NeedlessKey,
    OptionalBody, Then,
};
use api::grants::{ConfirmationRequest, CorrectionAnswer, GrantBody, ReversalRequest};
use api::limits::LimitUsage;
use api::problem::InvalidPart;
use api::strict::WholeNumber;
use domain::claim::{IdempotencyKey, Units};
use domain::forecast::Forecast;
use domain::grant::{Followers, Grant};
use domain::policy::check_reason;
use engine::{Admission, Correction, Undecided};

describe! {
    /// Reverse a grant: give its units back.
    ///
    /// The units are given back to the windows in which they were granted, even if these have ended. A grant is
    /// reversed once: a repeated request answers 200 with the first reversal. A hold can be reversed too. With
    /// `units`, a grant can be reversed in parts until no unit is left.
    REVERSE: "reverse_grant" of "grants", |it| it
        .json::<CorrectionAnswer>(201, "Reversed.")
        .json::<CorrectionAnswer>(200, "Already reversed.")
        .problem(409, "`grant-reversed`: no unit is left; `claim-in-progress`: a request with the \
            same key is being decided now.")
        .problem(410, "`hold-lapsed`: the hold lapsed, and its units were given back then; \
            `archived`: the grant was archived and dropped.")
        .follows("claim", 201, GRANT)
}
pub async fn reverse(
    caller: Caller<Corrector, ByHandler>,
    Then(body, (key, id)): Then<Body<ReversalRequest>, (KeyHeader, GrantPath)>,
    claims: ClaimsData,
) -> HttpAnswer {
    let admission = claims.admit(&caller.key())?;
    let grant = find(&caller, &id, &claims, &admission).await?;
    let ReversalRequest { reason, units } = body.0;
    check_reason(&reason).map_err(|detail| ApiError::invalid_body("/reason", detail))?;
    let units = check_units(units)?;
    if units.is_some() && key.0.is_none() {
        let detail = "write an Idempotency-Key: the same units would be given back again by a repeated \
                      request";
        return Err(ApiError::Invalid(vec![InvalidPart::parameter(
            "Idempotency-Key",
            detail,
        )]));
    }
    // A reversal of all units needs no key to be made once.
    let key = key.0.filter(|_| units.is_some());
    let correction = Correction::Reversal(units);
    correct(
        &caller,
        grant,
        correction,
        key,
        Some(reason),
        &claims,
        admission,
    )
    .await
}

describe! {
    /// Confirm a hold: its units stay taken.
    ///
    /// A repeated request answers 200 with the first confirmation.
    CONFIRM: "confirm_grant" of "grants", |it| it
        .json::<CorrectionAnswer>(201, "Confirmed.")
        .json::<CorrectionAnswer>(200, "Already confirmed.")
        .problem(409, "`not-a-hold`: the grant is not a hold; `grant-reversed`: the hold was \
            reversed, and its units were given back.")
        .problem(410, "`hold-lapsed`: the hold was not confirmed in time; `archived`: the grant \
            was archived and dropped.")
        .follows("claim", 201, GRANT)
}
pub async fn confirm(
    caller: Caller<Corrector, ByHandler>,
    Then(body, (_, id)): Then<OptionalBody<ConfirmationRequest>, (NeedlessKey, GrantPath)>,
    claims: ClaimsData,
) -> HttpAnswer {
    let admission = claims.admit(&caller.key())?;
    let grant = find(&caller, &id, &claims, &admission).await?;
    let units = check_units(body.0.unwrap_or_default().units)?;
    let correction = Correction::Confirmation(units);
    correct(&caller, grant, correction, None, None, &claims, admission).await
}

fn check_units(units: Option<WholeNumber>) -> Result<Option<Units>, ApiError> {
    let units = units.map(|units| Units::new(units.0)).transpose();
    units.map_err(|error| ApiError::invalid_body("/units", error))
}

async fn find(
    caller: &Caller<Corrector, ByHandler>,
    id: &GrantPath,
    claims: &ClaimsData,
    admission: &Admission,
) -> Result<Grant, ApiError> {
    let grant = timeout_at(admission.deadline, claims.grant(id.0)).await;
    let grant = grant.map_err(|_| Undecided::Deadline)??;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    Ok(grant)
}

async fn correct(
    caller: &Caller<Corrector, ByHandler>,
    grant: Grant,
    correction: Correction,
    key: Option<IdempotencyKey>,
    reason: Option<String>,
    claims: &ClaimsData,
    admission: Admission,
) -> HttpAnswer {
    let note = caller.note(reason);
    let claimed_by = caller.key_number();
    let correcting = claims.correct(
        admission,
        &grant,
        correction,
        key.as_ref(),
        claimed_by,
        note,
    );
    let outcome = correcting.await?;
    let subject = grant.subject.as_deref();
    let units = grant.entry.units;
    let not_denied = Forecast::default();
    let (entry, is_repeat) = entered(outcome, not_denied, subject, units, claims.instance.now())?;
    let forecast = if is_repeat {
        Forecast::default()
    } else {
        claims.foretell_entry(&grant.policy, &entry).await
    };
    let of_entry = Followers::among(grant.entry.id, [&entry]);
    let followers = match correction {
        // The grant as the confirmation left it, whatever was given back since.
        Correction::Confirmation(_) => Followers {
            returned: grant.entry.units.get().saturating_sub(entry.units.get()),
            ..of_entry
        },
        // The hold may have been confirmed, and units given back, after the grant was read.
        Correction::Reversal(_)
            if grant.entry.held_until().is_some() || entry.units != grant.entry.units =>
        {
            claims.followers(&grant.entry).await?
        }
        Correction::Reversal(_) => of_entry,
    };
    let grant = Grant { followers, ..grant };
    Ok(made(is_repeat).json(CorrectionAnswer {
        grant: GrantBody::new(&grant, claims.instance.now()),
        limits: LimitUsage::foretold(&entry.line.totals, &forecast),
    }))
}
