//! `perdiem approve`: makes the change of a policy that another admin proposed.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, read, request};
use super::difference::{before_change, in_one_line, print_changes};
use super::local::LocalTime;
use super::policies::{path_of, print_policy, tell_warnings};
use super::refusal::Refused;
use api::approvals::{ApprovalAnswer, ApprovalBody};

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The proposal, as the command that waits printed it; - reads it from standard input
    proposal: String,

    /// Only show what is proposed, and what would change
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn approve(args: ApproveArgs) -> anyhow::Result<ExitCode> {
    let proposal = match args.proposal.as_str() {
        "-" => from_standard_input()?,
        proposal => proposal.to_owned(),
    };
    let server = &args.server;
    // 1. What is proposed, and how is the policy now?
    let tried = send(server, &proposal, true).await?;
    let proposed: ApprovalAnswer = read(&tried)?;
    let before = before_change(server, &path_of(&proposed.policy)).await?;
    // 2. Make the change.
    let answer = if args.dry_run {
        tried
    } else {
        send(server, &proposal, false).await?
    };
    // 3. Show what it changed.
    let approved: ApprovalAnswer = read(&answer)?;
    let result = &approved.result;
    if server.json {
        println!("{answer:#}");
    } else {
        let local = LocalTime::new(server, &result.time_zone);
        tell_proposal(&approved, &local);
        let after = serde_json::to_value(result)?;
        print_changes(&approved.policy, before.as_ref(), &after, &local)?;
        print_policy(server, result);
    }
    tell_warnings(&result.warnings);
    if args.dry_run && !server.json {
        println!("dry run: nothing was changed");
    }
    Ok(ExitCode::SUCCESS)
}

/// The last word of standard input, so that the line `perdiem approve …` can be piped as it is.
fn from_standard_input() -> anyhow::Result<String> {
    let text =
        std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?;
    let last = text.split_whitespace().last();
    let none = "standard input is empty: pipe the proposal into it";
    Ok(last.context(none)?.to_owned())
}

async fn send(server: &ServerArgs, proposal: &str, is_dry_run: bool) -> anyhow::Result<Value> {
    let body = ApprovalBody {
        proposal: proposal.to_owned(),
    };
    let dry_run = is_dry_run.then_some(("dry_run", "true"));
    let request = request(server, Method::POST, "/v1/approvals")?;
    let answer = call(request.query(dry_run.as_slice()).json(&body)).await;
    answer.map_err(|error| match error.downcast_ref::<Refused>() {
        // Here no flag names a version.
        Some(refused) if refused.code() == "precondition-failed" => {
            anyhow!("{}", refused.problem.detail)
        }
        _ => error,
    })
}

fn tell_proposal(approved: &ApprovalAnswer, local: &LocalTime) {
    let ApprovalAnswer {
        policy,
        operation,
        proposed_by,
        proposer,
        ..
    } = approved;
    let reason = approved.reason.as_deref().map(in_one_line);
    println!(
        "{policy}: {operation}, proposed by {proposer} ({proposed_by}) at {}, until {}{}",
        local.show(approved.proposed_at),
        local.show(approved.expires_at),
        reason
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default(),
    );
}
