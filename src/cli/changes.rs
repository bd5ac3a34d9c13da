//! `perdiem changes`: what was changed, by whom, when and why.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ServerArgs;
use super::client::{call, read, request};
use super::difference::{differences, in_one_line};
use super::key_names::KeyNames;
use super::local::{LocalTime, present};
use super::scope::ScopeArgs;
use super::times::GivenTime;
use api::AnyPage;
use api::changes::ChangeAnswer;
use api::policies::PolicyAnswer;
use engine::ChangeKind;

#[derive(Debug, Args)]
pub struct ChangesArgs {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Only changes of this kind, such as policy, override, tier, key, export, erasure, day or read
    #[arg(long)]
    kind: Option<String>,

    /// Only changes by this key: its ID, or PERDIEM_ADMIN_KEY
    #[arg(long)]
    by: Option<String>,

    /// Only changes at this time or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<GivenTime>,

    /// Only changes before this time
    #[arg(long, alias = "to", value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// Number of changes to show, at most 1000
    #[arg(long, default_value_t = 20)]
    limit: u32,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn changes(args: ChangesArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let policy = args.scope.policy();
    let local = LocalTime::of_scope(server, policy).await?;
    let now = local.at(present());
    let bound = |time| now.bound(time, policy.is_some());
    let filters = [
        ("policy", policy.cloned()),
        ("kind", args.kind),
        ("by", args.by),
        ("subject", args.scope.subject().cloned()),
        ("from", bound(args.from)?),
        ("to", bound(args.until)?),
    ];
    let filters: Vec<(&str, String)> = filters
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .chain([("limit", args.limit.to_string())])
        .collect();
    let page = call(request(server, Method::GET, "/v1/changes")?.query(&filters)).await?;
    let page: AnyPage = read(&page)?;
    if server.json {
        println!("{:#}", Value::Array(page.items));
        return Ok(ExitCode::SUCCESS);
    }
    let changes: Vec<ChangeAnswer> = read(&Value::Array(page.items))?;
    let names = KeyNames::of(server, changes.iter().map(|change| &*change.by)).await?;
    changes
        .iter()
        .try_for_each(|change| print_change(change, &local, &names))?;
    if page.next_cursor.is_some() {
        println!("… older changes exist: show more with --limit, or earlier ones with --until");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_change(change: &ChangeAnswer, local: &LocalTime, names: &KeyNames) -> anyhow::Result<()> {
    let key = change.key.map(|key| key.to_string());
    let named = [&change.policy, &change.subject, &key];
    let named = named.into_iter().flatten().map(String::as_str);
    let parts: Vec<&str> = [&*change.kind].into_iter().chain(named).collect();
    let reason = change.reason.as_deref();
    println!(
        "{}  {}, by {}{}",
        local.show(change.at),
        parts.join(" "),
        names.show(&change.by),
        reason.map_or_else(String::new, |reason| format!(": {}", in_one_line(reason))),
    );
    let version = |version: &Option<Box<RawValue>>| {
        let version = version.as_ref();
        version.map(|version| serde_json::from_str(version.get()))
    };
    let before: Option<Value> = version(&change.before).transpose()?;
    let after: Option<Value> = version(&change.after).transpose()?;
    for (field, old, new) in differences(before.as_ref(), after.as_ref(), local) {
        match before {
            Some(_) => println!("    {field}: {old} → {new}"),
            None if new == "false" => {}
            None => println!("    {field}: {new}"),
        }
    }
    // A policy's change can take effect later than it was made.
    if change.kind == ChangeKind::Policy.as_str()
        && let Some(after) = &after
    {
        let policy: PolicyAnswer = read(after)?;
        if policy.effective_at != policy.changed_at {
            println!("    effective: {}", local.show(policy.effective_at));
        }
    }
    Ok(())
}
