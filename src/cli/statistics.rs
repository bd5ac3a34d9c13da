//! `perdiem stats` and `perdiem denials`: the figures of local days, and why claims were denied.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::ServerArgs;
use super::client::{all_found, call, request, segment, text};

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
const WAIT_MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only figures of this policy
    #[arg(long)]
    policy: Option<String>,

    /// The first local day, such as 2026-11-01
    #[arg(long)]
    from: Option<String>,

    /// The local day after the last one
    #[arg(long)]
    to: Option<String>,

    /// Only what was recorded on this local day or later, such as later corrections
    #[arg(long)]
    recorded_from: Option<String>,

    /// Only what was recorded before this local day: the figures as they were known then
    #[arg(long)]
    recorded_to: Option<String>,

    /// Wait until the figures contain everything that is recorded
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct DenialsArgs {
    /// The policy's name
    policy: String,

    /// The subject whose claims were denied
    subject: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// The columns of the table, each with its figure.
const COLUMNS: [(&str, &str); 8] = [
    ("grants", "grants"),
    ("units", "units"),
    ("reversed", "reversed_units"),
    ("lapsed", "lapsed_units"),
    ("up", "adjusted_up_units"),
    ("down", "adjusted_down_units"),
    ("net units", "net_units"),
    ("denied", "denied_claims"),
];

/// Lists the figures of days, oldest first, and their sums.
pub async fn stats(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let filters = [
        ("policy", args.policy),
        ("from", args.from),
        ("to", args.to),
        ("recorded_from", args.recorded_from),
        ("recorded_to", args.recorded_to),
    ];
    let filters = filters
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let filters: Vec<(&str, String)> = filters.collect();
    let get = || Ok(request(&args.server, Method::GET, "/v1/stats")?.query(&filters));
    if args.wait {
        wait_for_figures(&args.server).await?;
    }
    let days = all_found(get).await?;
    if args.server.json {
        println!("{:#}", Value::Array(days));
        return Ok(ExitCode::SUCCESS);
    }
    let names = COLUMNS.map(|(name, _)| name.to_owned());
    print_line("policy", "day", names);
    let mut sums = [0; COLUMNS.len()];
    for day in &days {
        let figures = COLUMNS.map(|(_, figure)| day[figure].as_i64().unwrap_or_default());
        for (sum, figure) in sums.iter_mut().zip(figures) {
            *sum += figure;
        }
        let figures = figures.map(|figure| figure.to_string());
        print_line(text(&day["policy"]), text(&day["date"]), figures);
    }
    print_line("total", "", sums.map(|sum| sum.to_string()));
    Ok(ExitCode::SUCCESS)
}

/// Waits until the figures contain every entry that has a position now.
async fn wait_for_figures(server: &ServerArgs) -> anyhow::Result<()> {
    let as_of = async |path: &str| {
        let list = call(request(server, Method::GET, path)?.query(&[("limit", 1)])).await?;
        anyhow::Ok(list["as_of"].as_u64())
    };
    let recorded = as_of("/v1/entries").await?;
    let complete = async {
        while as_of("/v1/stats").await? < recorded {
            sleep(ASK_AGAIN_AFTER).await;
        }
        anyhow::Ok(())
    };
    let complete = timeout(WAIT_MOST, complete).await;
    complete.context("the figures are not complete yet: try again, or leave out --wait")?
}

fn print_line(policy: &str, day: &str, figures: [String; COLUMNS.len()]) {
    let figures = figures.map(|figure| format!(" {figure:>10}")).concat();
    println!("{policy:<20} {day:<10}{figures}");
}

/// Lists a subject's first denials, newest first.
pub async fn denials(args: DenialsArgs) -> anyhow::Result<ExitCode> {
    let policy = segment(&args.policy);
    let subject = segment(&args.subject);
    let path = format!("/v1/policies/{policy}/subjects/{subject}/denials");
    let denials = all_found(|| request(&args.server, Method::GET, &path)).await?;
    if args.server.json {
        println!("{:#}", Value::Array(denials));
        return Ok(ExitCode::SUCCESS);
    }
    if denials.is_empty() {
        println!("no denial of the last 30 days is stored");
    }
    for denial in &denials {
        let limits = denial["limits"].as_array().into_iter().flatten();
        let limits: Vec<String> = limits.map(limit).collect();
        println!(
            "{}  claim of {}: {}",
            text(&denial["denied_at"]),
            denial["units"],
            limits.join("; "),
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn limit(limit: &Value) -> String {
    let used = &limit["used"];
    let max = &limit["max"];
    let per = text(&limit["per"]);
    let resets_at = text(&limit["resets_at"]);
    format!("{used} of {max} used per {per}, until {resets_at}")
}
