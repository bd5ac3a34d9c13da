//! `perdiem stats` and `perdiem denials`: the figures of local days, and why claims were denied.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::ServerArgs;
use super::client::{all_found, call, read, request, segment, show};
use api::entries::HistoryList;
use api::instant::written;
use api::limits::LimitUsage;
use api::statistics::{DayStatistics, FirstDenialAnswer, StatisticsList};

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

/// A column of the table, with its figure.
type FigureColumn = (&'static str, fn(&DayStatistics) -> i64);

const COLUMNS: [FigureColumn; 8] = [
    ("grants", |day| day.grants.cast_signed()),
    ("units", |day| day.units.cast_signed()),
    ("reversed", |day| day.reversed_units.cast_signed()),
    ("lapsed", |day| day.lapsed_units.cast_signed()),
    ("up", |day| day.adjusted_up_units.cast_signed()),
    ("down", |day| day.adjusted_down_units.cast_signed()),
    ("net units", |day| day.net_units),
    ("denied", |day| day.denied_claims.cast_signed()),
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
    show(&args.server, &Value::Array(days), print_days)
}

fn print_days(days: &Vec<DayStatistics>) {
    let names = COLUMNS.map(|(name, _)| name.to_owned());
    print_line("policy", "day", names);
    let mut sums = [0; COLUMNS.len()];
    for day in days {
        let figures = COLUMNS.map(|(_, figure)| figure(day));
        for (sum, figure) in sums.iter_mut().zip(figures) {
            *sum += figure;
        }
        let figures = figures.map(|figure| figure.to_string());
        print_line(&day.policy, &day.date.to_string(), figures);
    }
    print_line("total", "", sums.map(|sum| sum.to_string()));
}

/// Waits until the figures contain every entry that has a position now.
async fn wait_for_figures(server: &ServerArgs) -> anyhow::Result<()> {
    let first =
        async |path: &str| call(request(server, Method::GET, path)?.query(&[("limit", 1)])).await;
    let recorded: HistoryList = read(&first("/v1/entries").await?)?;
    let complete = async {
        loop {
            let figures: StatisticsList = read(&first("/v1/stats").await?)?;
            if figures.as_of >= recorded.as_of {
                return anyhow::Ok(());
            }
            sleep(ASK_AGAIN_AFTER).await;
        }
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
    show(&args.server, &Value::Array(denials), print_denials)
}

fn print_denials(denials: &Vec<FirstDenialAnswer>) {
    if denials.is_empty() {
        println!("no denial of the last 30 days is stored");
    }
    for denial in denials {
        let limits = denial.limits.iter().map(describe_limit);
        let limits: Vec<String> = limits.collect();
        println!(
            "{}  claim of {}: {}",
            written(denial.denied_at),
            denial.units,
            limits.join("; "),
        );
    }
}

fn describe_limit(limit: &LimitUsage) -> String {
    let LimitUsage { used, max, per, .. } = limit;
    let until = limit.resets_at.map(written).unwrap_or_default();
    format!("{used} of {max} used per {per}, until {until}")
}
