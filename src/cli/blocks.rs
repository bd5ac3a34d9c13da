//! The commands about blocks.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::ServerArgs;
use super::bulk::{BulkArgs, ONE};
use super::condition::ConditionArgs;
use super::csv_lines::CsvColumn;
use super::exception_file::{ExceptionLine, put_lines, run_of};
use super::exceptions::{DeleteArgs, ExceptionKind, ExceptionTarget, ListArgs, SubjectArgs};
use super::local::LocalTime;
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

const BLOCKS: ExceptionKind<BlockAnswer> = ExceptionKind {
    list: "blocks",
    print: print_block,
};

pub async fn run(command: BlockCommand) -> anyhow::Result<ExitCode> {
    match command {
        BlockCommand::Put(args) => put(args).await,
        BlockCommand::Show(args) => BLOCKS.show(args).await,
        BlockCommand::List(args) => BLOCKS.list(args).await,
        BlockCommand::Remove(args) => BLOCKS.end(args, "removed").await,
    }
}

async fn put(args: BlockArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.file {
        return put_file(&args, file).await;
    }
    let target = ExceptionTarget {
        server: &args.server,
        condition: &args.condition,
        policy: &args.policy,
        subject: args.subject.as_deref().unwrap_or_default(),
        until: args.until,
    };
    let body = |until| BlockBody {
        reason: args.reason.clone(),
        until,
    };
    BLOCKS.put(target, body).await
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
    let list = BLOCKS.list_of(&args.policy);
    let body = |line: &ExceptionLine, until| BlockBody {
        reason: line.reason.clone(),
        until,
    };
    put_lines(&run, &args.policy, &list, file, &columns, &of_all, body).await
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
