//! The operations of the specification, and their rights.

use std::sync::LazyLock;

use reqwest::Method;
use serde_json::Value;

/// The operations that need no key. Every other operation needs one.
pub const OPEN: [&str; 6] = [
    "/livez",
    "/readyz",
    "/openapi.yaml",
    "/docs",
    "/docs/problems",
    "/docs/reference",
];

pub struct Operation {
    pub method: Method,
    /// The path in the specification, with templates.
    pub path: String,
    /// The operation's document in the specification.
    pub said: Value,
}

impl Operation {
    /// The path with its templates filled in, under `benefit`.
    pub fn filled(&self) -> String {
        filled(&self.path)
    }

    /// The operation's parameters in the path or the query.
    pub fn parameters(&self, place: &str) -> Vec<&str> {
        let all = self.said["parameters"].as_array().into_iter().flatten();
        let here = all.filter(|parameter| parameter["in"] == place);
        here.filter_map(|parameter| parameter["name"].as_str())
            .collect()
    }
}

/// A path with its templates filled in, under `benefit`.
pub fn filled(path: &str) -> String {
    let path = path
        .replace("{policy}", "benefit")
        .replace("{subject}", "member-42")
        .replace("{revision}", "1")
        .replace("{tile}", "0/000")
        .replace("{id}", "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42");
    assert!(!path.contains('{'), "fill in {path}");
    path
}

pub fn specification() -> Value {
    serde_json::to_value(perdiem::http::specification()).expect("JSON")
}

pub fn operations() -> Vec<Operation> {
    let specification = specification();
    let mut operations = Vec::new();
    for (path, item) in specification["paths"].as_object().expect("paths") {
        for (method, said) in item.as_object().expect("operations") {
            operations.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                path: path.clone(),
                said: said.clone(),
            });
        }
    }
    assert!(operations.len() > 30);
    operations
}

/// Whether a path without its query is at a URL of the specification.
pub fn is_at(path: &str, pattern: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let segments = path.split('/').count() == pattern.split('/').count();
    let mut pairs = path.split('/').zip(pattern.split('/'));
    segments && pairs.all(|(segment, name)| segment == name || name.starts_with('{'))
}

/// Checks that a test tries every read of subjects that `is_wanted`. A read that is about no subject says so
/// in its description, with `is_about_nobody()`.
pub fn every_read_is_tried(tried: &[String], is_wanted: impl Fn(&Operation) -> bool) {
    let operations = operations();
    for right in rights().iter().filter(|right| right.is_recorded) {
        let is_it = |it: &&Operation| it.path == right.path && it.method == right.method;
        let operation = operations.iter().find(is_it).expect("an operation");
        let is_tried = tried.iter().any(|path| is_at(path, right.path));
        assert!(
            is_tried || !is_wanted(operation),
            "{}: try this read in the list of this test, or say `is_about_nobody()` in its description",
            right.path
        );
    }
}

/// The statuses that every request can get, with a server that refuses or has no time.
const OF_EVERY_REQUEST: [u16; 11] = [400, 401, 404, 405, 408, 413, 415, 422, 429, 431, 503];

/// Checks that an operation says in the specification that it gives answers with this status.
#[track_caller]
pub fn is_said(method: &Method, path: &str, status: u16) {
    static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(operations);
    let is_it = |it: &&Operation| it.method == *method && is_at(path, &it.path);
    let Some(operation) = OPERATIONS.iter().find(is_it) else {
        return;
    };
    let is_said = operation.said["responses"]
        .get(status.to_string())
        .is_some();
    assert!(
        is_said || OF_EVERY_REQUEST.contains(&status),
        "{method} {path}: the description of this operation does not say that it answers {status}"
    );
}

/// The table of rights, as people have reviewed it.
pub const RIGHTS: &str = include_str!("../../../docs/rights.md");
pub const ROLES: [&str; 4] = ["claim", "audit", "support", "admin"];

/// A row of the table.
pub struct Right {
    pub method: Method,
    pub path: &'static str,
    pub roles: Vec<&'static str>,
    /// How the operation keeps a confined key to its policies.
    pub confined: &'static str,
    /// Whether an answer about one named subject is recorded as a read of this subject.
    pub is_recorded: bool,
    pub bounds: &'static str,
}

pub fn rights() -> Vec<Right> {
    let rows = RIGHTS.lines().filter_map(|line| line.strip_prefix("| `"));
    let rights = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (method, path) = cells[0].split_once(' ').expect("a method and a path");
        let mut roles: Vec<&str> = cells[1].split(", ").collect();
        if roles == ["no key"] {
            roles.extend(ROLES);
        }
        Right {
            method: method.parse().expect("a method"),
            path: path.trim_end_matches('`'),
            roles,
            confined: cells[2],
            is_recorded: cells[3] == "recorded",
            bounds: cells[4],
        }
    });
    rights.collect()
}
