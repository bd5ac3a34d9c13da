//! `perdiem changes`: what was changed, by whom, when and why.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;
use serde_json::value::RawValue;

use super::ServerArgs;
use super::client::{call, read, request};
use super::difference::{differences, in_one_line};
use api::AnyPage;
use api::changes::ChangeAnswer;
use api::instant::written;
use api::policies::PolicyAnswer;
use engine::ChangeKind;

#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// Only changes of this policy and its overrides
    #[arg(long)]
    policy: Option<String>,

    /// Only changes of this kind, such as policy, override, key, export, erasure, day or read
    #[arg(long)]
    kind: Option<String>,

    /// Only changes by this key: its ID, or PERDIEM_ADMIN_KEY
    #[arg(long)]
    by: Option<String>,

    /// Only changes of this subject's overrides and blocks; with --kind read, who looked at it
    #[arg(long)]
    subject: Option<String>,

    /// Only changes at this instant or later, such as 2026-11-01T00:00:00Z
    #[arg(long)]
    from: Option<String>,

    /// Only changes before this instant
    #[arg(long)]
    to: Option<String>,

    /// Number of changes to show, at most 1000
    #[arg(long, default_value_t = 20)]
    limit: u32,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn changes(args: ChangesArgs) -> anyhow::Result<ExitCode> {
    let filters = [
        ("policy", args.policy),
        ("kind", args.kind),
        ("by", args.by),
        ("subject", args.subject),
        ("from", args.from),
        ("to", args.to),
    ];
    let filters: Vec<(&str, String)> = filters
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .chain([("limit", args.limit.to_string())])
        .collect();
    let page = call(request(&args.server, Method::GET, "/v1/changes")?.query(&filters)).await?;
    let page: AnyPage = read(&page)?;
    if args.server.json {
        println!("{:#}", Value::Array(page.items));
        return Ok(ExitCode::SUCCESS);
    }
    let changes: Vec<ChangeAnswer> = read(&Value::Array(page.items))?;
    changes.iter().try_for_each(print_change)?;
    if page.next_cursor.is_some() {
        println!("… older changes exist: show more with --limit, or earlier ones with --to");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_change(change: &ChangeAnswer) -> anyhow::Result<()> {
    let key = change.key.map(|key| key.to_string());
    let named = [&change.policy, &change.subject, &key];
    let named = named.into_iter().flatten().map(String::as_str);
    let parts: Vec<&str> = [&*change.kind].into_iter().chain(named).collect();
    let reason = change.reason.as_deref();
    println!(
        "{}  {}, by {}{}",
        written(change.at),
        parts.join(" "),
        change.by,
        reason.map_or_else(String::new, |reason| format!(": {}", in_one_line(reason))),
    );
    let version = |version: &Option<Box<RawValue>>| {
        let version = version.as_ref();
        version.map(|version| serde_json::from_str(version.get()))
    };
    let before: Option<Value> = version(&change.before).transpose()?;
    let after: Option<Value> = version(&change.after).transpose()?;
    for (field, old, new) in differences(before.as_ref(), after.as_ref()) {
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
            println!("    effective: {}", written(policy.effective_at));
        }
    }
    Ok(())
}
