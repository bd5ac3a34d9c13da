//! The specification, made from the code's own types.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::error::Problem;
use super::{claims, grants, health, keys, policies, reconciliations};

/// What any request with a key may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults4xx {
    /// `malformed`: not JSON, an unknown field, a wrong type.
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(#[to_schema] Problem),
    /// `unauthorized`: no valid key.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(#[to_schema] Problem),
    /// `forbidden`: the key has another role, or is confined to other policies.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(#[to_schema] Problem),
    /// `invalid`: values out of bounds, each with its place; `idempotency-key-reused`: the same
    /// key with another claim.
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(#[to_schema] Problem),
    /// `too-many-wrong-keys`: wait for as long as `Retry-After` says.
    #[response(status = 429, content_type = "application/problem+json")]
    TooManyWrongKeys(#[to_schema] Problem),
}

/// What a request for something that may not exist may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults404 {
    /// `unknown-policy`: no such policy, or archived; `not-found`: nothing with this id.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(#[to_schema] Problem),
}

/// What the service may answer when it cannot do what was asked. Safe to retry.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults5xx {
    /// `undecided`: the claim could not be decided exactly within the deadline; `unavailable`:
    /// the ledger does not answer. With `Retry-After`.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] Problem),
}

/// The specification.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "perdiem",
        description = include_str!("openapi.md"),
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "This instance.")),
    paths(
        policies::put,
        policies::get,
        policies::list,
        policies::archive,
        policies::versions,
        policies::windows,
        claims::post,
        claims::usage,
        grants::get,
        grants::list,
        grants::export,
        reconciliations::post,
        reconciliations::get,
        reconciliations::list,
        keys::post,
        keys::list,
        keys::get,
        keys::patch,
        keys::revoke,
        health::livez,
        health::readyz,
        health::metrics,
        super::docs::openapi_yaml,
        super::docs::page,
    ),
    security(("key" = [])),
    tags(
        (name = "policies", description = "Named rules that say how much a subject may take in a window of local time."),
        (name = "claims", description = "Requests to take units of a policy for a subject."),
        (name = "grants", description = "Claims that were allowed, as the ledger has them."),
        (name = "reconciliations", description = "Comparisons of the counters with the ledger, and of the ledger with itself."),
        (name = "keys", description = "Who may use the API."),
        (name = "operation", description = "How an instance is."),
    ),
    modifiers(&BearerKey),
)]
struct Specification;

struct BearerKey;

impl Modify for BearerKey {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key: Authorization: Bearer <key>. Each operation names the roles that it takes."))
            .build();
        openapi
            .components
            .get_or_insert_default()
            .add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The specification.
pub fn specification() -> utoipa::openapi::OpenApi {
    Specification::openapi()
}

/// The specification as YAML, as it stands in openapi.yaml.
pub fn specification_yaml() -> String {
    specification()
        .to_yaml()
        .expect("the specification is YAML")
}
