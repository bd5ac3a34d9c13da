//! Top-ups: units that a subject has beside its windows.

use chrono::{DateTime, Utc};

use super::entries::{enter_by_hand, once_by_hand};
use crate::answer::{ApiError, END_HAS_PASSED, HttpAnswer};
use crate::operation::{TOP_UP, describe};
use crate::request::{
    Admin, Body, Caller, ClaimsData, Faults, KeyHeader, NeedlessKey, NewSubjectPath, PolicyPath,
    SubjectPath, Then, TopUpPath,
};
use api::entries::EntryBody;
use api::problem::InvalidPart;
use api::top_ups::{TopUpRequest, TopUpReversalRequest};
use domain::claim::{IdempotencyKey, Units};
use domain::identity::{EntryId, to_micros};
use domain::policy::check_reason;
use engine::AdminEntry;

fn check(
    body: &TopUpRequest,
    key: Option<&IdempotencyKey>,
    now: DateTime<Utc>,
) -> Result<AdminEntry, ApiError> {
    let mut faults = Faults::default();
    let units = faults.body("/units", Units::new(body.units.0));
    let until = faults.body_instant("/until", Some(&body.until));
    let until = until.map(to_micros);
    faults.body("/reason", check_reason(&body.reason));
    // With a key this can repeat a top-up that has ended since.
    if key.is_none() && until.is_some_and(|until| until <= now) {
        faults.add(InvalidPart::body("/until", END_HAS_PASSED));
    }
    let asked = units
        .zip(until)
        .map(|(units, until)| AdminEntry::TopUp(units, until));
    faults.or(asked)
}

describe! {
    /// Give a subject units beside its windows, until an instant.
    ///
    /// A claim takes units from its windows first. What they have no room for comes from the subject's top-ups,
    /// from the one that ends first. These units count in no window of the subject; they count in the limits that
    /// all subjects share. A reversal or a lapse gives back in the opposite order. A top-up is an entry of the
    /// account. A subject has at most 16 at the same time. A retry with the same `Idempotency-Key` is safe. The key
    /// is unique in the policy.
    POST: "top_up" of "entries", |it| once_by_hand(it, "Given", "")
}
pub async fn post(
    caller: Caller<Admin>,
    Then(body, (policy, subject, key)): Then<
        Body<TopUpRequest>,
        (PolicyPath, NewSubjectPath, KeyHeader),
    >,
    claims: ClaimsData,
) -> HttpAnswer {
    let asked = check(&body.0, key.0.as_ref(), claims.instance.now())?;
    let account = (policy.0, subject.0);
    enter_by_hand(&caller, account, key.0, asked, body.0.reason, &claims).await
}

describe! {
    /// Take back what is left of a top-up.
    ///
    /// Units that were used stay used. If one of their grants is reversed later, they are gone. A repeated request
    /// answers 200 with the first reversal.
    REVERSE: "reverse_top_up" of "entries", |it| it
        .json::<EntryBody>(201, "Taken back.")
        .json::<EntryBody>(200, "Taken back before.")
        .problem(409, "`nothing-left`: the subject has no top-up with this id of which a unit is left.")
        .needs_entries()
        .follows("top_up", 201, TOP_UP)
}
pub async fn reverse(
    caller: Caller<Admin>,
    Then(body, (policy, subject, id, _)): Then<
        Body<TopUpReversalRequest>,
        (PolicyPath, SubjectPath, TopUpPath, NeedlessKey),
    >,
    claims: ClaimsData,
) -> HttpAnswer {
    let reason = body.0.reason;
    check_reason(&reason).map_err(|detail| ApiError::invalid_body("/reason", detail))?;
    let asked = AdminEntry::EndTopUp(EntryId(id.0));
    let account = (policy.0, subject.0);
    enter_by_hand(&caller, account, None, asked, reason, &claims).await
}
