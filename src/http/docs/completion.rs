//! The parts of the specification that many operations share, written once: the parameters of their
//! paths, and the problems that they answer with.

use actix_web::http::Method;
use utoipa::openapi::path::{Operation, Parameter, PathItem};
use utoipa::openapi::{Content, OpenApi, Ref, RefOr};
use utoipa::{IntoParams, IntoResponses, Modify, ToSchema};

use crate::api::problem::Problem;
use crate::http::answer::problem::MEDIA_TYPE;
use crate::http::request::{IdInPath, PolicyInPath, RevisionInPath, SubjectInPath};

/// The problems of every request with a key.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum WithKey {
    /// `malformed`: the request is not JSON, has an unknown field or parameter, or a wrong type.
    #[response(status = 400)]
    Malformed,
    /// `unauthorized`: no valid key.
    #[response(status = 401, headers(
        ("WWW-Authenticate" = String, description = "Always `Bearer`."),
    ))]
    Unauthorized,
    /// `forbidden`: the key has another role, or is confined to other policies.
    #[response(status = 403)]
    Forbidden,
    /// `invalid`: wrong values, each with its place; `idempotency-key-reused`: the same key with
    /// another claim.
    #[response(status = 422)]
    Invalid,
    /// `too-many-wrong-keys`: wait for as long as `Retry-After` says.
    #[response(status = 429, headers(
        ("Retry-After" = u64, description = "Seconds to wait before the next try."),
    ))]
    TooManyWrongKeys,
    /// `undecided`: the claim could not be decided exactly within the deadline; `unavailable`:
    /// the ledger does not answer; both with `Retry-After`. `read-only`: this instance only reads.
    #[response(status = 503, headers(
        ("Retry-After" = u64, description = "Seconds to wait before the next try."),
    ))]
    Unavailable,
}

/// The problems of every request with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum WithBody {
    /// `slow-request`: the body did not arrive in time.
    #[response(status = 408)]
    SlowRequest,
    /// `too-large`: the body is over 64 KiB; of a batch, over 8 MiB.
    #[response(status = 413)]
    TooLarge,
    /// `encoded-body`: the body has a `Content-Encoding`.
    #[response(status = 415)]
    EncodedBody,
}

/// The problems of every request for something that may not exist.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum Named {
    /// `unknown-policy`: there is no such policy, or it is archived; `not-found`: nothing has this
    /// id.
    #[response(status = 404)]
    NotFound,
}

/// The problem of every request that may need old entries.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "read by the derive")]
enum NeedsEntries {
    /// `archived`: the answer needs entries that were archived and dropped.
    #[response(status = 410)]
    Archived,
}

/// The operations that may need old entries. The confirmation describes this problem itself.
const NEED_ENTRIES: [&str; 14] = [
    "adjust",
    "backtest_policy",
    "claim",
    "claim_batch",
    "explain_grant",
    "export_entries",
    "export_grants",
    "get_export",
    "get_grant",
    "get_log_tile",
    "get_usage",
    "list_history",
    "prove_grant",
    "reverse_grant",
];

pub struct Completion;

impl Modify for Completion {
    fn modify(&self, openapi: &mut OpenApi) {
        for (path, item) in &mut openapi.paths.paths {
            for (_, operation) in operations(item) {
                add_path(path, operation);
                if path.starts_with("/v1/") {
                    add_problems(operation);
                }
                if path != "/readyz" {
                    add_bodies(operation);
                }
            }
        }
    }
}

fn add_path(path: &str, operation: &mut Operation) {
    let of_path = [
        ("{policy}", PolicyInPath::into_params(|| None)),
        ("{subject}", SubjectInPath::into_params(|| None)),
        ("{id}", IdInPath::into_params(|| None)),
        ("{revision}", RevisionInPath::into_params(|| None)),
    ];
    let named = of_path.into_iter().filter(|(name, _)| path.contains(name));
    let named = named.flat_map(|(_, parameters)| parameters);
    let named: Vec<_> = named.map(RefOr::T).collect();
    if !named.is_empty() {
        let others = operation.parameters.get_or_insert_default();
        others.splice(..0, named);
    }
}

/// Adds the problems of the operation's kind, except for a status that the operation describes
/// itself.
fn add_problems(operation: &mut Operation) {
    let names_something =
        parameters(operation).any(|it| matches!(it.name.as_str(), "policy" | "id" | "revision"));
    // This operation creates the policy that it names.
    let makes_it = operation.operation_id.as_deref() == Some("put_policy");
    let mut problems = WithKey::responses();
    if names_something && !makes_it {
        problems.extend(Named::responses());
    }
    let id = operation.operation_id.as_deref().unwrap_or_default();
    if NEED_ENTRIES.contains(&id) {
        problems.extend(NeedsEntries::responses());
    }
    if let Some(body) = &mut operation.request_body {
        // The body of a confirmation is optional: generated clients may leave it out, but send no null.
        if let RefOr::T(body) = body
            && id == "confirm_grant"
        {
            body.required = None;
        }
        problems.extend(WithBody::responses());
    }
    for (status, problem) in problems {
        let responses = &mut operation.responses.responses;
        responses.entry(status).or_insert(problem);
    }
}

/// Adds the problem document as the body of every problem without a body of its own.
fn add_bodies(operation: &mut Operation) {
    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && status.starts_with(['4', '5'])
            && response.content.is_empty()
        {
            response
                .content
                .insert(MEDIA_TYPE.to_owned(), problem.clone().into());
        }
    }
}

/// The parameters of an operation, in the path, the query and the header.
pub fn parameters(operation: &Operation) -> impl Iterator<Item = &Parameter> {
    let parameters = operation.parameters.iter().flatten();
    parameters.filter_map(|parameter| match parameter {
        RefOr::T(parameter) => Some(parameter),
        RefOr::Ref(_) => None,
    })
}

/// The operations of a path.
pub fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem {
        get,
        put,
        post,
        patch,
        delete,
        ..
    } = item;
    let operations = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::PATCH, patch),
        (Method::DELETE, delete),
    ];
    let known = operations.into_iter();
    known.filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
