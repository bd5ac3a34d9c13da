//! Shares equal parts of the specification: a parameter, an answer, a field of an answer or a link that
//! several operations have stands in the components once, and the operations refer to it.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, OpenApi, PathItem, Ref, RefOr, Response};

/// A part of an operation, which may be equal to a part of another one.
struct Part<'o, T> {
    place: &'o mut RefOr<T>,
    /// The name in the components, where no other part has it.
    name: String,
    operation: String,
}

/// Shares the equal parts of all operations.
pub fn share(openapi: &mut OpenApi) {
    let mut operations: Vec<&mut Operation> =
        openapi.paths.paths.values_mut().flat_map(of_path).collect();
    let components = openapi.components.get_or_insert_default();
    let Components {
        parameters,
        responses,
        headers,
        links,
        ..
    } = components;
    // The parts of answers come first: afterwards equal answers are equal still.
    headers.extend(shared(
        "headers",
        parts_of_answers(&mut operations, |answer| &mut answer.headers),
    ));
    links.extend(shared(
        "links",
        parts_of_answers(&mut operations, |answer| &mut answer.links),
    ));
    responses.extend(shared("responses", errors(&mut operations)));
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

/// The answers that are errors. What an operation answers else is its own.
fn errors<'o>(operations: &'o mut [&mut Operation]) -> Vec<Part<'o, Response>> {
    let mut found = Vec::new();
    for operation in operations {
        let id = name_of(operation);
        let answers = operation.responses.responses.iter_mut();
        for (status, place) in answers.filter(|(status, _)| status.starts_with(['4', '5'])) {
            found.push(Part {
                name: format!("answer_{status}"),
                place,
                operation: id.clone(),
            });
        }
    }
    found
}

fn parameters_of<'o>(
    operations: &'o mut [&mut Operation],
) -> Vec<Part<'o, utoipa::openapi::path::Parameter>> {
    let mut found = Vec::new();
    for operation in operations {
        let id = name_of(operation);
        for place in operation.parameters.iter_mut().flatten() {
            let RefOr::T(parameter) = &*place else {
                continue;
            };
            found.push(Part {
                name: parameter.name.clone(),
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
