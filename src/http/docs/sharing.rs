//! Shares equal parts of the specification: a parameter, a field of an answer or a link that several
//! operations have is in the components once, and the operations refer to it. The problems that every
//! operation can have are its answer `default`, and what else is a problem refers to the same answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use utoipa::openapi::header::Header;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{
    Components, Content, OpenApi, PathItem, Ref, RefOr, Response, ResponseBuilder, Schema,
};
use utoipa::{Number, PartialSchema, ToSchema};

use crate::answer::problem::MEDIA_TYPE;
use api::problem::Problem;

/// The name of the problem in the components.
const PROBLEM: &str = "Problem";

/// A part of an operation, which may be equal to a part of another one.
struct Part<'o, T> {
    place: &'o mut RefOr<T>,
    /// The name in the components, where no other part has it.
    name: String,
    operation: String,
}

/// The statuses of each operation whose problem is that of every operation.
pub type Common = HashMap<&'static str, BTreeSet<String>>;

/// Shares the equal parts of all operations.
pub fn share(openapi: &mut OpenApi, common: &Common) {
    let mut operations: Vec<&mut Operation> =
        openapi.paths.paths.values_mut().flat_map(of_path).collect();
    let components = openapi.components.get_or_insert_default();
    let Components {
        schemas,
        parameters,
        responses,
        headers,
        links,
        ..
    } = components;
    for operation in &mut operations {
        share_problems(operation, common);
    }
    schemas.values_mut().for_each(without_zero);
    responses.insert(PROBLEM.to_owned(), problem().into());
    headers.extend(shared(
        "headers",
        parts_of_answers(&mut operations, |answer| &mut answer.headers),
    ));
    links.extend(shared(
        "links",
        parts_of_answers(&mut operations, |answer| &mut answer.links),
    ));
    parameters.extend(shared("parameters", parameters_of(&mut operations)));
}

fn of_path(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        put,
        post,
        delete,
        patch,
        ..
    } = path;
    [get, put, post, delete, patch].into_iter().flatten()
}

/// The fields or the links of all answers.
fn parts_of_answers<'o, T>(
    operations: &'o mut [&mut Operation],
    parts: impl Fn(&'o mut Response) -> &'o mut BTreeMap<String, RefOr<T>>,
) -> Vec<Part<'o, T>> {
    let mut found = Vec::new();
    for operation in operations {
        let id = name_of(operation);
        for answer in operation.responses.responses.values_mut() {
            let RefOr::T(answer) = answer else { continue };
            for (name, place) in parts(answer) {
                found.push(Part {
                    place,
                    name: name.clone(),
                    operation: id.clone(),
                });
            }
        }
    }
    found
}

/// Lets the problems of an operation refer to the one in the components. Those that every operation can have
/// become its answer `default`.
fn share_problems(operation: &mut Operation, common: &Common) {
    let id = name_of(operation);
    let answers = &mut operation.responses.responses;
    let statuses = common.get(id.as_str()).into_iter().flatten();
    let is_common = statuses.filter(|status| answers.remove(*status).is_some());
    let has_common = is_common.count() > 0;
    let reference = || Ref::new(format!("#/components/responses/{PROBLEM}"));
    for answer in answers.values_mut() {
        if let RefOr::T(own) = &*answer
            && own.headers.is_empty()
            && own.content == problem().content
        {
            let mut reference = reference();
            reference.description = own.description.clone();
            *answer = RefOr::Ref(reference);
        }
    }
    if has_common {
        answers.insert("default".to_owned(), RefOr::Ref(reference()));
    }
}

/// Leaves out that a number without a greatest value is not negative: that is so of all numbers that count.
fn without_zero(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            let is_zero = |it: &Number| {
                matches!(it, Number::Int(0) | Number::UInt(0)) || *it == Number::Float(0.0)
            };
            if object.maximum.is_none() && object.minimum.as_ref().is_some_and(is_zero) {
                object.minimum = None;
            }
            object.properties.values_mut().for_each(without_zero);
        }
        Schema::AllOf(all) => all.items.iter_mut().for_each(without_zero),
        _ => {}
    }
}

/// A problem of any kind.
fn problem() -> Response {
    let content = Content::new(Some(Ref::from_schema_name(Problem::name())));
    let field = |schema: RefOr<Schema>, what: &str| {
        let header = Header::builder().schema(Some(schema));
        header.description(Some(what)).build()
    };
    ResponseBuilder::new()
        .description(
            "A problem. Every operation can answer 400, 401, 403, 422, 429 and 503, with a body also \
             408, 413 and 415, with a name or an id also 404, with `If-Match` also 412, and 410 where \
             entries were archived. The description of this document says when.",
        )
        .header(
            "Retry-After",
            field(u64::schema(), "Seconds to wait before the next try, if that is known."),
        )
        .header("WWW-Authenticate", field(String::schema(), "With 401: `Bearer`."))
        .content(MEDIA_TYPE, content)
        .build()
}

fn parameters_of<'o>(operations: &'o mut [&mut Operation]) -> Vec<Part<'o, Parameter>> {
    let mut found = Vec::new();
    for operation in operations {
        let id = name_of(operation);
        for place in operation.parameters.iter_mut().flatten() {
            let RefOr::T(parameter) = &*place else {
                continue;
            };
            let name = match parameter.parameter_in {
                ParameterIn::Path => format!("{}_in_path", parameter.name),
                _ => parameter.name.clone(),
            };
            found.push(Part {
                name,
                place,
                operation: id.clone(),
            });
        }
    }
    found
}

fn name_of(operation: &Operation) -> String {
    operation.operation_id.clone().unwrap_or_default()
}

/// Replaces parts that are equal to other ones by references. Returns these parts by their names.
fn shared<T: Serialize>(folder: &str, parts: Vec<Part<'_, T>>) -> BTreeMap<String, RefOr<T>> {
    let text = |part: &Part<'_, T>| serde_json::to_string(part.place).expect("a part is JSON");
    let mut counts: HashMap<String, usize> = HashMap::new();
    for part in &parts {
        *counts.entry(text(part)).or_default() += 1;
    }
    let mut names: HashMap<String, String> = HashMap::new();
    let mut found = BTreeMap::new();
    for part in parts {
        let text = text(&part);
        if counts[&text] == 1 {
            continue;
        }
        let name = names.entry(text).or_insert_with(|| {
            let name = in_components(&part.name);
            if found.contains_key(&name) {
                format!("{name}_of_{}", part.operation)
            } else {
                name
            }
        });
        let reference = Ref::new(format!("#/components/{folder}/{name}"));
        let whole = std::mem::replace(part.place, RefOr::Ref(reference));
        found.entry(name.clone()).or_insert(whole);
    }
    found
}

/// A name with the characters that the names of components may have (OpenAPI 3.1, "Components Object").
fn in_components(name: &str) -> String {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    name.chars().filter(|it| is_allowed(*it)).collect()
}
