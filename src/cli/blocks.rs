//! The commands about blocks.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::ServerArgs;
use super::client::{self, all_items, call, request, segment, show_all};
use super::condition::ConditionArgs;
use super::difference::{before_change, print_changes};
use super::local::{LocalTime, present};
use super::overrides::{DeleteArgs, ListArgs, SubjectArgs};
use super::times::GivenTime;
use api::blocks::{BlockAnswer, BlockBody};

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

    /// Time at which the block ends [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    #[command(flatten)]
    condition: ConditionArgs,

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
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    let body = BlockBody {
        reason: Some(args.reason),
        until: local.at(present()).instant_text(args.until)?,
    };
    let path = path(&args.policy, &args.subject);
    let before = before_change(&args.server, &path).await?;
    let request = request(&args.server, Method::PUT, &path)?.json(&body);
    let answer = call(args.condition.on(request)).await?;
    if !args.server.json {
        let name = format!("{} {}", args.policy, args.subject);
        print_changes(&name, before.as_ref(), &answer, &local)?;
    }
    let shown = client::show(&args.server, &answer, |found| print_block(found, &local));
    args.condition.tell(&args.server);
    shown
}

async fn show(args: SubjectArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    client::show(&args.server, &answer, |found| print_block(found, &local))
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/policies/{}/blocks?limit=1000", segment(&args.policy));
    let items = all_items(&args.server, &path).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    show_all(&args.server, items, |found| print_block(found, &local))
}

async fn remove(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let request = request(&args.server, Method::DELETE, &path)?;
    args.end(request, "removed").await
}

fn path(policy: &str, subject: &str) -> String {
    let policy = segment(policy);
    let subject = segment(subject);
    format!("/v1/policies/{policy}/blocks/{subject}")
}

fn print_block(found: &BlockAnswer, local: &LocalTime) {
    println!(
        "{:<32} version {:<4} blocked: {}{}",
        found.subject.as_deref().unwrap_or("(erased)"),
        found.version,
        found.reason.as_deref().unwrap_or("(erased)"),
        local.show_until(found.until),
    );
}
