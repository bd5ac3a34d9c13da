//! The specification, made of what the operations say of themselves.

use std::sync::LazyLock;

use actix_web::http::Method;
use actix_web::{HttpRequest, HttpResponse};
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Object, RefOr, Type, link::Link};
use utoipa::{Modify, OpenApi};

use super::document::Document;
use super::problems;
use super::sharing::share;
use crate::operation::{Source, describe};
use crate::request::{PlacedOperation, Public};
use crate::routes;
use api::problem::Problem;
use api::words;

/// The specification.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "perdiem",
        description = include_str!("openapi.md"),
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "This instance.")),
    // The derive does not find the schemas of parameters and of completed answers.
    components(schemas(Problem, words::Anything, words::ExportFormat, words::OnlyTrue)),
    security(("key" = [])),
    tags(
        (name = "policies", description = "Named rules that limit how many units a subject may take in a window of local time."),
        (name = "overrides", description = "Another `max` for one subject of a policy."),
        (name = "blocks", description = "Subjects that a policy denies, whatever its limits are."),
        (name = "tiers", description = "The subjects that are in a tier of a policy, such as `gold`."),
        (name = "claims", description = "Requests to take units of a policy for a subject."),
        (name = "entries", description = "The lines of an account: grants and what corrects them."),
        (name = "grants", description = "Granted claims, as the ledger has them."),
        (name = "changes", description = "What was changed, by whom, when and why."),
        (name = "reconciliations", description = "Comparisons of the counters with the ledger, and of the ledger with itself."),
        (name = "seals", description = "Signed checkpoints of a log of all entries and changes, and proofs."),
        (name = "keys", description = "API keys, their roles and their ends."),
        (name = "operation", description = "The state and the measures of an instance."),
    ),
    modifiers(&Problems, &BearerKey, &Operations),
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

/// Writes every operation into the specification, with its links and the schemas to which it refers.
struct Operations;

impl Modify for Operations {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let mut placed = routes().operations();
        for index in 0..placed.len() {
            let target = placed[index].operation.id;
            for source in std::mem::take(&mut placed[index].operation.sources) {
                lead(&mut placed, &source, target);
            }
        }
        for PlacedOperation {
            pattern,
            method,
            operation,
            ..
        } in placed
        {
            let components = openapi.components.get_or_insert_default();
            components.schemas.extend(operation.schemas);
            let paths = &mut openapi.paths;
            paths.add_path_operation(pattern, vec![in_document(&method)], operation.shown);
        }
    }
}

/// Lets an answer lead to another operation.
fn lead(placed: &mut [PlacedOperation], source: &Source, target: &str) {
    let response = placed
        .iter_mut()
        .find(|it| it.operation.id == source.operation)
        .and_then(|it| {
            it.operation
                .shown
                .responses
                .responses
                .get_mut(&source.status)
        });
    let Some(RefOr::T(response)) = response else {
        panic!("{source:?} is no answer that can lead to {target}");
    };
    let mut link = Link::builder().operation_id(target);
    for (name, value) in source.values {
        link = link.parameter(*name, *value);
    }
    response
        .links
        .insert(target.to_owned(), link.build().into());
}

fn in_document(method: &Method) -> HttpMethod {
    match *method {
        Method::PUT => HttpMethod::Put,
        Method::POST => HttpMethod::Post,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

pub fn specification() -> utoipa::openapi::OpenApi {
    Specification::openapi()
}

/// The specification as YAML: the text of openapi.yaml. Parts that several operations have are there once.
pub fn specification_yaml() -> String {
    let mut specification = specification();
    let operations = routes().operations();
    let common = operations
        .into_iter()
        .map(|it| (it.operation.id, it.operation.common));
    share(&mut specification, &common.collect());
    let yaml = specification.to_yaml().expect("the specification is YAML");
    // Readers of YAML 1.1 take `on` for true.
    yaml.replace(" on:\n", " 'on':\n")
        .replace(": on\n", ": 'on'\n")
}

static YAML: LazyLock<Document> = LazyLock::new(|| Document::new(specification_yaml()));

describe! {
    /// The specification.
    ///
    /// It is the file `openapi.yaml` of this version of perdiem.
    OPENAPI_YAML: "openapi_yaml" of "operation", |it| {
        it.content(200, "This document.", Object::with_type(Type::Object), &["application/yaml"])
    }
}
pub async fn openapi_yaml(_caller: Public, request: HttpRequest) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.content_type("application/yaml");
    YAML.answer(answer, &request)
}
