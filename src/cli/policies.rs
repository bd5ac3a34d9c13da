//! How policies are found and shown.

use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ServerArgs;
use super::client::{read, segment, show};
use super::difference::in_one_line;
use super::key_names::KeyNames;
use super::local::LocalTime;
use api::limit_text::limits_in_line;
use api::limits::in_percent;
use api::policies::PolicyAnswer;
use api::tiers::tiers_in_line;
use domain::keeping::KEPT_DAYS;

#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// The policy's name
    pub policy: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// The path of a policy.
pub fn path_of(policy: &str) -> String {
    format!("/v1/policies/{}", segment(policy))
}

/// Shows a policy, and writes the warnings about it to standard error.
pub fn show_with_warnings(server: &ServerArgs, policy: &Value) -> anyhow::Result<ExitCode> {
    let shown = show(server, policy, |policy| print_policy(server, policy))?;
    let WarnedPolicy { warnings } = read(policy)?;
    tell_warnings(&warnings);
    Ok(shown)
}

/// The warnings of a policy, also where the policy is shown as it came.
#[derive(Serialize, Deserialize)]
struct WarnedPolicy {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Writes the warnings about a policy to standard error.
pub fn tell_warnings(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

pub fn print_policy(server: &ServerArgs, policy: &PolicyAnswer) {
    let version = policy.version;
    let later = policy.in_force_version.filter(|it| *it != version);
    let begins = later.map(|in_force| {
        let from = LocalTime::new(server, &policy.time_zone).show(policy.effective_at);
        format!("  (from {from}; until then version {in_force})")
    });
    let reason = policy.pause.as_ref().and_then(|it| it.reason.as_ref());
    let pause = match reason {
        Some(reason) => format!("  (paused: {reason})"),
        None if policy.paused => "  (paused)".to_owned(),
        None => String::new(),
    };
    let archived = if policy.archived { "  (archived)" } else { "" };
    println!(
        "{:<24} version {version:<4} {:<24} {}{pause}{}{archived}",
        policy.name,
        policy.time_zone,
        limits_in_line(&policy.limits),
        begins.unwrap_or_default(),
    );
}

/// Prints the settings that a line has no room for.
pub fn print_settings(server: &ServerArgs, policy: &PolicyAnswer, names: &KeyNames) {
    let local = LocalTime::new(server, &policy.time_zone);
    let instant = |at: Option<_>| at.map_or("none".to_owned(), |at| local.show(at));
    let reason = policy.reason.as_deref().unwrap_or_default();
    let changed = format!(
        "{} by {}: {}",
        local.show(policy.changed_at),
        names.show(&policy.changed_by),
        in_one_line(reason)
    );
    for (name, value) in [
        ("description", in_one_line(&policy.description)),
        ("day starts at", policy.day_starts_at.clone()),
        ("week starts on", policy.week_starts_on.to_string()),
        ("calendar", policy.calendar.to_string()),
        ("active from", instant(policy.active_from)),
        ("active until", instant(policy.active_until)),
        ("mode", policy.mode.to_string()),
        ("durability", policy.durability.to_string()),
        ("on ledger outage", policy.on_ledger_outage.to_string()),
        (
            "warn at",
            in_percent(&policy.warn_at).unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "idempotency days",
            policy.idempotency_days.unwrap_or(KEPT_DAYS).to_string(),
        ),
        (
            "tiers",
            tiers_in_line(&policy.tiers).unwrap_or_else(|| "none".to_owned()),
        ),
        ("total", limits_in_line(&policy.total)),
        ("effective", local.show(policy.effective_at)),
        ("changed", changed),
    ] {
        println!("  {name:<17} {value}");
    }
}
