//! The commands about blocks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::ServerArgs;
use super::bulk::{BulkArgs, ONE};
use super::client::{self, all_items, call, request, segment, show_all};
use super::condition::ConditionArgs;
use super::csv_lines::CsvColumn;
use super::difference::{before_change, print_changes};
use super::exception_file::{ExceptionLine, put_lines, run_of};
use super::local::{LocalTime, present};
use super::overrides::{DeleteArgs, ListArgs, SubjectArgs};
use super::times::GivenTime;
use api::blocks::{BlockAnswer, BlockBody};

#[derive(Debug, Subcommand)]
pub enum BlockCommand {
    /// Block a subject, or those of a file: the policy denies each of their claims
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

    /// The subject; with --file, the file names the subjects
    #[arg(group = ONE, required_unless_present = "file", conflicts_with = "file")]
    subject: Option<String>,

    /// Reason of the block; keys with the role `claim` do not see it
    #[arg(long, required_unless_present = "file")]
    reason: Option<String>,

    /// Time at which the block ends [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// CSV file with the columns subject, until and reason; a flag says what the file leaves out
    #[arg(long, conflicts_with = "if_version")]
    file: Option<PathBuf>,

    #[command(flatten)]
    bulk: BulkArgs,

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
    if let Some(file) = &args.file {
        return put_file(&args, file).await;
    }
    let subject = args.subject.unwrap_or_default();
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    let body = BlockBody {
        reason: args.reason,
        until: local.at(present()).instant_text(args.until)?,
    };
    let path = path(&args.policy, &subject);
    let before = before_change(&args.server, &path).await?;
    let request = request(&args.server, Method::PUT, &path)?.json(&body);
    let answer = call(args.condition.on(request)).await?;
    if !args.server.json {
        let name = format!("{} {subject}", args.policy);
        print_changes(&name, before.as_ref(), &answer, &local)?;
    }
    let shown = client::show(&args.server, &answer, |found| print_block(found, &local));
    args.condition.tell(&args.server);
    shown
}

async fn put_file(args: &BlockArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let words = ["blocked", "already blocked"];
    let run = run_of(&args.server, &args.bulk, &args.condition, words);
    let of_all = ExceptionLine {
        until: args.until,
        reason: args.reason.clone(),
        ..ExceptionLine::default()
    };
    let has_reason = args.reason.is_some();
    let columns = [CsvColumn::or_flag("reason", "--reason", has_reason)];
    let list = list_of(&args.policy);
    let body = |line: &ExceptionLine, until| BlockBody {
        reason: line.reason.clone(),
        until,
    };
    put_lines(&run, &args.policy, &list, file, &columns, &of_all, body).await
}

async fn show(args: SubjectArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    client::show(&args.server, &answer, |found| print_block(found, &local))
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let path = format!("{}?limit=1000", list_of(&args.policy));
    let items = all_items(&args.server, &path).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    show_all(&args.server, items, |found| print_block(found, &local))
}

async fn remove(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let request = request(&args.server, Method::DELETE, &path)?;
    args.end(request, "removed").await
}

fn list_of(policy: &str) -> String {
    format!("/v1/policies/{}/blocks", segment(policy))
}

fn path(policy: &str, subject: &str) -> String {
    format!("{}/{}", list_of(policy), segment(subject))
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
