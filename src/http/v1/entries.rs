//! An account's entries: their list, and adjustments.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};

use crate::answer::{ApiError, HttpAnswer, entered, entered_once};
use crate::operation::{ACCOUNT, Operation, describe};
use crate::request::{
    Admin, Auditor, Body, Caller, ClaimsData, Faults, KeyHeader, NewSubjectPath, Page, PolicyPath,
    RecordData, SubjectPath, Then,
};
use api::entries::{AdjustmentRequest, EntryBody, EntryList};
use api::problem::InvalidPart;
use domain::claim::{ClaimError, IdempotencyKey, Subject, Units};
use domain::forecast::Forecast;
use domain::grant::{Direction, Entry};
use domain::identity::to_micros;
use domain::policy::{PolicyName, check_reason};
use domain::reads::ReadKind;
use engine::{AdminEntry, ByHand};

fn check(body: &AdjustmentRequest, now: DateTime<Utc>) -> Result<AdminEntry, ApiError> {
    let mut faults = Faults::default();
    let direction = match body.units.0 {
        0.. => Direction::Up,
        ..0 => Direction::Down,
    };
    let units = Units::new(body.units.0.saturating_abs()).map_err(|error| match error {
        ClaimError::Units => {
            "write a whole number from -(2^53 - 1) to 2^53 - 1, but not 0".to_owned()
        }
        other => other.to_string(),
    });
    let units = faults.body("/units", units);
    let counted_at = faults.body_instant("/at", body.at.as_ref());
    if counted_at.is_some_and(|at| at > now || at < DateTime::UNIX_EPOCH) {
        let detail = "write an instant after 1970 that is not in the future";
        faults.add(InvalidPart::body("/at", detail));
    }
    faults.body("/reason", check_reason(&body.reason));
    let counted_at = counted_at.map(to_micros);
    faults.or(units.map(|units| AdminEntry::Adjust(units, direction, counted_at)))
}

describe! {
    /// Adjust a subject's usage by hand, up or down, such as an opening balance.
    ///
    /// An adjustment up can go over a limit, because it records what was already used. An adjustment down
    /// subtracts at most what is used in each window in which it counts, and nothing that was taken later.
    /// Claims and adjustments of a policy share their keys.
    ADJUST: "adjust" of "entries", |it| once_by_hand(it, "Entered", "")
}
pub async fn adjust(
    caller: Caller<Admin>,
    Then(body, (policy, subject, key)): Then<
        Body<AdjustmentRequest>,
        (PolicyPath, NewSubjectPath, KeyHeader),
    >,
    claims: ClaimsData,
) -> HttpAnswer {
    let asked = check(&body.0, claims.instance.now())?;
    let account = (policy.0, subject.0);
    enter_by_hand(&caller, account, key.0, asked, body.0.reason, &claims).await
}

/// The answers of an operation that enters something for a subject, and a repetition of it once. `refusals` are its own.
pub fn once_by_hand<'a>(it: &'a mut Operation, done: &str, refusals: &str) -> &'a mut Operation {
    let repeated = format!("{done} before with the same key.");
    let is_busy = "`claim-in-progress`: a request with the same key is being decided now.";
    it.json::<EntryBody>(201, &format!("{done}."))
        .json::<EntryBody>(200, &repeated)
        .header::<String>("Idempotent-Replayed", "`true` for a repeated key.")
        .problem(409, &format!("{refusals}{is_busy}"))
        .needs_entries()
        .follows("claim", 201, ACCOUNT)
}

/// Enters what an admin enters for a subject, and answers with the entry and what is foretold for its limits. Nothing
/// is foretold for a repeated one.
pub async fn enter_by_hand(
    caller: &Caller<Admin>,
    (policy, subject): (PolicyName, Subject),
    key: Option<IdempotencyKey>,
    asked: AdminEntry,
    reason: String,
    claims: &ClaimsData,
) -> HttpAnswer {
    let now = claims.instance.now();
    let name = subject.as_str().to_owned();
    let units = asked.units();
    let by_hand = ByHand {
        entry: asked,
        subject,
        key,
        claimed_by: caller.key_number(),
        note: caller.note(Some(reason)),
    };
    let admission = claims.admit(&caller.key())?;
    let outcome = claims.enter(admission, &policy, by_hand).await?;
    let (entry, is_repeat) = entered(outcome, Forecast::default(), Some(&name), units, now)?;
    let forecast = if is_repeat {
        Forecast::default()
    } else {
        claims.foretell_entry(&policy, &entry).await
    };
    Ok(entered_once(is_repeat).json(EntryBody::foretold(&entry, &forecast)))
}

describe! {
    /// List a subject's entries, newest first.
    ///
    /// Entries are grants, and what happened to grants and usage later.
    LIST: "list_entries" of "entries", |it| it
        .json::<EntryList>(200, "A page.")
        .follows("claim", 201, ACCOUNT)
}
pub async fn list(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    page: Page,
    record: RecordData,
) -> HttpAnswer {
    let policy = policy.0;
    let subject = subject.0;
    let found = record.entries(policy.clone(), &subject, page.limit, page.cursor());
    let (entries, next_cursor) = found.await?;
    let read = caller.record_read(&record, ReadKind::Entries, Some(&policy), subject.as_str());
    read.await?;
    let instants = entries.iter().map(Entry::counted_at).collect();
    let zones = record.zones(policy, instants).await?;
    let entries = entries.iter().zip(zones).collect();
    Ok(
        HttpResponse::Ok().json(EntryList::new((entries, next_cursor), |(entry, zone)| {
            EntryBody::from(entry).in_zone(zone)
        })),
    )
}
