//! Resets: limits of a subject begin again with nothing used.

use super::entries::{enter_by_hand, once_by_hand};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{
    Admin, Body, Caller, ClaimsData, Faults, KeyHeader, PolicyPath, SubjectPath, Then,
};
use api::entries::ResetRequest;
use domain::limit::per::Per;
use domain::policy::check_reason;
use engine::AdminEntry;

fn check(body: &ResetRequest) -> Result<AdminEntry, ApiError> {
    let mut faults = Faults::default();
    let per = body.per.as_ref().map(|per| per.parse::<Per>()).transpose();
    let per = faults.body("/per", per);
    faults.body("/reason", check_reason(&body.reason));
    faults.or(per.map(AdminEntry::Reset))
}

describe! {
    /// Reset a limit of a subject, or all limits: from now on it is as if nothing had been used.
    ///
    /// A reset is an entry of the account. In the limits that it names, only what counts at its instant or
    /// later counts: if an earlier grant is reversed or lapses, no units return there, and an adjustment
    /// that is dated before the reset changes nothing there. Other limits, blocks and overrides stay as they
    /// are, and grants stay granted. A retry with the same `Idempotency-Key` is safe. The key is unique in the
    /// policy: claims, adjustments and resets share their keys.
    POST: "reset" of "entries", |it| once_by_hand(
        it,
        "Reset",
        "`nothing-used`: nothing is used of the limit, or of any limit. ",
    )
}
pub async fn post(
    caller: Caller<Admin>,
    Then(body, (policy, subject, key)): Then<
        Body<ResetRequest>,
        (PolicyPath, SubjectPath, KeyHeader),
    >,
    claims: ClaimsData,
) -> HttpAnswer {
    let asked = check(&body.0)?;
    let account = (policy.0, subject.0);
    enter_by_hand(&caller, account, key.0, asked, body.0.reason, &claims).await
}
