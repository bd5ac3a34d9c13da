//! The commands about overrides.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::{Method, RequestBuilder};

use super::ServerArgs;
use super::bulk::{BulkArgs, ONE};
use super::client::{self, all_items, call, request, segment, show_all};
use super::condition::ConditionArgs;
use super::csv_lines::CsvColumn;
use super::difference::{before_change, print_changes};
use super::exception_file::{ExceptionLine, put_lines, run_of};
use super::local::{LocalTime, present};
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

#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// The policy's name
    pub policy: String,

    /// The subject
    pub subject: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// The policy's name
    pub policy: String,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The policy's name
    pub policy: String,

    /// The subject
    pub subject: String,

    /// Reason of the change
    #[arg(long)]
    pub reason: String,

    #[command(flatten)]
    pub condition: ConditionArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

pub async fn run(command: OverrideCommand) -> anyhow::Result<ExitCode> {
    match command {
        OverrideCommand::Put(args) => put(args).await,
        OverrideCommand::Show(args) => show(args).await,
        OverrideCommand::List(args) => list(args).await,
        OverrideCommand::Delete(args) => delete(args).await,
    }
}

async fn put(args: PutArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.file {
        return put_file(&args, file).await;
    }
    let subject = args.subject.unwrap_or_default();
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    let body = OverrideBody {
        limits: args.limits.into_iter().map(Object).collect(),
        until: local.at(present()).instant_text(args.until)?,
        reason: args.reason,
    };
    let path = path(&args.policy, &subject);
    let before = before_change(&args.server, &path).await?;
    let request = request(&args.server, Method::PUT, &path)?.json(&body);
    let answer = call(args.condition.on(request)).await?;
    if !args.server.json {
        let name = format!("{} {subject}", args.policy);
        print_changes(&name, before.as_ref(), &answer, &local)?;
    }
    let shown = client::show(&args.server, &answer, |found| print_override(found, &local));
    args.condition.tell(&args.server);
    shown
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
    let list = list_of(&args.policy);
    let body = |line: &ExceptionLine, until| OverrideBody {
        limits: line.limits.iter().cloned().map(Object).collect(),
        until,
        reason: line.reason.clone(),
    };
    put_lines(&run, &args.policy, &list, file, &columns, &of_all, body).await
}

async fn show(args: SubjectArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let answer = call(request(&args.server, Method::GET, &path)?).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    client::show(&args.server, &answer, |found| print_override(found, &local))
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let path = format!("{}?limit=1000", list_of(&args.policy));
    let items = all_items(&args.server, &path).await?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    show_all(&args.server, items, |found| print_override(found, &local))
}

async fn delete(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let path = path(&args.policy, &args.subject);
    let request = request(&args.server, Method::DELETE, &path)?;
    args.end(request, "deleted").await
}

impl DeleteArgs {
    /// Sends the request that ends an exception.
    pub async fn end(&self, request: RequestBuilder, done: &str) -> anyhow::Result<ExitCode> {
        let request = request.query(&[("reason", &self.reason)]);
        let answer = call(self.condition.on(request)).await?;
        match (self.server.json, self.condition.dry_run) {
            (true, _) => println!("{answer:#}"),
            (false, false) => println!("{done}"),
            (false, true) => self.condition.tell(&self.server),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list_of(policy: &str) -> String {
    format!("/v1/policies/{}/overrides", segment(policy))
}

fn path(policy: &str, subject: &str) -> String {
    format!("{}/{}", list_of(policy), segment(subject))
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
