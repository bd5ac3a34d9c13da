//! Commands about the versions of a policy.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;
use reqwest::header::IF_MATCH;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_items, call, read, request, show_all};
use super::condition::ConditionArgs;
use super::difference::{before_change, differences, in_one_line};
use super::key_names::KeyNames;
use super::local::LocalTime;
use super::past_versions::{KnownVersion, all_versions, find, versions_of};
use super::policies::{PolicyArgs, path_of};
use super::policy_changes::ChangeArgs;
use api::instant::written;
use api::limit_text::limits_in_line;
use api::policies::{PolicyAnswer, PolicyBody};

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The policy's name
    policy: String,

    /// The earlier version [default: the one before the later version]
    from: Option<u32>,

    /// The later version [default: the newest one]
    to: Option<u32>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The policy's name
    policy: String,

    /// The version whose settings become the newest ones
    version: u32,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The policy's name
    policy: String,

    /// Reason of the change
    #[arg(long)]
    reason: String,

    /// Overrides that the version in force leaves without their limit, or subjects without their tier: drop them, or
    /// keep them without an effect
    #[arg(long)]
    orphaned_overrides: Option<String>,

    #[command(flatten)]
    condition: ConditionArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct PolicyExportArgs {
    /// The names of the policies [default: all that are not archived]
    policies: Vec<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// The file that `policy apply` reads.
#[derive(Serialize)]
struct PolicyFile {
    policies: BTreeMap<String, PolicyBody>,
}

pub async fn list(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let items = all_items(server, &versions_of(&args.policy)).await?;
    if server.json {
        return show_all(server, items, |_: &Value| ());
    }
    let versions: Vec<PolicyAnswer> = read(&Value::Array(items))?;
    let names = KeyNames::of(server, versions.iter().map(|it| &*it.changed_by)).await?;
    for version in &versions {
        print_version(server, version, &names);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_version(server: &ServerArgs, version: &PolicyAnswer, names: &KeyNames) {
    let local = LocalTime::new(server, &version.time_zone);
    let is_scheduled = version.effective_at > version.changed_at;
    let from = is_scheduled.then(|| format!("  (from {})", local.show(version.effective_at)));
    let archived = if version.archived { "  (archived)" } else { "" };
    let paused = if version.paused { "  (paused)" } else { "" };
    let reason = version.reason.as_deref().map(in_one_line);
    println!(
        "version {:<4} {}  by {}  {}{}{paused}{archived}{}",
        version.version,
        local.show(version.changed_at),
        names.show(&version.changed_by),
        limits_in_line(&version.limits),
        from.unwrap_or_default(),
        reason
            .map(|reason| format!("  ({reason})"))
            .unwrap_or_default(),
    );
}

pub async fn diff(args: DiffArgs) -> anyhow::Result<ExitCode> {
    let versions = all_versions(&args.server, &args.policy).await?;
    let newest = versions.first().map_or(0, |newest| newest.version.version);
    let to = args.to.unwrap_or(newest);
    let from = args.from.unwrap_or(to.saturating_sub(1));
    let before = match from {
        0 => None,
        from => Some(&find(&versions, &args.policy, from)?.json),
    };
    let after = &find(&versions, &args.policy, to)?.json;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    let found: Vec<_> = differences(before, Some(after), &local).collect();
    if args.server.json {
        let found = found
            .iter()
            .map(|(field, before, after)| (*field, [before, after]));
        let found: BTreeMap<_, _> = found.collect();
        println!("{:#}", serde_json::to_value(found)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("version {from} → version {to}");
    for (field, before, after) in &found {
        println!("~ {}: {field}: {before} → {after}", args.policy);
    }
    if found.is_empty() {
        println!("= {}", args.policy);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let RestoreArgs {
        policy,
        version,
        change,
    } = args;
    let versions = all_versions(&change.server, &policy).await?;
    restore_of(&versions, &policy, version, &change).await
}

pub async fn cancel(args: CancelArgs) -> anyhow::Result<ExitCode> {
    let newest = call(request(&args.server, Method::GET, &path_of(&args.policy))?).await?;
    let newest: PolicyAnswer = read(&newest)?;
    let in_force = newest.in_force_version.unwrap_or(newest.version);
    if in_force == newest.version {
        bail!("nothing is scheduled for {}", args.policy);
    }
    let versions = all_versions(&args.server, &args.policy).await?;
    let change = ChangeArgs {
        effective: None,
        orphaned_overrides: args.orphaned_overrides,
        reason: Some(args.reason),
        condition: args.condition,
        server: args.server,
    };
    let cancelled = restore_of(&versions, &args.policy, in_force, &change).await?;
    if !change.server.json {
        tell_ended(&change.server, &newest).await?;
    }
    Ok(cancelled)
}

/// What an override and a subject's tier have in common.
#[derive(Serialize, Deserialize)]
struct EndingException {
    subject: Option<String>,
    until: Option<DateTime<Utc>>,
}

/// Names the overrides and the tiers that end where a scheduled version was to take effect: they keep their
/// ends.
async fn tell_ended(server: &ServerArgs, scheduled: &PolicyAnswer) -> anyhow::Result<()> {
    for (list, what) in [("overrides", "override"), ("tiers", "tier")] {
        let path = format!("{}/{list}?limit=1000", path_of(&scheduled.name));
        for found in all_items(server, &path).await? {
            let found: EndingException = read(&found)?;
            if found.until == Some(scheduled.effective_at) {
                let local = LocalTime::new(server, &scheduled.time_zone);
                println!(
                    "! {} {}: the {what} still ends at {}",
                    scheduled.name,
                    found.subject.as_deref().unwrap_or("(erased)"),
                    local.show(scheduled.effective_at)
                );
            }
        }
    }
    Ok(())
}

/// Writes the settings of a version again. If somebody else changes the policy meanwhile, nothing is
/// changed.
async fn restore_of(
    versions: &[KnownVersion],
    policy: &str,
    version: u32,
    change: &ChangeArgs,
) -> anyhow::Result<ExitCode> {
    let newest = versions.first().filter(|newest| !newest.version.archived);
    let restored = find(versions, policy, version)?;
    let restored: PolicyAnswer = read(&restored.json)?;
    let local = LocalTime::of_policy(&change.server, policy).await?;
    let body = PolicyBody {
        effective: change.effective(&local)?,
        orphaned_overrides: change.orphaned_overrides.clone(),
        reason: change.reason.clone(),
        ..restored.into()
    };
    let request = change.request(Method::PUT, policy)?.json(&body);
    let request = match newest {
        Some(newest) if change.condition.if_version.is_none() => {
            request.header(IF_MATCH, format!("\"{}\"", newest.version.version))
        }
        _ => request,
    };
    let before = before_change(&change.server, &path_of(policy)).await?;
    change.send(policy, before, request, &local).await
}

pub async fn export(args: PolicyExportArgs) -> anyhow::Result<ExitCode> {
    let items = if args.policies.is_empty() {
        all_items(&args.server, "/v1/policies?limit=1000").await?
    } else {
        let mut items = Vec::new();
        for policy in &args.policies {
            items.push(call(request(&args.server, Method::GET, &path_of(policy))?).await?);
        }
        items
    };
    let mut policies = BTreeMap::new();
    for item in &items {
        let policy: PolicyAnswer = read(item)?;
        let is_scheduled = policy.in_force_version != Some(policy.version);
        let effective = is_scheduled.then(|| written(policy.effective_at));
        let name = policy.name.clone();
        let body = PolicyBody {
            effective,
            ..policy.into()
        };
        policies.insert(name, body);
    }
    let file = PolicyFile { policies };
    if args.server.json {
        println!("{:#}", serde_json::to_value(&file)?);
    } else {
        print!("{}", yaml_serde::to_string(&file)?);
    }
    Ok(ExitCode::SUCCESS)
}
