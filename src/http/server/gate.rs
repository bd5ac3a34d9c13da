//! The gate: a proxy asks here before it lets a request through (nginx' `auth_request`, Caddy's `forward_auth`,
//! Traefik's `ForwardAuth`, Envoy's `ext_authz` over HTTP). Each question becomes a claim, which `/v1` decides.
//!
//! The settings are in the path, because Envoy puts the path and the query of the user's request behind it. A field
//! of the header counts only if the settings name it, because Traefik and Caddy pass on all fields of the user's.

use std::rc::Rc;
use std::sync::Arc;

use actix_web::dev::{ServiceRequest, fn_service};
use actix_web::http::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, FORWARDED, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHORIZATION, VIA, X_FORWARDED_FOR,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{App, HttpRequest, HttpResponse};
use serde_json::json;

use super::console::{read, request_id};
use super::every;
use super::in_process::{InProcess, OwnRequest};
use super::listening::AppHandlers;
use super::request_id::{TRACEPARENT, X_REQUEST_ID};
use crate::answer::{ApiError, RATE_LIMIT, RATE_LIMIT_POLICY};
use crate::request::{Bounded, GateKey, IDEMPOTENCY_KEY_FIELD, Route, Routes, segment};
use api::grants::ClaimAnswer;
use domain::claim::Units;
use domain::policy::PolicyName;
use engine::Engine;

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Names the grant that a request was let through with.
pub const PERDIEM_GRANT: HeaderName = HeaderName::from_static("perdiem-grant");
/// Says that a policy that only observes would have denied a request.
pub const PERDIEM_BUNDLE: HeaderName = HeaderName::from_static("perdiem-bundle");
pub const PERDIEM_WOULD_DENY: HeaderName = HeaderName::from_static("perdiem-would-deny");
/// Fields whose values are secrets: the ledger would store them as names of subjects, or as keys.
const SECRETS: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];
/// Fields to which each proxy adds its part.
const LISTS: [HeaderName; 3] = [FORWARDED, X_FORWARDED_FOR, VIA];
const FORM: &str = "there is nothing at this path: ask the gate with /gate/POLICY/by=x-user";

/// The settings of the gate.
#[derive(Debug, Clone)]
pub struct GateOptions {
    /// The address and port for questions over HTTP/1.1; `None` for no such questions.
    pub bind: Option<String>,
    /// The address and port of Envoy's Rate Limit Service; `None` without it.
    pub grpc_bind: Option<String>,
    /// The key with which the gate claims.
    pub key: Arc<str>,
}

/// The gate of one thread.
pub struct Gate {
    engine: Arc<Engine>,
    key: GateKey,
    in_process: InProcess,
}

/// The settings of a proxy, in the path.
#[derive(Debug, PartialEq, Eq)]
struct ProxySettings {
    /// The field with the name of the subject.
    by: HeaderName,
    /// The field that makes retries safe.
    key: Option<HeaderName>,
    units: Units,
    /// The status of a refusal.
    denied: Option<StatusCode>,
}

/// The handlers of the gate. They know nothing of the engine, so nobody checks the key of a user, which is not for
/// perdiem.
pub fn gate_app(gate: Rc<Gate>) -> App<impl AppHandlers> {
    let routes = ["/gate/{policy}/{settings}", "/gate/{settings}", "/gate"].map(|pattern| {
        Route::at(pattern, Bounded::Open)
            .with_slashes()
            .files(answer)
    });
    let routes = Rc::new(Routes::new(routes.into()));
    App::new()
        .app_data(gate)
        .default_service(fn_service(move |mut request: ServiceRequest| {
            // The user's method says nothing about the claim.
            request.head_mut().method = Method::GET;
            every::answer(routes.clone(), request)
        }))
}

async fn answer(request: HttpRequest) -> HttpResponse {
    let gate = request.app_data::<Rc<Gate>>();
    let gate = gate.expect("the handlers have the gate").clone();
    let answered = gate.answer(&request).await;
    answered.unwrap_or_else(HttpResponse::from_error)
}

impl Gate {
    pub fn new(engine: Arc<Engine>, key: GateKey, in_process: InProcess) -> Rc<Self> {
        Rc::new(Self {
            engine,
            key,
            in_process,
        })
    }

    async fn answer(&self, request: &HttpRequest) -> Result<HttpResponse, ApiError> {
        // 1. Read the settings.
        let (Some(policy), Some(rest)) = (segment(request, "policy"), segment(request, "settings"))
        else {
            return Err(ApiError::NotFound(FORM));
        };
        let wrong =
            |fault: String| ApiError::Malformed(format!("in the path of the gate: {fault}"));
        let policy = PolicyName::new(&policy).map_err(|error| wrong(error.to_string()))?;
        // Envoy puts the path of the user's request behind the settings.
        let settings = rest.split('/').next().unwrap_or_default();
        let settings = ProxySettings::parse(settings).map_err(wrong)?;
        let headers = request.headers();
        let subject = str::from_utf8(value(headers, &settings.by)?.as_bytes());
        let subject = subject.map_err(|_| not_one(&settings.by))?;
        let mut fields = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        fields.extend(HeaderValue::from_str(&request_id(request)).map(|id| (X_REQUEST_ID, id)));
        fields.extend(headers.get(TRACEPARENT).map(|it| (TRACEPARENT, it.clone())));
        if let Some(name) = &settings.key {
            fields.push((IDEMPOTENCY_KEY_FIELD, value(headers, name)?.clone()));
        }
        // 2. Claim, with the rights that the key has now.
        let body = json!({"subject": subject, "units": settings.units.get()}).to_string();
        let own = OwnRequest {
            method: Method::POST,
            target: &format!("/v1/policies/{policy}/claims"),
            fields,
            body: Bytes::from(body),
            principal: Some(self.key.claimer_of(&self.engine, &policy).await?),
            peer: request.peer_addr(),
        };
        let answer = self.in_process.send(own).await;
        let mut answer = answer.unwrap_or_else(|| HttpResponse::InternalServerError().finish());
        // 3. Answer in a way that the proxy understands.
        if answer.status().is_success() {
            return Ok(granted(answer).await);
        }
        let is_refused = ApiError::of(&answer).is_some_and(ApiError::is_refusal);
        if let Some(status) = settings.denied.filter(|_| is_refused) {
            answer.head_mut().status = status;
        }
        Ok(answer)
    }
}

impl ProxySettings {
    /// Reads the settings in the path, such as `by=x-user,key=x-request-id,denied=403`.
    ///
    /// # Errors
    /// What to write instead.
    fn parse(text: &str) -> Result<Self, String> {
        let mut by = None;
        let mut key = None;
        let mut units = None;
        let mut denied = None;
        for setting in text.split(',') {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let is_new = match name {
                "by" => by.replace(field_named(name, value)?).is_none(),
                "key" => key.replace(field_named(name, value)?).is_none(),
                "units" => {
                    let number = value.parse();
                    let number = number.map_err(|_| "units is a whole number from 1".to_owned());
                    let number = Units::new(number?).map_err(|error| error.to_string())?;
                    units.replace(number).is_none()
                }
                "denied" => {
                    let status = match value {
                        "403" => StatusCode::FORBIDDEN,
                        "429" => StatusCode::TOO_MANY_REQUESTS,
                        _ => return Err("denied is 403 or 429".to_owned()),
                    };
                    denied.replace(status).is_none()
                }
                "" => return Err("between commas there is a setting, such as by=x-user".to_owned()),
                _ => return Err(format!("{name:?} is none of by, key, units and denied")),
            };
            if !is_new {
                return Err(format!("{name} stands twice"));
            }
        }
        Ok(Self {
            by: by.ok_or("name the field with the subject, such as by=x-user")?,
            key,
            units: units.unwrap_or(Units::ONE),
            denied: denied.filter(|status| *status == StatusCode::FORBIDDEN),
        })
    }
}

/// The name of a field that a setting names.
fn field_named(setting: &str, value: &str) -> Result<HeaderName, String> {
    let field = HeaderName::from_bytes(value.as_bytes());
    let field = field
        .map_err(|_| format!("{setting} names a field of the header, such as {setting}=x-user"))?;
    if LISTS.contains(&field) {
        return Err(format!(
            "{setting} cannot be {field}, of which a user writes a part: let the proxy set another field"
        ));
    }
    if SECRETS.contains(&field) {
        return Err(format!(
            "{setting} cannot be {field}: the ledger would store a secret"
        ));
    }
    Ok(field)
}

/// The value of a field that the proxy must set.
fn value<'r>(headers: &'r HeaderMap, name: &HeaderName) -> Result<&'r HeaderValue, ApiError> {
    let mut values = headers.get_all(name);
    let value = values.next().filter(|value| !value.is_empty());
    match (value, values.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(not_one(name)),
    }
}

fn not_one(name: &HeaderName) -> ApiError {
    ApiError::Malformed(format!(
        "the field {name} must have one value, in UTF-8: let the proxy set it, in place of the user's"
    ))
}

/// The answer to a proxy whose claim is granted.
async fn granted(answer: HttpResponse) -> HttpResponse {
    let mut passed = HttpResponse::Ok();
    for name in [RATE_LIMIT, RATE_LIMIT_POLICY, IDEMPOTENT_REPLAYED] {
        if let Some(value) = answer.headers().get(&name) {
            passed.insert_header((name, value.clone()));
        }
    }
    if let Ok(claim) = serde_json::from_slice::<ClaimAnswer>(&read(answer).await.body) {
        if let Some(grant) = claim.grant {
            passed.insert_header((PERDIEM_GRANT, grant.id.to_string()));
        }
        if claim.would_deny {
            passed.insert_header((PERDIEM_WOULD_DENY, "true"));
        }
    }
    passed.finish()
}
