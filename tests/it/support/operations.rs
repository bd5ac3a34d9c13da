//! The operations of the specification.

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
