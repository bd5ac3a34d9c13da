//! `perdiem stats`: the figures of local days, and of quarter hours.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::ServerArgs;
use super::client::{all_found, call, read, request, show};
use super::local::{LocalTime, present};
use super::scope::PolicyScope;
use super::times::GivenTime;
use api::entries::HistoryList;
use api::statistics::{DayStatistics, QuarterStatistics, StatisticsList};

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
const WAIT_MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    scope: PolicyScope,

    /// Show the figures of the last 14 days by the quarter hour, and not by the local day
    #[arg(long, conflicts_with_all = ["recorded_from", "recorded_until"])]
    by: Option<FiguresBy>,

    /// The first local day; with --by, the time of the first quarter hour
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<GivenTime>,

    /// The local day after the last one; with --by, the time after the last quarter hour
    #[arg(long, alias = "to", value_name = "TIME", allow_hyphen_values = true)]
    until: Option<GivenTime>,

    /// Only what was recorded on this local day or later, such as later corrections
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    recorded_from: Option<GivenTime>,

    /// Only what was recorded before this local day: the figures as they were known then
    #[arg(
        long,
        alias = "recorded-to",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    recorded_until: Option<GivenTime>,

    /// Wait until the figures contain everything that is recorded
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FiguresBy {
    QuarterHour,
}

/// A column of a table, with its figure.
type FigureColumn<T> = (&'static str, fn(&T) -> i64);

const QUARTER_COLUMNS: [FigureColumn<QuarterStatistics>; 4] = [
    ("grants", |quarter| quarter.grants.cast_signed()),
    ("units", |quarter| quarter.units.cast_signed()),
    ("given back", |quarter| {
        quarter.given_back_units.cast_signed()
    }),
    ("denied", |quarter| quarter.denied_claims.cast_signed()),
];

const COLUMNS: [FigureColumn<DayStatistics>; 9] = [
    ("grants", |day| day.grants.cast_signed()),
    ("units", |day| day.units.cast_signed()),
    ("reversed", |day| day.reversed_units.cast_signed()),
    ("lapsed", |day| day.lapsed_units.cast_signed()),
    ("up", |day| day.adjusted_up_units.cast_signed()),
    ("down", |day| day.adjusted_down_units.cast_signed()),
    ("resets", |day| day.resets.cast_signed()),
    ("net units", |day| day.net_units),
    ("denied", |day| day.denied_claims.cast_signed()),
];

/// Lists the figures of days or quarter hours, oldest first, and their sums.
pub async fn stats(args: StatsArgs) -> anyhow::Result<ExitCode> {
    match args.by {
        None => by_day(args).await,
        Some(FiguresBy::QuarterHour) => by_quarter(args).await,
    }
}

/// Everything that a list of figures has.
async fn found<const N: usize>(
    args: &StatsArgs,
    path: &str,
    filters: [(&str, Option<String>); N],
) -> anyhow::Result<Value> {
    if args.wait {
        wait_for_figures(&args.server).await?;
    }
    let get = || Ok(request(&args.server, Method::GET, path)?.query(&filters[..]));
    Ok(Value::Array(all_found(get).await?))
}

async fn by_quarter(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let policy = args.scope.policy();
    let local = LocalTime::of_scope(server, policy).await?;
    let now = local.at(present());
    let bound = |time| now.bound(time, policy.is_some());
    let filters = [
        ("policy", policy.cloned()),
        ("from", bound(args.from)?),
        ("to", bound(args.until)?),
    ];
    let quarters = found(&args, "/v1/stats/quarters", filters).await?;
    let shown = |quarter: &QuarterStatistics| {
        let at = local.show(quarter.starts_at);
        (quarter.policy.clone(), at)
    };
    let print = |quarters: &Vec<QuarterStatistics>| {
        print_table(("quarter hour", 25), quarters, QUARTER_COLUMNS, shown);
    };
    show(server, &quarters, print)
}

async fn by_day(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    let policy = args.scope.policy();
    let [from, until] = [args.from, args.until];
    let [recorded_from, recorded_until] = [args.recorded_from, args.recorded_until];
    let times = [from, until, recorded_from, recorded_until];
    let local = LocalTime::to_read(server, policy, &times).await?;
    let local = local.at(present());
    // Figures are of local days, also those of all policies.
    let bound = |time| local.bound(time, true);
    let filters = [
        ("policy", policy.cloned()),
        ("from", bound(from)?),
        ("to", bound(until)?),
        ("recorded_from", bound(recorded_from)?),
        ("recorded_to", bound(recorded_until)?),
    ];
    let days = found(&args, "/v1/stats", filters).await?;
    let shown = |day: &DayStatistics| (day.policy.clone(), day.date.to_string());
    let print = |days: &Vec<DayStatistics>| print_table(("day", 10), days, COLUMNS, shown);
    show(server, &days, print)
}

/// Prints a line for each item, with its policy and its time, and a line with the sums. The column of times has a
/// title and a width.
fn print_table<T, const N: usize>(
    (title, width): (&str, usize),
    items: &[T],
    columns: [FigureColumn<T>; N],
    shown: impl Fn(&T) -> (String, String),
) {
    let print = |policy: &str, at: &str, figures: [String; N]| {
        let figures = figures.map(|figure| format!(" {figure:>10}")).concat();
        println!("{policy:<20} {at:<width$}{figures}");
    };
    print("policy", title, columns.map(|(name, _)| name.to_owned()));
    let mut sums = [0; N];
    for item in items {
        let figures = columns.map(|(_, figure)| figure(item));
        for (sum, figure) in sums.iter_mut().zip(figures) {
            *sum += figure;
        }
        let (policy, at) = shown(item);
        print(&policy, &at, figures.map(|figure| figure.to_string()));
    }
    print("total", "", sums.map(|sum| sum.to_string()));
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
