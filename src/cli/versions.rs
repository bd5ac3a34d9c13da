//! Commands about the versions of a policy.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::Method;
use reqwest::header::IF_MATCH;
use serde::Serialize;
use serde_json::Value;

use super::ServerArgs;
use super::client::{all_items, call, read, request, show_all};
use super::condition::ConditionArgs;
use super::difference::{differences, in_one_line};
use super::limits::describe_limits;
use super::local::LocalTime;
use super::policies::{PolicyArgs, path_of};
use super::policy_changes::ChangeArgs;
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

    /// Only show what would change
    #[arg(long)]
    dry_run: bool,

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

/// A version as the server answered it: as it came, and in its type.
struct KnownVersion {
    json: Value,
    version: PolicyAnswer,
}

/// The file that `policy apply` reads.
#[derive(Serialize)]
struct PolicyFile {
    policies: BTreeMap<String, PolicyBody>,
}

pub async fn list(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let items = all_items(&args.server, &versions_of(&args.policy)).await?;
    let server = &args.server;
    show_all(server, items, |version| print_version(server, version))
}

fn print_version(server: &ServerArgs, version: &PolicyAnswer) {
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
        version.changed_by,
        describe_limits(&version.limits),
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
        orphaned_overrides: None,
        reason: Some(args.reason),
        condition: ConditionArgs {
            if_version: Some(newest.version),
            dry_run: args.dry_run,
        },
        server: args.server,
    };
    restore_of(&versions, &args.policy, in_force, &change).await
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
    let before = newest.map(|newest| newest.json.clone());
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
        policies.insert(policy.name.clone(), policy.into());
    }
    let file = PolicyFile { policies };
    if args.server.json {
        println!("{:#}", serde_json::to_value(&file)?);
    } else {
        print!("{}", yaml_serde::to_string(&file)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// The versions that are still to take effect, in this order.
pub async fn scheduled(
    server: &ServerArgs,
    newest: &PolicyAnswer,
) -> anyhow::Result<Vec<PolicyAnswer>> {
    let in_force = newest.in_force_version.unwrap_or(newest.version);
    if in_force == newest.version {
        return Ok(Vec::new());
    }
    let mut later: Vec<PolicyAnswer> = Vec::new();
    for known in all_versions(server, &newest.name).await? {
        let version = known.version;
        // A version that a higher one replaces before its time never takes effect.
        let is_replaced = |higher: &PolicyAnswer| higher.effective_at <= version.effective_at;
        if version.version > in_force && !later.iter().any(is_replaced) {
            later.push(version);
        }
    }
    later.reverse();
    Ok(later)
}

fn versions_of(policy: &str) -> String {
    format!("{}/versions?limit=1000", path_of(policy))
}

/// All versions of a policy, newest first.
async fn all_versions(server: &ServerArgs, policy: &str) -> anyhow::Result<Vec<KnownVersion>> {
    let items = all_items(server, &versions_of(policy)).await?;
    let known = items.into_iter().map(|json| {
        let version = read(&json)?;
        Ok(KnownVersion { json, version })
    });
    known.collect()
}

fn find<'v>(
    versions: &'v [KnownVersion],
    policy: &str,
    number: u32,
) -> anyhow::Result<&'v KnownVersion> {
    let mut found = versions.iter();
    let found = found.find(|known| known.version.version == number);
    found.with_context(|| {
        format!("{policy} has no version {number}: see `perdiem policy versions {policy}`")
    })
}
