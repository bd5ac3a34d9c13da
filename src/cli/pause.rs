//! Commands that pause, resume and archive a policy.

use std::process::ExitCode;

use clap::Args;
use reqwest::{Method, RequestBuilder};

use super::ServerArgs;
use super::client::{call, request};
use super::condition::ConditionArgs;
use super::policies::{path_of, show_with_warnings};
use api::policies::PauseBody;

#[derive(Debug, Args)]
pub struct StopArgs {
    /// The policy's name
    policy: String,

    /// Reason of the change
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

/// Pauses or resumes a policy. Nothing else is changed.
pub async fn pause(args: StopArgs, paused: bool) -> anyhow::Result<ExitCode> {
    let path = format!("{}/pause", path_of(&args.policy));
    let request = if paused {
        let body = PauseBody {
            reason: Some(args.reason.clone()),
        };
        request(&args.server, Method::PUT, &path)?.json(&body)
    } else {
        let request = request(&args.server, Method::DELETE, &path)?;
        request.query(&[("reason", &args.reason)])
    };
    send(&args, request).await
}

pub async fn archive(args: StopArgs) -> anyhow::Result<ExitCode> {
    let request = request(&args.server, Method::DELETE, &path_of(&args.policy))?;
    let request = request.query(&[("reason", &args.reason)]);
    send(&args, request).await
}

async fn send(args: &StopArgs, change: RequestBuilder) -> anyhow::Result<ExitCode> {
    let policy = call(args.condition.on(change)).await?;
    let shown = show_with_warnings(&args.server, &policy)?;
    args.condition.tell(&args.server);
    Ok(shown)
}
