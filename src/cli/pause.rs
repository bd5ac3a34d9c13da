//! Commands that stop a policy, and let it go on.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::ServerArgs;
use super::client::{call, request, segment};
use super::local::LocalTime;
use super::policies::show;

/// What a policy answers with that it can be put with.
const RULE: [&str; 10] = [
    "description",
    "time_zone",
    "limits",
    "day_starts_at",
    "week_starts_on",
    "active_from",
    "active_until",
    "mode",
    "durability",
    "on_ledger_outage",
];

#[derive(Debug, Args)]
pub struct StopArgs {
    /// The policy's name
    policy: String,

    /// Why
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// Pauses a policy, or resumes it. Nothing else is changed, and nothing that somebody else
/// changes meanwhile is overwritten.
pub async fn pause(args: StopArgs, paused: bool) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let policy = call(request(&args.server, Method::GET, &path)?).await?;
    if policy["in_force_version"] != policy["version"] {
        bail!(
            "version {} waits until {}, and would be lost: put the policy as it is to be",
            policy["version"],
            LocalTime::new(&policy["time_zone"]).show(&policy["effective_at"])
        );
    }
    let fields = RULE.map(|name| (name.to_owned(), policy[name].clone()));
    let mut body = Value::Object(fields.into_iter().collect());
    body["paused"] = json!(paused);
    body["reason"] = json!(args.reason);
    let request = request(&args.server, Method::PUT, &path)?
        .header("If-Match", format!("\"{}\"", policy["version"]))
        .json(&body);
    let policy = call(request).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}

/// Archives a policy.
pub async fn archive(args: StopArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let request = request(&args.server, Method::DELETE, &path)?;
    let policy = call(request.query(&[("reason", &args.reason)])).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}
