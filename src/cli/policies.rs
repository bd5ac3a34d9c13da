//! Policies, one by one.

use std::process::ExitCode;

use anyhow::bail;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{all_items, call, describe, request, segment, send, text};
use super::difference::{before_change, orphans, print_changes};
use super::limits::describe_limits;
use super::local::LocalTime;
use super::{PolicyPutArgs, PolicyShowArgs, ServerArgs};

pub async fn list_policies(args: ServerArgs) -> anyhow::Result<ExitCode> {
    let items = all_items(&args, "/v1/policies?limit=1000").await?;
    if args.json {
        println!("{:#}", Value::Array(items));
    } else {
        items.iter().for_each(print_policy);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn show_policy(args: PolicyShowArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let policy = call(request(&args.server, Method::GET, &path)?).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}

pub async fn put_policy(args: PolicyPutArgs) -> anyhow::Result<ExitCode> {
    let body = json!({
        "description": args.description,
        "time_zone": args.time_zone,
        "limits": args.limits,
        "day_starts_at": args.day_starts_at,
        "week_starts_on": args.week_starts_on,
        "active_from": args.active_from,
        "active_until": args.active_until,
        "mode": args.mode,
        "effective": args.effective,
        "durability": args.durability,
        "on_ledger_outage": args.on_ledger_outage,
        "orphaned_overrides": args.orphaned_overrides,
        "reason": args.reason,
    });
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let before = before_change(&args.server, &path).await?;
    let mut request = request(&args.server, Method::PUT, &path)?.json(&body);
    if let Some(version) = args.if_version {
        request = request.header("If-Match", format!("\"{version}\""));
    }
    let (status, policy) = send(request).await?;
    if !status.is_success() {
        let orphans = orphans(&policy).map(|orphans| format!("; {orphans}"));
        bail!("{}{}", describe(&policy), orphans.unwrap_or_default());
    }
    if !args.server.json {
        print_changes(&args.policy, before.as_ref(), &policy);
    }
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}

pub fn show(server: &ServerArgs, policy: &Value) {
    if server.json {
        println!("{policy:#}");
    } else {
        print_policy(policy);
    }
    tell_warnings(policy);
}

/// Writes the warnings about a policy to standard error.
pub fn tell_warnings(policy: &Value) {
    for warning in policy["warnings"].as_array().into_iter().flatten() {
        eprintln!("warning: {}", text(warning));
    }
}

fn print_policy(policy: &Value) {
    let version = &policy["version"];
    let in_force = &policy["in_force_version"];
    let begins = if in_force.is_null() || in_force == version {
        String::new()
    } else {
        format!(
            "  (from {}; until then version {in_force})",
            LocalTime::new(&policy["time_zone"]).show(&policy["effective_at"])
        )
    };
    println!(
        "{:<24} version {:<4} {:<24} {}{}{begins}",
        text(&policy["name"]),
        version.to_string(),
        text(&policy["time_zone"]),
        describe_limits(&policy["limits"]),
        match policy["pause"]["reason"].as_str() {
            Some(reason) => format!("  (paused: {reason})"),
            None if policy["paused"] == true => "  (paused)".to_owned(),
            None => String::new(),
        },
    );
}
