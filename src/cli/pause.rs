//! Commands that pause, resume and archive a policy.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::ServerArgs;
use super::client::{call, request, segment};
use super::local::LocalTime;
use super::policies::show;

/// The fields of a policy's answer that a `PUT` takes.
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

    /// Reason of the change
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// Pauses or resumes a policy. Nothing else is changed. A change that somebody else makes meanwhile
/// is not overwritten.
pub async fn pause(args: StopArgs, paused: bool) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let policy = call(request(&args.server, Method::GET, &path)?).await?;
    if policy["in_force_version"] != policy["version"] {
        bail!(
            "version {} takes effect at {} and would be lost: repeat all its settings with \
            `perdiem policy put`",
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

pub async fn archive(args: StopArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let request = request(&args.server, Method::DELETE, &path)?;
    let policy = call(request.query(&[("reason", &args.reason)])).await?;
    show(&args.server, &policy);
    Ok(ExitCode::SUCCESS)
}
