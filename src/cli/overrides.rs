//! The commands about overrides.

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
use api::limits::maxima;
use api::overrides::{OverrideAnswer, OverrideBody, OverrideLimitBody};
use api::strict::Object;

#[derive(Debug, Subcommand)]
pub enum OverrideCommand {
    /// Create or replace a subject's override, or those of a file
    Put(PutArgs),
    /// Show a subject's override
    Show(SubjectArgs),
    /// List a policy's overrides
    List(ListArgs),
    /// Delete a subject's override: the policy's own limits apply again
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub struct PutArgs {
    /// The policy's name
    policy: String,

    /// The subject; with --file, the file names the subjects
    #[arg(group = ONE, required_unless_present = "file", conflicts_with = "file")]
    subject: Option<String>,

    /// Another max for one of the policy's limits, such as "10 per day". Repeat the option for more
    /// limits
    #[arg(long = "limit", required_unless_present = "file")]
    limits: Vec<OverrideLimitBody>,

    /// Time at which the override ends [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// Reason of the change; required to replace an override
    #[arg(long)]
    reason: Option<String>,

    /// CSV file with the columns subject, limit, until and reason; a flag says what the file leaves out
    #[arg(long, conflicts_with = "if_version")]
    file: Option<PathBuf>,

    #[command(flatten)]
    bulk: BulkArgs,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

const OVERRIDES: ExceptionKind<OverrideAnswer> = ExceptionKind {
    list: "overrides",
    print: print_override,
};

pub async fn run(command: OverrideCommand) -> anyhow::Result<ExitCode> {
    match command {
        OverrideCommand::Put(args) => put(args).await,
        OverrideCommand::Show(args) => OVERRIDES.show(args).await,
        OverrideCommand::List(args) => OVERRIDES.list(args).await,
        OverrideCommand::Delete(args) => OVERRIDES.end(args, "deleted").await,
    }
}

async fn put(args: PutArgs) -> anyhow::Result<ExitCode> {
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
    let body = |until| OverrideBody {
        limits: args.limits.iter().cloned().map(Object).collect(),
        until,
        reason: args.reason.clone(),
    };
    OVERRIDES.put(target, body).await
}

async fn put_file(args: &PutArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let words = ["put", "already so"];
    let run = run_of(&args.server, &args.bulk, &args.condition, words);
    let of_all = ExceptionLine {
        limits: args.limits.clone(),
        until: args.until,
        reason: args.reason.clone(),
        ..ExceptionLine::default()
    };
    let columns = [
        CsvColumn::or_flag("limit", "--limit", !args.limits.is_empty()),
        CsvColumn::or_flag("reason", "--reason", true),
    ];
    let list = OVERRIDES.list_of(&args.policy);
    let body = |line: &ExceptionLine, until| OverrideBody {
        limits: line.limits.iter().cloned().map(Object).collect(),
        until,
        reason: line.reason.clone(),
    };
    put_lines(&run, &args.policy, &list, file, &columns, &of_all, body).await
}

fn print_override(found: &OverrideAnswer, local: &LocalTime) {
    println!(
        "{:<32} version {:<4} {}{}",
        found.subject.as_deref().unwrap_or("(erased)"),
        found.version,
        maxima(&found.limits),
        local.show_until(found.until),
    );
}
