//! Changes: what was changed, by whom, when and why.

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::answer::HttpAnswer;
use crate::operation::describe;
use crate::request::{Auditor, Caller, Faults, InQuery, PageQuery, Query, RecordData};
use api::blocks::BlockAnswer;
use api::changes::{ChangeAnswer, ChangeList};
use api::keys::KeyAnswer;
use api::overrides::OverrideAnswer;
use api::policies::PolicyAnswer;
use api::tiers::SubjectTierAnswer;
use api::words;
use domain::claim::Subject;
use domain::overrides::OfSubject;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use engine::{Act, ChangeKind, ChangeQuery, Changed, PastChange};

/// Filters for changes. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChangeFilterQuery {
    /// Only changes of this policy, archived or not, and of its overrides, blocks and tiers of subjects; with
    /// `kind=read`, reads under it.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only at this instant or later. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// Only before this instant. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
    #[param(value_type = Option<words::ChangeKind>)]
    kind: Option<String>,
    /// Only changes by this key: its id, `PERDIEM_ADMIN_KEY`, or `perdiem`.
    #[param(format = "maker", example = "PERDIEM_ADMIN_KEY")]
    by: Option<String>,
    /// Only changes of this subject's overrides, blocks and tiers; with `kind=read`, reads of it.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
}

fn parse_kind(text: &str) -> Result<ChangeKind, String> {
    let mut kinds = ChangeKind::ALL.into_iter();
    let found = kinds.find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names = ChangeKind::ALL.map(ChangeKind::as_str);
        format!("write one of the kinds {}", names.join(", "))
    })
}

/// The maker of a change, as changes name it.
fn parse_by(text: &str) -> Result<String, &'static str> {
    let id = text.parse::<Uuid>().map(|id| id.to_string());
    match text {
        "PERDIEM_ADMIN_KEY" | "perdiem" => Ok(text.to_owned()),
        _ => id.map_err(|_| "write a key's id, PERDIEM_ADMIN_KEY, or perdiem"),
    }
}

fn change_answer(change: PastChange) -> ChangeAnswer {
    let revision = change.revision();
    match change {
        PastChange::Policy(changed) => {
            let Changed { before, after, .. } = *changed;
            ChangeAnswer {
                revision,
                kind: ChangeKind::Policy.as_str().into(),
                policy: Some(after.name.to_string()),
                subject: None,
                key: None,
                at: after.changed_at,
                by: after.changed_by.clone(),
                reason: after.reason.clone(),
                before: before.and_then(|before| written(PolicyAnswer::from(before))),
                after: written(PolicyAnswer::from(after)),
            }
        }
        PastChange::Override(changed) => {
            of_subject(ChangeKind::Override, changed, OverrideAnswer::new)
        }
        PastChange::Block(changed) => of_subject(ChangeKind::Block, changed, BlockAnswer::new),
        PastChange::Tier(changed) => of_subject(ChangeKind::Tier, changed, SubjectTierAnswer::new),
        PastChange::Key(Changed { before, after, .. }) => ChangeAnswer {
            revision,
            kind: ChangeKind::Key.as_str().into(),
            policy: None,
            subject: None,
            key: Some(after.id),
            at: after.changed_at,
            by: after.changed_by.clone(),
            reason: after.reason.clone(),
            before: before.and_then(|before| written(KeyAnswer::from(before))),
            after: written(KeyAnswer::from(after)),
        },
        PastChange::Act(Act {
            kind,
            about,
            at,
            by,
            reason,
            ..
        }) => ChangeAnswer {
            revision,
            kind: kind.as_str().into(),
            policy: None,
            subject: None,
            key: None,
            at,
            by,
            reason,
            before: None,
            after: RawValue::from_string(about).ok(),
        },
    }
}

fn written(version: impl Serialize) -> Option<Box<RawValue>> {
    to_raw_value(&version).ok()
}

/// A change of an exception. A version that ends it is not written.
fn of_subject<T, B: Serialize>(
    kind: ChangeKind,
    changed: Changed<(PolicyName, OfSubject<T>)>,
    body: impl Fn(&PolicyName, OfSubject<T>) -> B,
) -> ChangeAnswer {
    let Changed {
        revision,
        before,
        after: (policy, after),
    } = changed;
    let version = |version: OfSubject<T>| {
        version.terms.as_ref()?;
        written(body(&policy, version))
    };
    ChangeAnswer {
        revision,
        kind: kind.as_str().into(),
        policy: Some(policy.to_string()),
        subject: after.subject.as_ref().map(|it| it.as_str().to_owned()),
        key: None,
        at: after.changed_at,
        by: after.changed_by.clone(),
        reason: after.reason.clone(),
        before: before.and_then(|(_, before)| version(before)),
        after: version(after),
    }
}

describe! {
    /// List the changes of policies, overrides, blocks, tiers of subjects and keys, newest first.
    ///
    /// The list also has acts, such as exports. Those of the kinds `day` and `read` are listed only where
    /// `kind` asks for them, because there are many.
    LIST: "list_changes" of "changes", |it| it.json::<ChangeList>(200, "A page.")
}
pub async fn list(
    caller: Caller<Auditor, InQuery>,
    query: Query<ChangeFilterQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let query = query.0;
    let mut faults = Faults::default();
    let query = ChangeQuery {
        policy: faults.parameter("policy", query.policy.as_ref(), PolicyName::new),
        from: faults.bound("from", query.from.as_ref()),
        to: faults.bound("to", query.to.as_ref()),
        kind: faults.parameter("kind", query.kind.as_ref(), parse_kind),
        by: faults.parameter("by", query.by.as_ref(), parse_by),
        subject: faults.parameter("subject", query.subject.as_ref(), Subject::existing),
    };
    let page = page.0.check(&mut faults);
    let query = faults.or(Some(query))?;
    let policy = query.policy.clone();
    let subject = query.subject.clone();
    let found = record.changes(query, page.limit, page.cursor()).await?;
    let subject = subject.as_ref().map(Subject::as_str);
    let read = caller.record_read(&record, ReadKind::Changes, policy.as_ref(), subject);
    read.await?;
    Ok(HttpResponse::Ok().json(ChangeList::new(found, change_answer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_has_the_words_of_all_kinds() {
        assert_eq!(words::CHANGE_KINDS, ChangeKind::ALL.map(ChangeKind::as_str));
    }
}
