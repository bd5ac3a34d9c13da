//! The specification, made from the code's own types.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};

use super::error::Problem;
use super::links::Links;
use super::words;
use super::{
    backtest, batches, changes, claims, corrections, entries, exports, grants, health, keys,
    overrides, policies, reconciliations, windows,
};

/// What any request with a key may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults4xx {
    /// `malformed`: not JSON, an unknown field or parameter, a wrong type.
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Problem),
    /// `unauthorized`: no valid key.
    #[response(status = 401, content_type = "application/problem+json", headers(
        ("WWW-Authenticate" = String, description = "Always `Bearer`."),
    ))]
    Unauthorized(Problem),
    /// `forbidden`: the key has another role, or is confined to other policies.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// `invalid`: values out of bounds, each with its place; `idempotency-key-reused`: the same
    /// key with another claim.
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(Problem),
    /// `too-many-wrong-keys`: wait for as long as `Retry-After` says.
    #[response(status = 429, content_type = "application/problem+json", headers(
        ("Retry-After" = u64, description = "Seconds until it is worth another try."),
    ))]
    TooManyWrongKeys(Problem),
}

/// What any request with a body may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum FaultsBody {
    /// `slow-request`: the body did not arrive in time.
    #[response(status = 408, content_type = "application/problem+json")]
    SlowRequest(Problem),
    /// `too-large`: the body is over 64 KiB; of a batch, over 8 MiB.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
}

/// What a request for something that may not exist may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults404 {
    /// `unknown-policy`: no such policy, or archived; `not-found`: nothing with this id.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(Problem),
}

/// What the service may answer when it cannot do what was asked. Safe to retry.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
pub enum Faults5xx {
    /// `undecided`: the claim could not be decided exactly within the deadline; `unavailable`:
    /// the ledger does not answer. With `Retry-After`.
    #[response(status = 503, content_type = "application/problem+json", headers(
        ("Retry-After" = u64, description = "Seconds until it is worth another try."),
    ))]
    Unavailable(Problem),
}

/// The field `If-Match`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
pub struct IfMatch {
    /// The ETag that it must have, or `*`: it must exist.
    #[param(
        rename = "If-Match",
        value_type = String,
        required = false,
        format = "entity-tags",
        pattern = r#"^(\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$"#,
    )]
    if_match: Option<String>,
}

/// The field `If-None-Match`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
pub struct IfNoneMatch {
    /// `*`: it must not exist. Not together with `If-Match`.
    #[param(rename = "If-None-Match", value_type = words::Anything, required = false)]
    if_none_match: Option<String>,
}

/// A subject in the path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "read by the derive")]
pub struct SubjectInPath {
    /// 1 to 256 bytes of UTF-8 without control characters; percent-encoded, `/` too.
    #[param(
        example = "member-42",
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: String,
}

/// The field `Idempotency-Key`.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "read by the derive")]
pub struct IdempotencyKeyField {
    /// 1 to 255 characters of visible ASCII, bare or as a quoted string; unique in its policy.
    #[param(
        rename = "Idempotency-Key",
        value_type = String,
        required = false,
        example = "order-17",
        pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#,
    )]
    idempotency_key: Option<String>,
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
        windows::list,
        overrides::put,
        overrides::get,
        overrides::list,
        overrides::delete,
        backtest::post,
        claims::post,
        claims::usage,
        batches::post,
        entries::list,
        entries::adjust,
        grants::get,
        corrections::reverse,
        corrections::confirm,
        grants::list,
        exports::export,
        changes::list,
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
        super::docs::problems,
    ),
    // Those of parameters alone are not found by themselves.
    components(schemas(words::Anything, words::ExportFormat, words::OnlyTrue)),
    security(("key" = [])),
    tags(
        (name = "policies", description = "Named rules that say how much a subject may take in a window of local time."),
        (name = "overrides", description = "Another `max` for one subject of a policy."),
        (name = "claims", description = "Requests to take units of a policy for a subject."),
        (name = "entries", description = "The lines of an account: grants and what corrects them."),
        (name = "grants", description = "Claims that were allowed, as the ledger has them."),
        (name = "changes", description = "What was changed, by whom, when and why."),
        (name = "reconciliations", description = "Comparisons of the counters with the ledger, and of the ledger with itself."),
        (name = "keys", description = "Who may use the API."),
        (name = "operation", description = "How an instance is."),
    ),
    modifiers(&BearerKey, &Links),
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
