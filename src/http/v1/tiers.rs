//! Tiers of subjects: the maxima of a policy's tier take the place of its own.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};

use super::exceptions::{self, ShownTerms};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, POLICY_OF_SUBJECT, SUBJECT, describe};
use crate::request::{
    AdminData, Auditor, Body, Caller, DryRun, Faults, IfMatch, IfMatchOrNone, NewSubjectPath, Page,
    PolicyPath, Reason, RecordData, SubjectPath, Supporter, Then,
};
use api::tiers::{SubjectTierAnswer, SubjectTierBody, SubjectTierList};
use domain::identity::to_micros;
use domain::overrides::{OfSubject, SubjectTier};
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use domain::subject_tier::TierTerms;

fn check(
    body: SubjectTierBody,
    now: DateTime<Utc>,
) -> Result<(TierTerms, Option<String>), ApiError> {
    let mut faults = Faults::default();
    let until = faults.body_instant("/until", body.until.as_ref());
    faults.reason(body.reason.as_ref());
    let until = until.map(to_micros);
    let terms = faults.draft(TierTerms::check(&body.tier, until, now));
    Ok((faults.or(terms)?, body.reason))
}

impl ShownTerms for TierTerms {
    type Answer = SubjectTierAnswer;
    const READ: ReadKind = ReadKind::Tier;

    fn answer(policy: &PolicyName, version: OfSubject<Self>) -> SubjectTierAnswer {
        SubjectTierAnswer::new(policy, version)
    }
}

describe! {
    /// Put a subject into a tier of the policy, or into another one.
    ///
    /// The maxima of the tier apply from now on, and the subject keeps its usage. An override of the subject
    /// wins over the tier. A version of the policy without the tier has its own limits for the subject.
    PUT: "put_tier" of "tiers", |it| it
        .json::<SubjectTierAnswer>(201, "Created.").etag()
        .json::<SubjectTierAnswer>(200, "Replaced, or not changed; or the result of a dry run.").etag()
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
}
pub async fn put(
    caller: Caller<Supporter>,
    dry_run: DryRun,
    Then(body, (policy, subject, IfMatchOrNone(precondition))): Then<
        Body<SubjectTierBody>,
        (PolicyPath, NewSubjectPath, IfMatchOrNone),
    >,
    admin: AdminData,
) -> HttpAnswer {
    let terms = check(body.0, admin.instance.now())?;
    let editor = caller.editor(dry_run);
    exceptions::put(&admin, editor, policy.0, subject.0, terms, precondition).await
}

describe! {
    /// Show the tier of a subject. The ETag is its version.
    ///
    /// It is shown until somebody ends it, also after its `until`.
    GET: "get_tier" of "tiers", |it| it
        .json::<SubjectTierAnswer>(200, "The tier.").etag()
        .follows("put_tier", 201, SUBJECT)
}
pub async fn get(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    exceptions::get::<TierTerms>(&admin, &record, &caller, policy.0, subject.0).await
}

describe! {
    /// List the subjects that are in a tier of the policy.
    ///
    /// Those whose `until` has passed are listed too.
    LIST: "list_tiers" of "tiers", |it| it
        .json::<SubjectTierList>(200, "A page.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
        .follows("put_tier", 201, POLICY_OF_SUBJECT)
}
pub async fn list(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    page: Page,
    admin: AdminData,
) -> HttpAnswer {
    let found = admin.of_subjects(policy.0.clone(), page.limit, page.cursor());
    let answer = |found: SubjectTier| SubjectTierAnswer::new(&policy.0, found);
    Ok(HttpResponse::Ok().json(SubjectTierList::new(found.await?, answer)))
}

describe! {
    /// Take a subject out of its tier: the policy's own limits apply again.
    ///
    /// The answer has the last version.
    END: "end_tier" of "tiers", |it| it
        .json::<SubjectTierAnswer>(200, "Ended; or the result of a dry run.")
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
        .follows("put_tier", 201, SUBJECT)
}
pub async fn end(
    caller: Caller<Supporter>,
    policy: PolicyPath,
    subject: SubjectPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    dry_run: DryRun,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let reason = reason.0;
    exceptions::end::<TierTerms>(&admin, editor, policy.0, subject.0, reason, precondition).await
}
