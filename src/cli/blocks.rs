//! The commands about blocks.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::ServerArgs;
use super::client::{all_items, call, request, segment};
use super::difference::{before_change, print_changes};
use super::overrides::{DeleteArgs, ListArgs, SubjectArgs, if_version};

#[derive(Debug, Subcommand)]
pub enum BlockCommand {
    /// Block a subject: the policy denies each of its claims
    Put(BlockArgs),
    /// Show a subject's block
    Show(SubjectArgs),
    /// List a policy's blocks
    List(ListArgs),
    /// Remove a subject's block: the policy decides its claims again
    Remove(DeleteArgs),
}

#[derive(Debug, Args)]
pub struct BlockArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    /// Reason of the block; keys with the role `claim` do not see it
    #[arg(long)]
    reason: String,

    /// Instant at which the block ends, such as 2026-12-01T00:00:00Z [default: no end]
    #[arg(long)]
    until: Option<String>,

    /// Change the block only if this is its version
    #[arg(long)]
    if_version: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(command: BlockCommand) -> anyhow::Result<ExitCode> {
    match command {
        BlockCommand::Put(args) => put(args).await,
        BlockCommand::Show(args) => show(args).await,
        BlockCommand::List(args) => list(args).await,
        BlockCommand::Remove(args) => remove(args).await,
    }
}

async fn put(args: BlockArgs) -> anyhow::Result<ExitCode> {
    let body = json!({ "reason": args.reason, "until": args.until });
    let path = path(&args.policy, &args.subject);
    let before = before_change(&args.server, &path).await?;
    let request = request(&args.server, Method::PUT, &path)?.json(&body);
    let answer = call(if_version(request, args.if_version)).await?;
    if !args.server.json {
        let name = format!("{} {}", args.policy, args.subject);
        print_changes(&name, before.as_ref(), &answer);
    }
    print(&args.server, &answer);
    Ok(ExitCode::SUCCESS)
}

async fn show(args: SubjectArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    print(&args.server, &answer);
    Ok(ExitCode::SUCCESS)
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}/blocks?limit=1000", segment(&args.policy));
    let items = all_items(&args.server, &path).await?;
    if args.server.json {
        println!("{:#}", Value::Array(items));
    } else {
        items.iter().for_each(print_block);
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let request = request(&args.server, Method::DELETE, &path)?.query(&[("reason", &args.reason)]);
    let answer = call(if_version(request, args.if_version)).await?;
    if args.server.json {
        println!("{answer:#}");
    } else {
        println!("removed");
    }
    Ok(ExitCode::SUCCESS)
}

fn path(policy: &str, subject: &str) -> String {
    let policy = segment(policy);
    let subject = segment(subject);
    format!("/v1/policies/{policy}/blocks/{subject}")
}

fn print(server: &ServerArgs, found: &Value) {
    if server.json {
        println!("{found:#}");
    } else {
        print_block(found);
    }
}

fn print_block(found: &Value) {
    let until = found["until"].as_str();
    let until = until.map_or(String::new(), |until| format!("  (until {until})"));
    println!(
        "{:<32} version {:<4} blocked: {}{until}",
        found["subject"].as_str().unwrap_or("(erased)"),
        found["version"].to_string(),
        found["reason"].as_str().unwrap_or("(erased)"),
    );
}
