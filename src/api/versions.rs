//! What two versions of a policy, an exception or a key have in common.

use serde_json::Value;

use super::limits::LimitAnswer;
use super::read;
use super::tiers::TierAnswer;

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

/// The value of a field that is a list, in one line: limits, tiers or texts.
pub fn list_in_line(items: &[Value], limit_in_words: impl Fn(&LimitAnswer) -> String) -> String {
    let item = |item: &Value| match item {
        Value::String(text) => text.clone(),
        other => {
            let limit = read(other).map(|limit| limit_in_words(&limit));
            let tier = || read(other).map(|tier: TierAnswer| tier.to_string());
            let words = limit.or_else(|_| tier());
            words.unwrap_or_else(|_| other.to_string())
        }
    };
    let words: Vec<String> = items.iter().map(item).collect();
    match items.first() {
        None => "none".to_owned(),
        // A tier has commas of its own.
        Some(first) if first.get("name").is_some() => words.join("; "),
        Some(_) => words.join(", "),
    }
}

/// A field that differs: its name, its old value and its new value.
pub type FieldDifference<'a> = (&'a str, String, String);

/// The fields that differ between two versions, with their values in words. One of the two versions may not exist: it
/// has no value in any field.
pub fn differences<'a>(
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    in_words: impl Fn(&Value) -> String,
) -> impl Iterator<Item = FieldDifference<'a>> {
    let value = move |version: Option<&Value>, field: &str| match version {
        Some(version) => in_words(&version[field]),
        None => in_words(&Value::Null),
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
