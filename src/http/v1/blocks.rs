//! Blocks: subjects that a policy denies, whatever its limits are.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};

use super::exceptions::{self, ShownTerms};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, POLICY_OF_SUBJECT, SUBJECT, describe};
use crate::request::{
    AdminData, Auditor, Body, Caller, DryRun, Faults, IfMatch, IfMatchOrNone, NewSubjectPath, Page,
    PolicyPath, Reason, RecordData, SubjectPath, Supporter, Then,
};
use api::blocks::{BlockAnswer, BlockBody, BlockList};
use domain::blocks::BlockTerms;
use domain::identity::to_micros;
use domain::overrides::{Block, OfSubject};
use domain::policy::{PolicyName, check_reason};
use domain::reads::ReadKind;

fn check(body: BlockBody, now: DateTime<Utc>) -> Result<(BlockTerms, String), ApiError> {
    let mut faults = Faults::default();
    let until = faults.body_instant("/until", body.until.as_ref());
    let reason = body.reason.unwrap_or_default();
    faults.body("/reason", check_reason(&reason));
    let terms = faults.draft(BlockTerms::check(until.map(to_micros), now));
    Ok((faults.or(terms)?, reason))
}

impl ShownTerms for BlockTerms {
    type Answer = BlockAnswer;
    const READ: ReadKind = ReadKind::Block;

    fn answer(policy: &PolicyName, version: OfSubject<Self>) -> BlockAnswer {
        BlockAnswer::new(policy, version)
    }
}

describe! {
    /// Block a subject, or change its block: the policy denies each of its claims.
    ///
    /// A block holds in every version of the policy, and after the policy was archived and created again. It
    /// takes back nothing that was granted: grants can be confirmed, reversed and adjusted. A policy with the
    /// mode `observe` grants the claims of a blocked subject, and marks them with `would_deny`.
    PUT: "put_block" of "blocks", |it| it
        .json::<BlockAnswer>(201, "Created.").etag()
        .json::<BlockAnswer>(200, "Replaced, or not changed; or the result of a dry run.").etag()
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
}
pub async fn put(
    caller: Caller<Supporter>,
    dry_run: DryRun,
    Then(body, (policy, subject, IfMatchOrNone(precondition))): Then<
        Body<BlockBody>,
        (PolicyPath, NewSubjectPath, IfMatchOrNone),
    >,
    admin: AdminData,
) -> HttpAnswer {
    let (terms, reason) = check(body.0, admin.instance.now())?;
    let editor = caller.editor(dry_run);
    let terms = (terms, Some(reason));
    exceptions::put(&admin, editor, policy.0, subject.0, terms, precondition).await
}

describe! {
    /// Show a subject's block. The ETag is its version.
    ///
    /// It is shown until somebody removes it, also after its `until`.
    GET: "get_block" of "blocks", |it| it
        .json::<BlockAnswer>(200, "The block.").etag()
        .follows("put_block", 201, SUBJECT)
}
pub async fn get(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    exceptions::get::<BlockTerms>(&admin, &record, &caller, policy.0, subject.0).await
}

describe! {
    /// List the blocks of a policy.
    ///
    /// Blocks whose `until` has passed are listed too.
    LIST: "list_blocks" of "blocks", |it| it
        .json::<BlockList>(200, "A page.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
        .follows("put_block", 201, POLICY_OF_SUBJECT)
}
pub async fn list(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    page: Page,
    admin: AdminData,
) -> HttpAnswer {
    let found = admin.of_subjects(policy.0.clone(), page.limit, page.cursor());
    Ok(
        HttpResponse::Ok().json(BlockList::new(found.await?, |found: Block| {
            BlockAnswer::new(&policy.0, found)
        })),
    )
}

describe! {
    /// Remove a subject's block: the policy decides its claims again.
    ///
    /// The answer has the last version.
    REMOVE: "remove_block" of "blocks", |it| it
        .json::<BlockAnswer>(200, "Removed; or the result of a dry run.")
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
        .follows("put_block", 201, SUBJECT)
}
pub async fn remove(
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
    exceptions::end::<BlockTerms>(&admin, editor, policy.0, subject.0, reason, precondition).await
}
