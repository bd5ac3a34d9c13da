//! Grants: one, and lists.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::caller::{Auditor, ByHandler, Caller, InQuery};
use super::error::ApiError;
use super::extract::{EngineData, Faults, engine, parse_true, path_id};
use super::openapi::{Faults4xx, Faults5xx, Faults404};
use super::query::Query;
use super::{instant, words};
use crate::domain::claim::{IdempotencyKey, Subject};
use crate::domain::grant::{EntryKind, Follower, Followers, Grant, GrantState, Provisional};
use crate::domain::policy::PolicyName;
use crate::engine::GrantQuery;
use crate::ledger::ProvisionalScope;

/// A grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantBody {
    /// A UUIDv7: ids are in the order of grants.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Uuid,
    #[schema(example = "benefit")]
    pub policy: String,
    /// The version of the policy that granted it.
    #[schema(example = 1)]
    pub policy_version: u32,
    /// Null once the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    #[schema(example = 1)]
    pub units: u64,
    /// `held`, `granted`, `reversed` or `lapsed`.
    #[schema(value_type = words::GrantState, example = "granted")]
    pub state: &'static str,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    #[serde(serialize_with = "instant::serialize")]
    pub granted_at: DateTime<Utc>,
    /// `true` where Redis alone decided it, and the ledger recorded it afterwards. Absent
    /// otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub provisional: bool,
    /// `true` where it went over a limit, as only a provisional grant can. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub over: bool,
    /// `true` where the policy only observed, and would have denied it. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    pub would_deny: bool,
    /// For a hold: when it lapses unless it is confirmed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<DateTime<Utc>>,
    /// The confirmation of a hold. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation: Option<ConfirmationBody>,
    /// The reversal, if there is one. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reversal: Option<ReversalBody>,
    /// What the claim brought.
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    pub metadata: Option<Box<RawValue>>,
}

/// A confirmation of a hold.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConfirmationBody {
    /// When.
    at: DateTime<Utc>,
    /// By whom: a key's id, or where the key was set.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    by: String,
}

/// A reversal of a grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReversalBody {
    /// When.
    pub at: DateTime<Utc>,
    /// By whom: a key's id, or where the key was set.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    by: String,
    /// Why.
    #[schema(example = "SMS gateway refused")]
    pub reason: String,
}

impl GrantBody {
    /// A grant as it stands at an instant.
    pub fn new(grant: &Grant, now: DateTime<Utc>) -> Self {
        let entry = &grant.entry;
        let metadata = entry.metadata.as_ref();
        let Followers {
            confirmation,
            closing,
        } = &grant.followers;
        let reversal = closing
            .as_ref()
            .filter(|closing| matches!(closing.kind, EntryKind::Reversal { .. }));
        let by = |follower: &Follower| {
            let note = follower.note.as_ref();
            note.map(|note| note.by.to_string()).unwrap_or_default()
        };
        let reason = |follower: &Follower| follower.note.as_ref()?.reason.clone();
        Self {
            id: entry.id.0,
            policy: grant.policy.to_string(),
            policy_version: entry.line.policy_version,
            subject: grant.subject.clone(),
            units: entry.units.get(),
            state: grant.state(now).as_str(),
            granted_at: entry.counted_at(),
            provisional: entry.provisional.is_some(),
            over: entry.provisional == Some(Provisional::Over),
            would_deny: entry.would_deny,
            held_until: entry.held_until(),
            confirmation: confirmation.as_ref().map(|confirmation| ConfirmationBody {
                at: confirmation.at,
                by: by(confirmation),
            }),
            reversal: reversal.map(|reversal| ReversalBody {
                at: reversal.at,
                by: by(reversal),
                reason: reason(reversal).unwrap_or_default(),
            }),
            metadata: metadata
                .and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok()),
        }
    }
}

/// A page of grants.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantList {
    items: Vec<GrantBody>,
    /// Where the next page begins; null on the last. It stays right while new grants come in.
    next_cursor: Option<String>,
}

/// Which grants to list. Filters combine.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantFilterQuery {
    /// Those of a policy, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    pub policy: Option<String>,
    /// Those of a subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    pub subject: Option<String>,
    /// Those granted at this instant or later.
    #[param(value_type = Option<DateTime<Utc>>)]
    pub from: Option<String>,
    /// Those granted before this instant.
    #[param(value_type = Option<DateTime<Utc>>)]
    pub to: Option<String>,
    /// `held`, `granted`, `reversed` or `lapsed`.
    #[param(value_type = Option<words::GrantState>)]
    pub state: Option<String>,
    /// Those that bear this key.
    #[param(pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#)]
    pub idempotency_key: Option<String>,
    /// `true`: those that Redis alone decided.
    #[param(value_type = Option<words::OnlyTrue>)]
    pub provisional: Option<String>,
    /// `true`: those of them that went over a limit.
    #[param(value_type = Option<words::OnlyTrue>)]
    pub over: Option<String>,
    /// `true`: those that an observing policy would have denied.
    #[param(value_type = Option<words::OnlyTrue>)]
    pub would_deny: Option<String>,
    /// Items a page: 1 to 1000; 100 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9_-]+$")]
    pub cursor: Option<String>,
}

impl GrantFilterQuery {
    /// The filters, parsed.
    pub fn check(&self, faults: &mut Faults) -> GrantQuery {
        GrantQuery {
            policy: faults.parameter("policy", self.policy.as_ref(), PolicyName::new),
            subject: faults.parameter("subject", self.subject.as_ref(), Subject::new),
            from: faults.instant("from", self.from.as_ref()),
            to: faults.instant("to", self.to.as_ref()),
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
        format!("a state is one of {}", names.join(", "))
    })
}

/// One grant.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/grants/{id}", operation_id = "get_grant", tag = "grants",
    params(("id" = Uuid, Path, example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")),
    responses(
        (status = 200, description = "The grant.", body = GrantBody),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn get(
    caller: Caller<Auditor, ByHandler>,
    request: actix_web::HttpRequest,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let id = path_id(&request, "a grant's id")?;
    let grant = engine(&data).grant(id).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    Ok(HttpResponse::Ok().json(GrantBody::new(&grant, data.now())))
}

/// Grants, newest first.
///
/// A key that is confined to policies must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/grants", operation_id = "list_grants", tag = "grants",
    params(GrantFilterQuery),
    responses(
        (status = 200, description = "A page.", body = GrantList),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn list(
    _caller: Caller<Auditor, InQuery>,
    query: Query<GrantFilterQuery>,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let mut faults = Faults::default();
    let filter = query.0.check(&mut faults);
    let limit = faults.limit(query.0.limit.as_ref());
    let filter = faults.or(Some(filter))?;
    let cursor = query.0.cursor.as_deref();
    let page = engine(&data).grants(filter, limit, cursor).await?;
    let now = data.now();
    let body = |grant| GrantBody::new(grant, now);
    Ok(HttpResponse::Ok().json(GrantList {
        items: page.grants.iter().map(body).collect(),
        next_cursor: page.next_cursor,
    }))
}
