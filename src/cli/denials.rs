//! `perdiem denials`: why claims were denied.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{account_path, all_found, request, show, show_all};
use super::limits::describe_usages;
use super::local::{LocalTime, present};
use super::scope::PolicyScope;
use super::times::{GivenDay, GivenTime};
use api::statistics::{DenialItem, FirstDenialAnswer};

#[derive(Debug, Args)]
pub struct DenialsArgs {
    #[command(flatten)]
    scope: PolicyScope,

    /// The subject whose claims were denied [default: all subjects]
    #[arg(conflicts_with_all = ["on", "from", "until"])]
    subject: Option<String>,

    /// Only denials on this local day of the policy
    #[arg(long, value_name = "DAY", allow_hyphen_values = true)]
    on: Option<GivenDay>,

    /// Only denials at this time or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<GivenTime>,

    /// Only denials before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Lists first denials, newest first.
pub async fn denials(args: DenialsArgs) -> anyhow::Result<ExitCode> {
    match (args.scope.policy(), &args.subject) {
        (Some(policy), Some(subject)) => of_subject(&args.server, policy, subject).await,
        _ => of_all(&args).await,
    }
}

async fn of_subject(server: &ServerArgs, policy: &str, subject: &str) -> anyhow::Result<ExitCode> {
    let path = account_path(policy, subject) + "/denials";
    let denials = all_found(|| request(server, Method::GET, &path)).await?;
    let local = LocalTime::of_policy(server, policy).await?;
    tell_none(server, &denials);
    show_all(server, denials, |denial| print_denial("", denial, &local))
}

async fn of_all(args: &DenialsArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let policy = args.scope.policy();
    let local = LocalTime::of_scope(server, policy).await?;
    let now = local.at(present());
    let bound = |time| now.bound(time, policy.is_some());
    let on = args.on.map(|day| now.date(day)).transpose()?;
    let filters = [
        ("policy", policy.cloned()),
        ("on", on.map(|date| date.to_string())),
        ("from", bound(args.from)?),
        ("to", bound(args.until)?),
    ];
    let list = || Ok(request(server, Method::GET, "/v1/denials")?.query(&filters));
    let denials = all_found(list).await?;
    tell_none(server, &denials);
    show(
        server,
        &Value::Array(denials),
        |denials: &Vec<DenialItem>| {
            for item in denials {
                let subject = item.subject.as_deref().unwrap_or("-");
                let named = format!("{:<16} {subject:<20} ", item.policy);
                print_denial(&named, &item.denial, &local);
            }
        },
    )
}

fn tell_none(server: &ServerArgs, denials: &[Value]) {
    if denials.is_empty() && !server.json {
        println!("no denial of the last 30 days is stored");
    }
}

fn print_denial(named: &str, denial: &FirstDenialAnswer, local: &LocalTime) {
    println!(
        "{}  {named}claim of {}: {}",
        local.show(denial.denied_at),
        denial.units,
        describe_usages(&denial.limits, local),
    );
}
