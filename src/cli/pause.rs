//! Commands that pause, resume and archive a policy.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;

use super::ServerArgs;
use super::client::{call, request, segment};
use super::policies::show_with_warnings;
use api::policies::PauseBody;

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

/// Pauses or resumes a policy. Nothing else is changed.
pub async fn pause(args: StopArgs, paused: bool) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}/pause", segment(&args.policy));
    let request = if paused {
        let body = PauseBody {
            reason: Some(args.reason),
        };
        request(&args.server, Method::PUT, &path)?.json(&body)
    } else {
        let request = request(&args.server, Method::DELETE, &path)?;
        request.query(&[("reason", &args.reason)])
    };
    let policy = call(request).await?;
    show_with_warnings(&args.server, &policy)
}

pub async fn archive(args: StopArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}", segment(&args.policy));
    let request = request(&args.server, Method::DELETE, &path)?;
    let policy = call(request.query(&[("reason", &args.reason)])).await?;
    show_with_warnings(&args.server, &policy)
}
