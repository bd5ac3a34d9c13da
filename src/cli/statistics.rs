//! `perdiem stats`: the figures of local days.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::ServerArgs;
use super::client::{all_found, call, read, request, show};
use super::local::{LocalTime, present};
use super::scope::PolicyScope;
use super::times::GivenTime;
use api::entries::HistoryList;
use api::statistics::{DayStatistics, StatisticsList};

const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
const WAIT_MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    scope: PolicyScope,

    /// The first local day
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<GivenTime>,

    /// The local day after the last one
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
    let filters = filters
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let filters: Vec<(&str, String)> = filters.collect();
    let get = || Ok(request(server, Method::GET, "/v1/stats")?.query(&filters));
    if args.wait {
        wait_for_figures(server).await?;
    }
    let days = all_found(get).await?;
    show(server, &Value::Array(days), print_days)
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
