//! Policies, one by one.

use std::process::ExitCode;

use anyhow::bail;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{all_items, call, describe, read, request, segment, send, show, show_all};
use super::difference::{before_change, describe_orphans, print_changes};
use super::limits::describe_limits;
use super::local::LocalTime;
use super::{PolicyPutArgs, PolicyShowArgs, ServerArgs};
use api::policies::{PolicyAnswer, PolicyBody};
use api::problem::Problem;
use api::strict::Object;

pub async fn list_policies(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let items = all_items(&args, "/v1/policies?limit=1000").await?;
    show_all(&args, items, print_policy)
}

pub async fn show_policy(args: PolicyShowArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let policy = call(request(&args.server, Method::GET, &path)?).await?;
    show_with_warnings(&args.server, &policy)
}

pub async fn put_policy(args: PolicyPutArgs) -> anyhow::Result<ExitCode> {
    let body = PolicyBody {
        description: args.description,
        time_zone: args.time_zone,
        limits: args.limits.into_iter().map(Object).collect(),
        day_starts_at: args.day_starts_at,
        week_starts_on: args.week_starts_on,
        active_from: args.active_from,
        active_until: args.active_until,
        paused: None,
        mode: args.mode,
        effective: args.effective,
        durability: args.durability,
        on_ledger_outage: args.on_ledger_outage,
        orphaned_overrides: args.orphaned_overrides,
        reason: args.reason,
    };
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let before = before_change(&args.server, &path).await?;
    let mut request = request(&args.server, Method::PUT, &path)?.json(&body);
    if let Some(version) = args.if_version {
        request = request.header("If-Match", format!("\"{version}\""));
    }
    let (status, policy) = send(request).await?;
    if !status.is_success() {
        let orphans = read::<Problem>(&policy)?.orphaned_overrides;
        let orphans = orphans.map(|orphans| format!("; {}", describe_orphans(&orphans)));
        bail!("{}{}", describe(&policy), orphans.unwrap_or_default());
    }
    if !args.server.json {
        print_changes(&args.policy, before.as_ref(), &policy)?;
    }
    show_with_warnings(&args.server, &policy)
}

/// Shows a policy, and writes the warnings about it to standard error.
pub fn show_with_warnings(server: &ServerArgs, policy: &Value) -> anyhow::Result<ExitCode> {
    let shown = show(server, policy, print_policy)?;
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

fn print_policy(policy: &PolicyAnswer) {
    let version = policy.version;
    let later = policy.in_force_version.filter(|it| *it != version);
    let begins = later.map(|in_force| {
        let from = LocalTime::new(&policy.time_zone).show(policy.effective_at);
        format!("  (from {from}; until then version {in_force})")
    });
    let reason = policy.pause.as_ref().and_then(|it| it.reason.as_ref());
    let pause = match reason {
        Some(reason) => format!("  (paused: {reason})"),
        None if policy.paused => "  (paused)".to_owned(),
        None => String::new(),
    };
    println!(
        "{:<24} version {version:<4} {:<24} {}{pause}{}",
        policy.name,
        policy.time_zone,
        describe_limits(&policy.limits),
        begins.unwrap_or_default(),
    );
}
