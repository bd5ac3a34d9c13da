//! `perdiem policy backtest`: applies a draft of a policy to past grants.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reqwest::Method;
use serde_json::json;

use super::client::{call, request, segment, show};
use super::local::{LocalTime, present};
use super::times::GivenDay;
use super::{ServerArgs, yaml};
use api::backtests::BacktestAnswer;

/// The longest wait for the server, which reads every entry of the days.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Args)]
pub struct BacktestArgs {
    /// The policy's name
    policy: String,

    /// The draft: YAML or JSON file with the fields of a policy; - reads standard input
    #[arg(short, long)]
    file: PathBuf,

    /// The first local day
    #[arg(long, value_name = "DAY")]
    from: GivenDay,

    /// The local day after the last one
    #[arg(long, alias = "to", value_name = "DAY")]
    until: GivenDay,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn backtest(args: BacktestArgs) -> anyhow::Result<ExitCode> {
    let draft = yaml::read(&args.file)?;
    let local = LocalTime::of_policy(&args.server, &args.policy).await?;
    let now = local.at(present());
    let from = now.date(args.from)?;
    let until = now.date(args.until)?;
    let path = format!("/v1/policies/{}/backtest", segment(&args.policy));
    let body = json!({ "policy": draft, "from": from, "to": until });
    let request = request(&args.server, Method::POST, &path)?.json(&body);
    let answer = call(request.timeout(TIMEOUT)).await?;
    show(&args.server, &answer, |answer| {
        print_days(answer);
        print_subjects(answer, &local);
    })
}

fn print_days(answer: &BacktestAnswer) {
    let line = |name: &str, figures: [&str; 4]| {
        let [grants, units, denied_grants, denied_units] = figures;
        println!("{name:<10} {grants:>12} {units:>12} {denied_grants:>12} {denied_units:>12}");
    };
    let figures = |name: &str, figures: [u64; 4]| {
        let figures = figures.map(|figure| figure.to_string());
        line(name, figures.each_ref().map(String::as_str));
    };
    line("day", ["grants", "units", "denied", "their units"]);
    for day in &answer.days {
        let name = day.local_date.to_string();
        let of_day = [day.grants, day.units, day.denied_grants, day.denied_units];
        figures(&name, of_day);
    }
    let total = &answer.total;
    let of_total = [
        total.grants,
        total.units,
        total.denied_grants,
        total.denied_units,
    ];
    figures("total", of_total);
}

fn print_subjects(answer: &BacktestAnswer, local: &LocalTime) {
    if answer.first_denied.is_empty() {
        return;
    }
    println!();
    println!(
        "subjects denied: {}; the first:",
        answer.total.denied_subjects
    );
    for denied in &answer.first_denied {
        println!(
            "{}  {}  {} denied",
            local.show(denied.first_denied_at),
            denied.subject.as_deref().unwrap_or("(erased)"),
            denied.denied_grants,
        );
    }
}
