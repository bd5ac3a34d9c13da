//! One grant, and lists of grants.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{GRANT, describe};
use crate::request::{
    Auditor, ByHandler, Caller, Faults, GrantPath, InQuery, MetadataQuery, PageQuery, Query,
    RecordData, SpanQuery, parse_true,
};
use api::grants::{GrantBody, GrantList};
use api::words;
use domain::claim::{IdempotencyKey, Subject};
use domain::grant::GrantState;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use engine::{GrantQuery, ProvisionalScope};

/// Filters for grants. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GrantFilterQuery {
    /// Only of this policy, archived or not. Required for local days.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only of this subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
    #[param(value_type = Option<words::GrantState>)]
    state: Option<String>,
    #[param(pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#)]
    idempotency_key: Option<String>,
    /// Only grants that Redis alone decided.
    #[param(value_type = Option<words::OnlyTrue>)]
    provisional: Option<String>,
    /// Only provisional grants that went over a limit.
    #[param(value_type = Option<words::OnlyTrue>)]
    over: Option<String>,
    /// Only grants that an observing policy would have denied in the mode `enforce`.
    #[param(value_type = Option<words::OnlyTrue>)]
    would_deny: Option<String>,
}

impl GrantFilterQuery {
    pub fn check(
        &self,
        span: &SpanQuery,
        metadata: &MetadataQuery,
        faults: &mut Faults,
    ) -> GrantQuery {
        let (span, by) = span.check(faults);
        GrantQuery {
            policy: faults.parameter("policy", self.policy.as_ref(), PolicyName::new),
            subject: faults.parameter("subject", self.subject.as_ref(), Subject::existing),
            span,
            metadata: metadata.check(faults),
            by,
            state: faults.parameter("state", self.state.as_ref(), parse_state),
            key: faults.parameter(
                "idempotency_key",
                self.idempotency_key.as_ref(),
                IdempotencyKey::parse,
            ),
            provisional: self.provisional(faults),
            would_deny: faults
                .parameter("would_deny", self.would_deny.as_ref(), parse_true)
                .is_some(),
        }
    }

    fn provisional(&self, faults: &mut Faults) -> Option<ProvisionalScope> {
        let all = faults.parameter("provisional", self.provisional.as_ref(), parse_true);
        let over = faults.parameter("over", self.over.as_ref(), parse_true);
        let all = all.map(|()| ProvisionalScope::All);
        over.map(|()| ProvisionalScope::Over).or(all)
    }
}

fn parse_state(text: &str) -> Result<GrantState, String> {
    let found = GrantState::ALL
        .into_iter()
        .find(|state| state.as_str() == text);
    found.ok_or_else(|| {
        let names = GrantState::ALL.map(GrantState::as_str);
        format!("write one of the states {}", names.join(", "))
    })
}

describe! {
    /// Show a grant.
    ///
    /// The answer has its state now.
    GET: "get_grant" of "grants", |it| it
        .json::<GrantBody>(200, "The grant.")
        .needs_entries()
        .follows("claim", 201, GRANT)
}
pub async fn get(
    caller: Caller<Auditor, ByHandler>,
    id: GrantPath,
    record: RecordData,
) -> HttpAnswer {
    let grant = record.claims.grant(id.0).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    let policy = Some(&grant.policy);
    let subject = grant.subject.as_deref();
    let read = caller.record_read(&record, ReadKind::Grant, policy, subject);
    read.await?;
    Ok(HttpResponse::Ok().json(GrantBody::new(&grant, record.instance.now())))
}

describe! {
    /// List grants, newest first.
    ///
    /// Each one has its state now.
    LIST: "list_grants" of "grants", |it| it.json::<GrantList>(200, "A page.")
}
pub async fn list(
    caller: Caller<Auditor, InQuery>,
    query: Query<GrantFilterQuery>,
    span: Query<SpanQuery>,
    metadata: Query<MetadataQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let filter = query.0.check(&span.0, &metadata.0, &mut faults);
    let page = page.0.check(&mut faults);
    let filter = faults.or(Some(filter))?;
    let policy = filter.policy.clone();
    let subject = filter.subject.clone();
    let found = record.grants(filter, page.limit, page.cursor()).await?;
    let subject = subject.as_ref().map(Subject::as_str);
    let read = caller.record_read(&record, ReadKind::Grants, policy.as_ref(), subject);
    read.await?;
    let now = record.instance.now();
    let found = (found.grants, found.next_cursor);
    Ok(HttpResponse::Ok().json(GrantList::new(found, |grant| GrantBody::new(&grant, now))))
}
