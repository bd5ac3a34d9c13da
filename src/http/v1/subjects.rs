//! Subjects: one under all policies, those that begin with a text, and those near a limit.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use super::claims::usage_body;
use crate::answer::HttpAnswer;
use crate::operation::{POLICY, describe};
use crate::request::{
    Auditor, ByHandler, Caller, ClaimsData, Faults, PageQuery, PolicyPath, Query, RecordData,
    SubjectPath,
};
use api::limits::LimitUsage;
use api::subjects::{NearItem, NearList, SubjectAnswer, SubjectItem, SubjectList};
use api::words;
use domain::claim::Subject;
use domain::limit::per::Per;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use engine::{NearQuery, PartOfLimit, SubjectQuery};

/// The most policies of an answer.
const POLICIES_MOST: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OneSubjectQuery {
    /// Only policies after this name: the `next_after` of the page before.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit")]
    after: Option<String>,
}

describe! {
    /// Show a subject under all policies: its usage, its overrides, its tiers and its blocks.
    ///
    /// A page has at most 100 policies, without archived ones. A key that is confined to policies sees only
    /// these.
    GET: "get_subject" of "claims", |it| it
        .json::<SubjectAnswer>(200, "What is known about the subject, perhaps nothing.")
        .follows("put_override", 201, &[("subject", "$response.body#/subject")])
}
pub async fn get(
    caller: Caller<Auditor, ByHandler>,
    subject: SubjectPath,
    query: Query<OneSubjectQuery>,
    claims: ClaimsData,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let after = faults.parameter("after", query.0.after.as_ref(), PolicyName::new);
    let after = faults.or(Some(after))?;
    let confined_to = caller.policies();
    let found = claims.of_subject(&subject.0, confined_to, after.as_ref(), POLICIES_MOST);
    let found = found.await?;
    let subject = subject.0.as_str();
    caller
        .record_read(&record, ReadKind::Usage, None, subject)
        .await?;
    let last = found.policies.last().filter(|_| found.has_more);
    Ok(HttpResponse::Ok().json(SubjectAnswer {
        subject: subject.to_owned(),
        next_after: last.map(|usage| usage.policy.name.to_string()),
        items: found
            .policies
            .into_iter()
            .map(|usage| usage_body(usage, subject))
            .collect(),
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubjectsQuery {
    /// Only subjects that begin with this text. Upper and lower case differ.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$",
        example = "member-"
    )]
    prefix: Option<String>,
    /// Only subjects that this policy knows, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit")]
    policy: Option<String>,
}

describe! {
    /// List the subjects that policies know, in the order of their bytes.
    ///
    /// A policy knows a subject that has entries under it, or ever had an override, a tier or a block. Without `policy`
    /// the list is about all policies but archived ones; a confined key sees what its policies know. An erased
    /// subject is not listed. A grant that Redis counted is in the list a moment later.
    LIST: "list_subjects" of "claims", |it| it
        .json::<SubjectList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(
    caller: Caller<Auditor, ByHandler>,
    query: Query<SubjectsQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let SubjectsQuery { prefix, policy } = query.0;
    let mut faults = Faults::default();
    let prefix = faults.parameter("prefix", prefix.as_ref(), Subject::existing);
    let policy = faults.parameter("policy", policy.as_ref(), PolicyName::new);
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    if let Some(policy) = &policy {
        caller.may_use(policy)?;
    }
    let query = SubjectQuery {
        prefix,
        policy,
        confined_to: caller.policies(),
    };
    let found = record.subjects(query, page.limit, page.cursor()).await?;
    Ok(
        HttpResponse::Ok().json(SubjectList::new(found, |known| SubjectItem {
            subject: known.subject,
            policies: known.policies.iter().map(PolicyName::to_string).collect(),
        })),
    )
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NearSubjectsQuery {
    /// How much of the limit is used at least. Default: 0.8.
    #[param(value_type = Option<f64>, minimum = 0.001, maximum = 1, example = 0.8)]
    at_least: Option<String>,
    /// Default: any limit of the policy.
    #[param(value_type = Option<words::LimitName>, example = "day")]
    per: Option<String>,
}

describe! {
    /// List the subjects that are at or near a limit of a policy now.
    ///
    /// A page looks at up to 300 entries, those that count in the limit, oldest first. So it can be empty, and
    /// have a next page: follow `next_cursor` to the end. A subject that claims while you read the pages can be
    /// missing. For `ever` all entries of the policy are looked at; for a `rate` those of the time in which all
    /// units return, so a subject that owes more than the burst can be missing.
    NEAR: "list_near_subjects" of "claims", |it| it
        .json::<NearList>(200, "A page.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
}
pub async fn near(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    query: Query<NearSubjectsQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let NearSubjectsQuery { at_least, per } = query.0;
    let mut faults = Faults::default();
    let at_least = faults.parameter("at_least", at_least.as_ref(), str::parse::<PartOfLimit>);
    let per = faults.parameter("per", per.as_ref(), str::parse::<Per>);
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    let query = NearQuery {
        policy: policy.0,
        at_least: at_least.unwrap_or(PartOfLimit::MOST),
        per,
    };
    let found = record.near(query, page.limit, page.cursor()).await?;
    Ok(
        HttpResponse::Ok().json(NearList::new(found, |near| NearItem {
            subject: near.subject,
            limits: LimitUsage::all(&near.totals),
        })),
    )
}
