//! The specification: the file, the code and the routes agree.

mod examples;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use perdiem::domain::limit::shape::LIMITS_MOST;
use perdiem::domain::tiers::TIERS_MOST;
use serde_json::Value;

use crate::house::files_below;
use crate::support::app::{Answer, App, Stack};
use crate::support::operations::{OPEN, Operation, is_at, operations, specification};

/// Every object in a document, with its place.
fn objects<'a>(value: &'a Value, place: String, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            found.push((place.clone(), value));
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                objects(member, format!("{place}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, format!("{place}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_file_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.yaml");
    let file = fs::read_to_string(path).unwrap_or_default();
    let code = perdiem::http::specification_yaml();
    let difference = file
        .lines()
        .zip(code.lines())
        .position(|(old, new)| old != new);
    assert!(
        file == code,
        "openapi.yaml is out of date (line {}): run `cargo run -- openapi > openapi.yaml`",
        difference.map_or(file.lines().count(), |line| line + 1),
    );
}

/// What is true of many operations is said once, in `src/http/docs/openapi.md` or in the components.
#[test]
fn the_file_says_each_thing_once() {
    let file = perdiem::http::specification_yaml();
    assert!(file.len() < 233_000, "{} bytes", file.len());
    let specification: Value = yaml_serde::from_str(&file).expect("YAML");
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    for (place, object) in &found {
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            let whole = specification.pointer(&reference[1..]);
            assert!(whole.is_some(), "{place}: {reference}");
        }
    }
    // Every problem is the one in the components, but for the denial.
    let is_problem = |object: &&Value| object.get("application/problem+json").is_some();
    let problems = found.iter().map(|(_, object)| *object);
    assert_eq!(problems.filter(is_problem).count(), 2);
}

/// The table of routes in the code, compared with the paths and methods of the specification.
#[test]
fn every_route_is_specified() {
    let table = include_str!("../../src/http/lib.rs");
    let mut routes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let entries = table
        .split("at(")
        .filter_map(|rest| rest.trim_start().strip_prefix('"'));
    for entry in entries {
        let (path, rest) = entry.split_once('"').expect("a path");
        // HEAD exists for every GET and is not specified.
        let methods = ["get", "post", "put", "patch", "delete"].into_iter();
        let methods = methods.filter(|method| rest.contains(&format!(".{method}(")));
        let methods = methods.map(str::to_owned).collect();
        routes.insert(path.to_owned(), methods);
    }
    // The pages of the documentation, and what leads to them, are no interface.
    for path in ["/", "/docs/{file}"] {
        assert!(routes.remove(path).is_some(), "{path}");
    }
    let mut specified: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Operation { path, method, .. } in operations() {
        let method = method.as_str().to_lowercase();
        specified.entry(path).or_default().insert(method);
    }
    assert_eq!(routes, specified);
}

#[test]
fn every_operation_is_described() {
    let specification = specification();
    let tags = specification["tags"].as_array().expect("tags");
    let tags: BTreeSet<&str> = tags.iter().filter_map(|tag| tag["name"].as_str()).collect();
    let mut ids = BTreeSet::new();
    for Operation {
        method,
        path,
        said: operation,
    } in operations()
    {
        let place = format!("{method} {path}");
        let id = operation["operationId"].as_str().expect("an id");
        assert!(
            ids.insert(id.to_owned()),
            "{place}: the id {id} is another operation's too"
        );
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|text| text.ends_with('.')),
            "{place}"
        );
        let own = operation["tags"].as_array().expect("tags");
        assert!(
            own.iter()
                .any(|tag| tags.contains(tag.as_str().unwrap_or_default())),
            "{place}"
        );
        let responses = operation["responses"].as_object().expect("responses");
        let is_open = OPEN.contains(&path.as_str());
        assert_eq!(!is_open, responses.contains_key("401"), "{place}");
        assert_eq!(is_open, operation.get("security").is_some(), "{place}");
        // Every key may read the metrics.
        let has_rights = !is_open && path != "/metrics";
        assert_eq!(has_rights, responses.contains_key("403"), "{place}");
        for (status, response) in responses {
            let description = response["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{place}: {status}");
            let content = response["content"].as_object().expect("content");
            let is_problem = content.contains_key("application/problem+json");
            let is_fault = status.starts_with(['4', '5']) && path != "/readyz";
            assert_eq!(is_problem, is_fault, "{place}: {status}");
        }
        // Every template in the path is a parameter, and every path parameter is a template.
        let parts: BTreeSet<&str> = path
            .split('{')
            .skip(1)
            .filter_map(|part| part.split('}').next())
            .collect();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters: BTreeSet<&str> = parameters
            .filter(|parameter| parameter["in"] == "path")
            .inspect(|parameter| assert_eq!(parameter["required"], true, "{place}"))
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(parts, parameters, "{place}");
    }
}

#[test]
fn every_link_leads_to_an_operation() {
    let operations = operations();
    let links = operations.iter().flat_map(|operation| {
        let responses = operation.said["responses"].as_object().expect("responses");
        let links = responses
            .values()
            .filter_map(|one| one["links"].as_object());
        links.flat_map(|links| links.values())
    });
    let mut count = 0;
    for link in links {
        let is_target = |one: &&Operation| one.said["operationId"] == link["operationId"];
        let target = operations
            .iter()
            .find(is_target)
            .expect("the operation of a link");
        let taken = target.said["parameters"].as_array().expect("parameters");
        for name in link["parameters"].as_object().expect("parameters").keys() {
            assert!(
                taken.iter().any(|parameter| parameter["name"] == **name),
                "{} takes no {name}",
                link["operationId"]
            );
        }
        count += 1;
    }
    assert!(count > 5, "{count}");
}

/// The operations to which no answer leads: a client knows what they take, or reads it in another way.
const NOT_REACHED: [&str; 10] = [
    "erase_subject",
    "get_export",
    "get_log_tile",
    "list_denials",
    "prove_change",
    "prove_grant",
    "put_block",
    "put_override",
    "put_policy",
    "put_tier",
];

#[test]
fn every_operation_is_reached() {
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    let links = found.iter().filter(|(place, _)| place.contains("/links/"));
    let reached: BTreeSet<&str> = links
        .filter_map(|(_, link)| link["operationId"].as_str())
        .collect();
    for operation in operations().iter().filter(|it| it.path.contains('{')) {
        let id = operation.said["operationId"].as_str().expect("an id");
        assert_ne!(
            reached.contains(id),
            NOT_REACHED.contains(&id),
            "let {id} follow an answer that names what it takes (`follows`), or list it here"
        );
    }
}

/// The operations for which people use a command, so that no document has their URL.
const BY_COMMAND: [&str; 12] = [
    "/v1/changes/{revision}/proof",
    "/v1/grants/{id}/proof",
    "/v1/keys/{id}",
    "/v1/log/checkpoint",
    "/v1/log/tile/{tile}",
    "/v1/policies",
    "/v1/policies/{policy}/backtest",
    "/v1/policies/{policy}/overrides",
    "/v1/seals",
    "/v1/seals/consistency",
    "/v1/seals/latest",
    "/v1/subjects/{subject}/erasure",
];

/// The paths of `/v1` that a text names, also with other names or examples in the place of a name. But `/v1/keys/me`
/// is no example of `/v1/keys/{id}`, because it is a path itself.
fn named_in(text: &str) -> BTreeSet<String> {
    let paths: BTreeSet<String> = operations().into_iter().map(|it| it.path).collect();
    let is_end = |it: char| it.is_whitespace() || "`?\"')|,".contains(it);
    let places = text.match_indices("/v1/").map(|(place, _)| &text[place..]);
    let urls: BTreeSet<&str> = places
        .map(|place| place.split(is_end).next().unwrap_or_default())
        .collect();
    let named = |path: &String| {
        let mut urls = urls.iter();
        urls.any(|url| url == path || is_at(url, path) && !paths.contains(*url))
    };
    let of_api = paths.iter().filter(|path| path.starts_with("/v1/"));
    of_api.filter(|path| named(path)).cloned().collect()
}

#[test]
fn every_operation_is_in_a_document() {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let texts = ["admins.md", "auditors.md", "claims.md", "reconciliation.md"];
    let texts = texts.map(|name| fs::read_to_string(documents.join(name)).expect("a text"));
    let named = named_in(&texts.concat());
    for operation in operations().iter().filter(|it| it.path.starts_with("/v1/")) {
        let path = operation.path.as_str();
        assert_ne!(
            named.contains(path),
            BY_COMMAND.contains(&path),
            "write of {path} in the document of its readers, or list it here"
        );
    }
}

/// Apart from the tests that go through lists of all operations.
#[test]
fn every_path_has_a_test_of_its_own() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let lists = ["wire.rs", "specification.rs", "operations.rs", "lists.rs"];
    let files = files_below(&tests).into_iter();
    let own = files.filter(|file| !lists.iter().any(|list| file.ends_with(list)));
    let texts: Vec<String> = own
        .filter_map(|file| fs::read_to_string(tests.join(file)).ok())
        .collect();
    let named = named_in(&texts.concat());
    for operation in operations().iter().filter(|it| it.path.starts_with("/v1/")) {
        assert!(named.contains(&operation.path), "{}", operation.path);
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    let mut used = BTreeSet::new();
    for (place, object) in &found {
        let Some(reference) = object.get("$ref").and_then(Value::as_str) else {
            continue;
        };
        let pointer = reference
            .strip_prefix('#')
            .expect("a reference into this document");
        assert!(
            specification.pointer(pointer).is_some(),
            "{place}: {reference}"
        );
        used.insert(pointer.to_owned());
    }
    let schemas = specification["components"]["schemas"]
        .as_object()
        .expect("schemas");
    for name in schemas.keys() {
        let pointer = format!("/components/schemas/{name}");
        assert!(used.contains(&pointer), "nothing refers to {name}");
    }
    for requirement in specification["security"].as_array().expect("security") {
        for scheme in requirement.as_object().expect("schemes").keys() {
            let schemes = &specification["components"]["securitySchemes"];
            assert!(schemes.get(scheme).is_some(), "{scheme}");
        }
    }
}

/// A field whose description begins with its permitted words also has them as an enum.
#[test]
fn a_choice_of_words_is_an_enum() {
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    for (place, schema) in found {
        let description = schema["description"].as_str().unwrap_or_default();
        let is_choice = description.strip_prefix('`').is_some_and(|rest| {
            let (_, after) = rest.split_once('`').unwrap_or_default();
            [", `", " or `", ": "]
                .iter()
                .any(|next| after.starts_with(next))
        });
        let is_free = match &schema["type"] {
            Value::Array(kinds) => kinds.contains(&"string".into()),
            kind => kind == "string",
        };
        assert!(
            !is_choice || !is_free || schema.get("enum").is_some(),
            "{place}: {description}"
        );
    }
}

/// Every required field exists, and every example has the type of its field.
#[test]
fn every_schema_agrees_with_itself() {
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    let mut examples = 0;
    for (place, schema) in found {
        // The members of an example are not those of a schema.
        if place.contains("/example") {
            continue;
        }
        if let (Some(required), Some(properties)) = (
            schema.get("required").and_then(Value::as_array),
            schema.get("properties"),
        ) {
            for name in required.iter().filter_map(Value::as_str) {
                assert!(properties.get(name).is_some(), "{place} requires {name}");
            }
        }
        let (Some(example), Some(kind)) = (schema.get("example"), schema.get("type")) else {
            continue;
        };
        let kinds: Vec<&str> = match kind {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        let own = match example {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        assert!(kinds.contains(&own), "{place}: {example} is no {kinds:?}");
        examples += 1;
    }
    assert!(examples > 20, "{examples}");
}

/// The attributes of a schema take no constant, so the number of limits is written there again.
#[test]
fn the_number_of_limits_is_the_one_that_is_checked() {
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    let bodies = found.iter().filter(|(place, _)| {
        place.starts_with("/components/schemas/") && place.ends_with("Body/properties/limits")
    });
    let bounds: Vec<_> = bodies
        .filter_map(|(_, limits)| limits.get("maxItems"))
        .collect();
    assert_eq!(bounds, [LIMITS_MOST, LIMITS_MOST, LIMITS_MOST]);
    let tiers = &specification["components"]["schemas"]["PolicyBody"]["properties"]["tiers"];
    assert_eq!(tiers["maxItems"], TIERS_MOST);
}

/// No sentence lists the kinds of entries: such a list in the specification, a page or the help of the command
/// line would lack the next kind. The specification has their words as an enum.
#[test]
fn no_sentence_lists_the_kinds_of_entries() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let specification = specification();
    let mut found = Vec::new();
    objects(&specification, String::new(), &mut found);
    let described = found.iter().filter_map(|(place, object)| {
        let description = object.get("description")?.as_str()?;
        Some((place.clone(), description.to_owned()))
    });
    let pages = fs::read_dir(root.join("docs")).expect("the pages");
    let pages = pages.map(|entry| entry.expect("a page").path());
    let files = pages.chain([root.join("src/cli/history.rs")]);
    let read = files.filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.display().to_string(), text))
    });
    let mut sentences = 0;
    for (place, text) in described.chain(read) {
        let text = text.replace("///", " ").replace('_', " ");
        for sentence in text.split(['.', '|', ';']) {
            sentences += 1;
            let words: Vec<&str> = sentence.split_whitespace().collect();
            let sentence = words.join(" ").to_lowercase();
            let is_list = ["confirmation", "lapse", "adjustment"]
                .into_iter()
                .all(|word| sentence.contains(word));
            assert!(!is_list, "{place}: {sentence}");
        }
    }
    assert!(sentences > 1000, "{sentences}");
}

/// The example of each body is a body that the operation takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_has_an_example_that_is_taken() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let specification = specification();
    for operation in operations() {
        let schema = &operation.said["requestBody"]["content"]["application/json"]["schema"];
        let Some(reference) = schema["$ref"].as_str() else {
            continue;
        };
        let schema = specification.pointer(&reference[1..]).expect("a schema");
        let example = schema["example"].clone();
        assert!(example.is_object(), "{reference} has no example");
        let request = app.request(operation.method.clone(), &operation.filled());
        let answer = Answer::of(request.json(&example)).await;
        // One of the examples blocks the subject of the others.
        let status = answer.status.as_u16();
        let is_taken = ![400, 415, 422].contains(&status) && status < 500;
        // Only the ledger can write a proposal.
        let is_foreign = format!("{answer:?}").contains("this is no proposal of this ledger");
        // The example of a policy has a calendar of its own.
        let is_foreign = is_foreign || format!("{answer:?}").contains("write calendar subject");
        let place = format!("{} {}", operation.method, operation.path);
        assert!(is_taken || is_foreign, "{place}: {answer:?}");
    }
}

#[test]
fn every_operation_has_prose() {
    for operation in operations() {
        let prose = operation.said["description"].as_str().unwrap_or_default();
        let is_more = !prose.is_empty() && !prose.starts_with("Roles:");
        assert!(is_more, "{} {}", operation.method, operation.path);
    }
}
