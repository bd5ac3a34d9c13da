//! The commands about the tiers of subjects.

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
use api::tiers::{SubjectTierAnswer, SubjectTierBody};

#[derive(Debug, Subcommand)]
pub enum TierCommand {
    /// Put a subject into a tier of the policy, or those of a file
    Put(TierArgs),
    /// Show a subject's tier
    Show(SubjectArgs),
    /// List the subjects that are in a tier of a policy
    List(ListArgs),
    /// Take a subject out of its tier: the policy's own limits apply again
    End(DeleteArgs),
}

#[derive(Debug, Args)]
pub struct TierArgs {
    /// The policy's name
    policy: String,

    /// The subject; with --file, the file names the subjects
    #[arg(group = ONE, required_unless_present = "file", conflicts_with = "file")]
    subject: Option<String>,

    /// The name of one of the policy's tiers
    #[arg(long, value_name = "NAME", required_unless_present = "file")]
    tier: Option<String>,

    /// Time at which the subject leaves the tier [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// Reason of the change; required if the subject is already in a tier
    #[arg(long)]
    reason: Option<String>,

    /// CSV file with the columns subject, tier, until and reason; a flag says what the file leaves out
    #[arg(long, conflicts_with = "if_version")]
    file: Option<PathBuf>,

    #[command(flatten)]
    bulk: BulkArgs,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

const TIERS: ExceptionKind<SubjectTierAnswer> = ExceptionKind {
    list: "tiers",
    print: print_tier,
};

pub async fn run(command: TierCommand) -> anyhow::Result<ExitCode> {
    match command {
        TierCommand::Put(args) => put(args).await,
        TierCommand::Show(args) => TIERS.show(args).await,
        TierCommand::List(args) => TIERS.list(args).await,
        TierCommand::End(args) => TIERS.end(args, "ended").await,
    }
}

async fn put(args: TierArgs) -> anyhow::Result<ExitCode> {
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
    let body = |until| SubjectTierBody {
        tier: args.tier.clone().unwrap_or_default(),
        until,
        reason: args.reason.clone(),
    };
    TIERS.put(target, body).await
}

async fn put_file(args: &TierArgs, file: &Path) -> anyhow::Result<ExitCode> {
    let words = ["put", "already so"];
    let run = run_of(&args.server, &args.bulk, &args.condition, words);
    let of_all = ExceptionLine {
        tier: args.tier.clone(),
        until: args.until,
        reason: args.reason.clone(),
        ..ExceptionLine::default()
    };
    let columns = [
        CsvColumn::or_flag("tier", "--tier", args.tier.is_some()),
        CsvColumn::or_flag("reason", "--reason", true),
    ];
    let list = TIERS.list_of(&args.policy);
    let body = |line: &ExceptionLine, until| SubjectTierBody {
        tier: line.tier.clone().unwrap_or_default(),
        until,
        reason: line.reason.clone(),
    };
    put_lines(&run, &args.policy, &list, file, &columns, &of_all, body).await
}

fn print_tier(found: &SubjectTierAnswer, local: &LocalTime) {
    println!(
        "{:<32} version {:<4} {}{}",
        found.subject.as_deref().unwrap_or("(erased)"),
        found.version,
        found.tier.as_deref().unwrap_or("(ended)"),
        local.show_until(found.until),
    );
}
