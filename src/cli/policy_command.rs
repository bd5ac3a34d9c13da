//! The commands about policies.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use reqwest::Method;

use super::client::{all_items, call, read, request, show_all};
use super::key_names::KeyNames;
use super::limits::describe_usages;
use super::local::LocalTime;
use super::policies::{PolicyArgs, path_of, print_policy, print_settings, show_with_warnings};
use super::{ServerArgs, apply, backtest, past_versions, pause, policy_changes, versions};
use api::claims::TotalBody;
use api::policies::PolicyAnswer;

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List the policies
    List(ListPoliciesArgs),
    /// Show a policy with all its settings, and the changes that are scheduled
    Show(PolicyArgs),
    /// Create a policy that does not exist yet
    Create(Box<policy_changes::CreateArgs>),
    /// Change some settings of a policy, and keep the others
    Set(Box<policy_changes::SetArgs>),
    /// Create or replace a policy; settings that are left out get their defaults
    Put(Box<policy_changes::CreateArgs>),
    /// List the versions of a policy, newest first: who made them, when and why
    Versions(PolicyArgs),
    /// Show the differences between two versions
    Diff(versions::DiffArgs),
    /// Make an earlier version the newest one again
    Restore(versions::RestoreArgs),
    /// Cancel the changes that are scheduled: the version in force stays in force
    Cancel(versions::CancelArgs),
    /// Print policies as the file that `policy apply` reads
    Export(versions::PolicyExportArgs),
    /// Pause a policy: it grants nothing until it is resumed
    Pause(pause::StopArgs),
    /// Resume a paused policy
    Resume(pause::StopArgs),
    /// Archive a policy: it takes no more claims, its history stays
    Archive(pause::StopArgs),
    /// Create and replace policies from a file
    ///
    /// The file is YAML or JSON. It has one field, `policies`: each policy by its name, with the
    /// fields of PUT /v1/policies/{policy}. A field that is left out gets its default. The command
    /// first shows the differences. If one policy is refused, nothing is changed. A change that
    /// somebody else makes meanwhile is not overwritten. With --dry-run nothing is changed; the
    /// exit code is 0 when nothing would change, and 5 when something would.
    Apply(apply::ApplyArgs),
    /// Show which grants a draft of a policy would have denied
    ///
    /// The draft is a file with the fields of a policy. The file that `policy apply` reads has several drafts: those
    /// that are named are tried, or all whose limits or calendar differ from what is in force. Without --from and
    /// --until the drafts are tried on the last 7 local days of the policy, of which today is the last.
    Backtest(backtest::BacktestArgs),
}

#[derive(Debug, Args)]
pub struct ListPoliciesArgs {
    /// Archived policies too
    #[arg(long)]
    archived: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn run(command: PolicyCommand) -> anyhow::Result<ExitCode> {
    match command {
        PolicyCommand::List(args) => list(args).await,
        PolicyCommand::Show(args) => show_policy(args).await,
        PolicyCommand::Create(args) => policy_changes::create(*args).await,
        PolicyCommand::Set(args) => policy_changes::set(*args).await,
        PolicyCommand::Put(args) => policy_changes::put(*args).await,
        PolicyCommand::Versions(args) => versions::list(args).await,
        PolicyCommand::Diff(args) => versions::diff(args).await,
        PolicyCommand::Restore(args) => versions::restore(args).await,
        PolicyCommand::Cancel(args) => versions::cancel(args).await,
        PolicyCommand::Export(args) => versions::export(args).await,
        PolicyCommand::Pause(args) => pause::pause(args, true).await,
        PolicyCommand::Resume(args) => pause::pause(args, false).await,
        PolicyCommand::Archive(args) => pause::archive(args).await,
        PolicyCommand::Apply(args) => apply::apply(args).await,
        PolicyCommand::Backtest(args) => backtest::backtest(args).await,
    }
}

async fn list(args: ListPoliciesArgs) -> anyhow::Result<ExitCode> {
    let archived = if args.archived { "&archived=true" } else { "" };
    let path = format!("/v1/policies?limit=1000{archived}");
    let items = all_items(&args.server, &path).await?;
    let server = &args.server;
    show_all(server, items, |policy| print_policy(server, policy))
}

/// Shows what is used of the limits that all subjects share, if there are any.
async fn print_total(server: &ServerArgs, policy: &PolicyAnswer) -> anyhow::Result<()> {
    if policy.total.is_empty() || policy.archived {
        return Ok(());
    }
    let path = format!("{}/total", path_of(&policy.name));
    let total: TotalBody = read(&call(request(server, Method::GET, &path)?).await?)?;
    let local = LocalTime::new(server, &total.time_zone);
    let used = describe_usages(&total.total, &local);
    println!("  {:<17} {used}", "used by all");
    Ok(())
}

async fn show_policy(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let policy = call(request(&args.server, Method::GET, &path_of(&args.policy))?).await?;
    let shown = show_with_warnings(&args.server, &policy)?;
    if !args.server.json {
        let policy: PolicyAnswer = read(&policy)?;
        let names = KeyNames::of(&args.server, [&*policy.changed_by]).await?;
        print_settings(&args.server, &policy, &names);
        print_total(&args.server, &policy).await?;
        for version in past_versions::scheduled(&args.server, &policy).await? {
            let local = LocalTime::new(&args.server, &version.time_zone);
            let from = local.show(version.effective_at);
            println!(
                "  scheduled         version {} from {from}",
                version.version
            );
        }
    }
    Ok(shown)
}
