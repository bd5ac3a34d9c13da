//! The differences between two versions, as text.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::ServerArgs;
use super::client::{request, send, text};
use super::limits::describe_limit;

/// The fields of a version that the server adds to what was written.
const ABOUT_A_VERSION: [&str; 13] = [
    "changed_at",
    "changed_by",
    "created_at",
    "effective_at",
    "id",
    "in_force_version",
    "name",
    "orphaned_overrides",
    "pause",
    "policy",
    "reason",
    "subject",
    "version",
];

/// A field that differs: its name, its old value and its new value.
pub type FieldDifference<'a> = (&'a str, String, String);

/// The fields that differ between two versions. One of the two versions may not exist.
pub fn differences<'a>(
    before: Option<&'a Value>,
    after: Option<&'a Value>,
) -> impl Iterator<Item = FieldDifference<'a>> {
    let value = |version: Option<&Value>, field: &str| match version {
        Some(version) => words(&version[field]),
        None => words(&Value::Null),
    };
    let fields = after.or(before).and_then(Value::as_object);
    fields
        .into_iter()
        .flatten()
        .map(|(field, _)| field.as_str())
        .filter(|field| !ABOUT_A_VERSION.contains(field))
        .map(move |field| (field, value(before, field), value(after, field)))
        .filter(|(_, before, after)| before != after)
}

/// A field's value in one line.
pub fn words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) if text.contains(char::is_control) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let words = items.iter().map(|item| match item["per"].as_str() {
                Some(_) => describe_limit(item),
                None => text(item).to_owned(),
            });
            words.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// A thing as the server has it before a change; `None` if it does not exist or cannot be read.
///
/// # Errors
/// The server does not answer.
pub async fn before_change(server: &ServerArgs, path: &str) -> anyhow::Result<Option<Value>> {
    let (status, answer) = send(request(server, Method::GET, path)?).await?;
    Ok((status == StatusCode::OK).then_some(answer))
}

/// Prints what a change of `name` changed, as `policy apply` does. A new thing has no differences.
pub fn print_changes(name: &str, before: Option<&Value>, after: &Value) {
    let Some(before) = before else {
        return;
    };
    if before["version"] == after["version"] {
        println!("= {name}");
    }
    for (field, before, after) in differences(Some(before), Some(after)) {
        println!("~ {name}: {field}: {before} → {after}");
    }
    if let Some(orphans) = orphans(after) {
        println!("! {name}: {orphans}");
    }
}

/// The overrides that a change of a policy orphans, in one line; `None` without any.
pub fn orphans(policy: &Value) -> Option<String> {
    let orphaned = &policy["orphaned_overrides"];
    let count = orphaned["count"].as_u64()?;
    let first = orphaned["first"].as_array()?;
    let named = first.iter().map(|orphan| {
        let subject = orphan["subject"].as_str().unwrap_or("(erased)");
        format!("{subject} ({})", words(&orphan["limits"]))
    });
    let named: Vec<String> = named.collect();
    let more = if count > named.len() as u64 {
        ", …"
    } else {
        ""
    };
    let named = named.join(", ");
    Some(format!(
        "overrides without their limit, or beyond its bounds ({count}): {named}{more}"
    ))
}
