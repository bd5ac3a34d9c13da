//! Versions of policies and other things, and how two of them differ.

use maud::{Markup, html};
use serde_json::Value;

use crate::local::Local;
use crate::parts::{policy, reason, subject};
use crate::words;
use api::changes::ChangeAnswer;
use api::limits::LimitAnswer;
use api::overrides::OverrideAnswer;

/// The fields of a version that the server adds to what somebody wrote.
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

/// A field that differs.
pub struct ChangedField {
    pub field: String,
    pub before: String,
    pub after: String,
}

/// The fields that differ between two versions, one of which may not exist.
pub fn differences(
    before: Option<&Value>,
    after: Option<&Value>,
    local: &Local,
) -> Vec<ChangedField> {
    let fields = after.or(before).and_then(Value::as_object);
    let names = fields.into_iter().flatten().map(|(name, _)| name);
    names
        .filter(|name| !ABOUT_A_VERSION.contains(&name.as_str()))
        .map(|name| {
            let value = |version: Option<&Value>| match version {
                Some(version) => in_words(&version[name.as_str()], local),
                None => "none".to_owned(),
            };
            ChangedField {
                field: name.replace('_', " "),
                before: value(before),
                after: value(after),
            }
        })
        .filter(|difference| difference.before != difference.after)
        .collect()
}

/// The value of a field in one line.
pub fn in_words(value: &Value, local: &Local) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => local.within(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => {
            let item = |item: &Value| match (item, api::read::<LimitAnswer>(item)) {
                (Value::String(text), _) => text.clone(),
                (_, Ok(limit)) => words::limit(&limit),
                (other, Err(_)) => other.to_string(),
            };
            let items: Vec<String> = items.iter().map(item).collect();
            if items.is_empty() {
                "none".to_owned()
            } else {
                items.join(", ")
            }
        }
        other => other.to_string(),
    }
}

/// A table of differences.
pub fn difference_table(found: &[ChangedField], before: &str, after: &str) -> Markup {
    html! {
        table.differences {
            thead { tr { th scope="col" { "Field" } th scope="col" { (before) } th scope="col" { (after) } } }
            tbody {
                @for difference in found {
                    tr {
                        th scope="row" { (difference.field) }
                        td data-label=(before) { del { bdi { (difference.before) } } }
                        td data-label=(after) { ins { bdi { (difference.after) } } }
                    }
                }
            }
        }
    }
}

/// A change in a line, without who made it and when.
pub fn sentence(change: &ChangeAnswer, local: &Local) -> Markup {
    let read = |version: &Option<Box<serde_json::value::RawValue>>| {
        let text = version.as_ref()?.get();
        serde_json::from_str::<Value>(text).ok()
    };
    let before = read(&change.before);
    let after = read(&change.after);
    let found = differences(before.as_ref(), after.as_ref(), local);
    let verb = match (&before, &after) {
        (None, Some(_)) => "created",
        (Some(_), None) => "ended",
        _ => "changed",
    };
    let is_act = !["policy", "override", "block", "key"].contains(&&*change.kind);
    html! {
        @if is_act { (change.kind) } @else { (verb) " the " (change.kind) }
        @if let Some(name) = &change.policy { " " (policy(name)) }
        @if change.subject.is_some() { " of " (subject(change.subject.as_deref())) }
        @if before.is_some() && !is_act && !found.is_empty() {
            ": "
            @for (index, difference) in found.iter().take(3).enumerate() {
                @if index > 0 { "; " }
                (difference.field) " " bdi { (difference.before) } " → " bdi { (difference.after) }
            }
            @if found.len() > 3 { "; and more" }
        }
        @if change.reason.is_some() { " (" (reason(change.reason.as_deref())) ")" }
    }
}

/// The limits of an override, such as `10 per day`.
pub fn maxes(of: &OverrideAnswer) -> String {
    let limit = |limit: &api::limits::OverriddenMax| {
        format!("{} per {}", words::number(limit.max), limit.per)
    };
    let limits: Vec<String> = of.limits.iter().map(limit).collect();
    if limits.is_empty() {
        "ended".to_owned()
    } else {
        limits.join(", ")
    }
}
