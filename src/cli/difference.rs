//! The differences between two versions, as text.

use chrono::{DateTime, Utc};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, can_try_again, read, request};
use super::local::LocalTime;
use super::orphans::describe_orphans;
use super::refusal::Refused;
use api::limits::LimitAnswer;
use api::orphans::OrphansBody;
use api::versions::{self, FieldDifference, list_in_line};

/// The fields that differ between two versions. One of the two versions may not exist.
pub fn differences<'a>(
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    local: &LocalTime,
) -> impl Iterator<Item = FieldDifference<'a>> {
    versions::differences(before, after, |value| words(value, local))
}

/// A field's value in one line.
fn words(value: &Value, local: &LocalTime) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => local.show_within(&in_one_line(text)),
        Value::Array(items) => list_in_line(items, LimitAnswer::to_string),
        other => other.to_string(),
    }
}

/// A text in one line.
pub fn in_one_line(text: &str) -> String {
    match text {
        "" => "none".to_owned(),
        text if text.contains(char::is_control) => Value::from(text).to_string(),
        text => text.to_owned(),
    }
}

/// A thing as the server has it before a change; `None` if it does not exist or cannot be read.
///
/// # Errors
/// The server does not answer.
pub async fn before_change(server: &ServerArgs, path: &str) -> anyhow::Result<Option<Value>> {
    match call(request(server, Method::GET, path)?).await {
        Err(error) if error.is::<Refused>() && !can_try_again(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// What the versions of policies and exceptions have in common.
#[derive(Serialize, Deserialize)]
struct AnyVersion {
    version: u32,
    /// Of a policy: when the version takes effect, and which one is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    orphaned_overrides: Option<OrphansBody>,
}

impl AnyVersion {
    /// When the version takes effect, if that is told.
    fn effect(&self, local: &LocalTime) -> Option<String> {
        let at = self.effective_at?;
        let is_in_force = self.in_force_version == Some(self.version);
        Some(if is_in_force {
            "now".to_owned()
        } else {
            local.show(at)
        })
    }
}

/// Prints what a change of `name` changed, as `policy apply` does. A new thing has no differences.
pub fn print_changes(
    name: &str,
    before: Option<&Value>,
    after: &Value,
    local: &LocalTime,
) -> anyhow::Result<()> {
    let Some(before) = before else {
        return Ok(());
    };
    let old: AnyVersion = read(before)?;
    let new: AnyVersion = read(after)?;
    if old.version == new.version {
        println!("= {name}");
    }
    for (field, before, after) in differences(Some(before), Some(after), local) {
        println!("~ {name}: {field}: {before} → {after}");
    }
    if let (Some(before), Some(after)) = (old.effect(local), new.effect(local))
        && before != after
    {
        println!("~ {name}: effective: {before} → {after}");
    }
    if let Some(orphans) = new.orphaned_overrides {
        println!("! {name}: {}", describe_orphans(&orphans));
    }
    Ok(())
}
