//! The specification, made from the code's own types: the list of operations.

use std::collections::HashMap;
use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::completion::{Completion, operations, parameters};
use super::document::Document;
use super::links::Links;
use super::{pages, problems};
use crate::api::problem::Problem;
use crate::api::words;
use crate::http::health;
use crate::http::request::{DeclaredParameters, Public};
use crate::http::v1::{
    backtests, batches, blocks, changes, claims, corrections, entries, entry_exports, erasures,
    explanation, exports, grants, history, keys, overrides, pauses, policies, reconciliations,
    seals, statistics, windows,
};

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
        pauses::put,
        pauses::end,
        overrides::put,
        overrides::get,
        overrides::list,
        overrides::delete,
        blocks::put,
        blocks::get,
        blocks::list,
        blocks::remove,
        backtests::post,
        claims::post,
        claims::usage,
        batches::post,
        entries::list,
        entries::adjust,
        history::list,
        statistics::list,
        statistics::denials,
        entry_exports::export,
        entry_exports::manifest,
        grants::get,
        explanation::of_grant,
        corrections::reverse,
        corrections::confirm,
        grants::list,
        exports::export,
        changes::list,
        erasures::post,
        reconciliations::post,
        reconciliations::get,
        reconciliations::list,
        seals::list,
        seals::latest,
        seals::consistency,
        seals::proof,
        seals::change_proof,
        seals::checkpoint,
        seals::tile,
        keys::post,
        keys::list,
        keys::get,
        keys::patch,
        keys::revoke,
        health::livez,
        health::readyz,
        health::metrics,
        openapi_yaml,
        pages::first_claim,
        pages::reference,
        pages::problems,
    ),
    // The derive does not find the schemas of parameters and of completed answers.
    components(schemas(Problem, words::Anything, words::ExportFormat, words::OnlyTrue, words::WindowLength)),
    security(("key" = [])),
    tags(
        (name = "policies", description = "Named rules that limit how many units a subject may take in a window of local time."),
        (name = "overrides", description = "Another `max` for one subject of a policy."),
        (name = "blocks", description = "Subjects that a policy denies, whatever its limits are."),
        (name = "claims", description = "Requests to take units of a policy for a subject."),
        (name = "entries", description = "The lines of an account: grants and what corrects them."),
        (name = "grants", description = "Granted claims, as the ledger has them."),
        (name = "changes", description = "What was changed, by whom, when and why."),
        (name = "reconciliations", description = "Comparisons of the counters with the ledger, and of the ledger with itself."),
        (name = "seals", description = "Signed checkpoints of a log of all entries and changes, and proofs."),
        (name = "keys", description = "API keys, their roles and their ends."),
        (name = "operation", description = "The state and the measures of an instance."),
    ),
    modifiers(&Problems, &BearerKey, &Completion, &Links),
)]
struct Specification;

/// Writes the table of problems into the description.
struct Problems;

impl Modify for Problems {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let description = &mut openapi.info.description;
        *description = description
            .take()
            .map(|text| text.replace("{problems}\n", &problems::rows()));
    }
}

struct BearerKey;

impl Modify for BearerKey {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key: Authorization: Bearer <key>. Each operation lists the roles that may call it."))
            .build();
        openapi
            .components
            .get_or_insert_default()
            .add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

pub fn specification() -> utoipa::openapi::OpenApi {
    Specification::openapi()
}

/// The specification as YAML: the text of openapi.yaml.
pub fn specification_yaml() -> String {
    specification()
        .to_yaml()
        .expect("the specification is YAML")
}

static YAML: LazyLock<Document> = LazyLock::new(|| Document::new(specification_yaml()));

/// The specification.
#[utoipa::path(
    get, path = "/openapi.yaml", tag = "operation", security(()),
    responses((status = 200, description = "This document.", body = Object, content_type = "application/yaml")),
)]
pub async fn openapi_yaml(_caller: Public, request: HttpRequest) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/yaml");
    YAML.answer(answer, &request)
}

/// What each operation takes in its query.
pub fn known_parameters() -> DeclaredParameters {
    static KNOWN: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
        let mut known = HashMap::new();
        for (path, mut item) in specification().paths.paths {
            for (method, operation) in operations(&mut item) {
                known.insert(format!("{method} {path}"), names_in_query(operation));
            }
        }
        known
    });
    DeclaredParameters(&KNOWN)
}

fn names_in_query(operation: &Operation) -> Vec<String> {
    parameters(operation)
        .filter(|parameter| parameter.parameter_in == ParameterIn::Query)
        .map(|parameter| parameter.name.clone())
        .collect()
}
