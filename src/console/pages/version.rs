//! Versions of policies and other things, and how two of them differ.

use maud::{Markup, html};
use serde_json::Value;

use crate::local::Local;
use crate::parts::{policy, reason, subject};
use crate::words;
use api::changes::ChangeAnswer;
use api::overrides::OverrideAnswer;
use api::versions::{self, FieldDifference, list_in_line};

/// The fields that differ between two versions, one of which may not exist.
pub fn differences<'a>(
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    local: &Local,
) -> Vec<FieldDifference<'a>> {
    versions::differences(before, after, |value| in_words(value, local)).collect()
}

fn field_name(field: &str) -> String {
    field.replace('_', " ")
}

/// The value of a field in one line.
fn in_words(value: &Value, local: &Local) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => local.within(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => list_in_line(items, words::limit),
        other => other.to_string(),
    }
}

/// A table of differences.
pub fn difference_table(found: &[FieldDifference<'_>], before: &str, after: &str) -> Markup {
    html! {
        table.differences {
            thead { tr { th scope="col" { "Field" } th scope="col" { (before) } th scope="col" { (after) } } }
            tbody {
                @for (field, old, new) in found {
                    tr {
                        th scope="row" { (field_name(field)) }
                        td data-label=(before) { del { bdi { (old) } } }
                        td data-label=(after) { ins { bdi { (new) } } }
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
    let is_act = !["policy", "override", "tier", "block", "key"].contains(&&*change.kind);
    html! {
        @if is_act { (change.kind) } @else { (verb) " the " (change.kind) }
        @if let Some(name) = &change.policy { " " (policy(name)) }
        @if change.subject.is_some() { " of " (subject(change.subject.as_deref())) }
        @if before.is_some() && !is_act && !found.is_empty() {
            ": "
            @for (index, (field, old, new)) in found.iter().take(3).enumerate() {
                @if index > 0 { "; " }
                (field_name(field)) " " bdi { (old) } " → " bdi { (new) }
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
