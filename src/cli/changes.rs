//! `perdiem changes`: what was changed, by whom, when and why.

use std::process::ExitCode;

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::ServerArgs;
use super::client::{call, request, text};
use super::difference::{differences, words};

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
    if args.server.json {
        println!("{:#}", page["items"]);
        return Ok(ExitCode::SUCCESS);
    }
    let items = page["items"].as_array();
    items.into_iter().flatten().for_each(print_change);
    if !page["next_cursor"].is_null() {
        println!("… older changes exist: show more with --limit, or earlier ones with --to");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_change(change: &Value) {
    let parts = ["kind", "policy", "subject", "key"].map(|part| change[part].as_str());
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    println!(
        "{}  {}, by {}{}",
        text(&change["at"]),
        parts.join(" "),
        text(&change["by"]),
        match &change["reason"] {
            Value::Null => String::new(),
            reason => format!(": {}", words(reason)),
        },
    );
    let version = |name: &str| change.get(name).filter(|version| !version.is_null());
    let before = version("before");
    let after = version("after");
    for (field, before, after) in differences(before, after) {
        match version("before") {
            Some(_) => println!("    {field}: {before} → {after}"),
            None if after == "false" => {}
            None => println!("    {field}: {after}"),
        }
    }
    // The change takes effect later than it was made.
    if let Some(after) = after
        && after["effective_at"].is_string()
        && after["effective_at"] != after["changed_at"]
    {
        println!("    effective: {}", text(&after["effective_at"]));
    }
}
