//! Calendars of subjects.

use super::entries::{enter_by_hand, once_by_hand};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{
    Admin, Body, Caller, ClaimsData, Faults, KeyHeader, NewSubjectPath, PolicyPath, Then,
};
use api::calendars::MoveRequest;
use domain::own_calendar::OwnCalendarDraft;
use domain::policy::check_reason;
use engine::AdminEntry;

fn check(body: &MoveRequest) -> Result<AdminEntry, ApiError> {
    let mut faults = Faults::default();
    let draft = OwnCalendarDraft {
        time_zone: body.time_zone.clone(),
        anchor: body.anchor.clone(),
    };
    let calendar = faults.draft(draft.check(""));
    faults.body("/reason", check_reason(&body.reason));
    faults.or(calendar.map(AdminEntry::MoveCalendar))
}

describe! {
    /// Move the calendar of a subject, under a policy whose `calendar` is not `policy`.
    ///
    /// The move is an entry of the account. Windows that have begun keep their ends; the calendar divides the
    /// time after them. The next window counts what was used in it already, so a move hands out nothing twice.
    /// A later claim that tells a calendar moves it again. A retry with the same `Idempotency-Key` is safe. The key
    /// is unique in the policy.
    POST: "move_calendar" of "entries", |it| once_by_hand(it, "Moved", "")
}
pub async fn post(
    caller: Caller<Admin>,
    Then(body, (policy, subject, key)): Then<
        Body<MoveRequest>,
        (PolicyPath, NewSubjectPath, KeyHeader),
    >,
    claims: ClaimsData,
) -> HttpAnswer {
    let asked = check(&body.0)?;
    let account = (policy.0, subject.0);
    enter_by_hand(&caller, account, key.0, asked, body.0.reason, &claims).await
}
