//! `perdiem policy backtest`: applies a draft of a policy, or a file of policies, to past grants.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{Datelike, Days, NaiveDate};
use clap::Args;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::apply::{policies_of, refusal_of};
use super::client::{all_items, call, read, request, segment};
use super::local::{LocalTime, present};
use super::past_versions::version;
use super::places::BACKTEST;
use super::refusal::at_places;
use super::times::{GivenDay, LocalNow};
use super::{ServerArgs, yaml};
use api::backtests::BacktestAnswer;
use api::policies::{PolicyAnswer, PolicyBody};
use domain::policy::{Rule, RuleDraft};
use domain::shared::says_the_same;

/// The longest wait for the server, which reads every entry of the days.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The number of days where none are given.
const DAYS: u64 = 7;

#[derive(Debug, Args)]
pub struct BacktestArgs {
    /// The policy's name; with a file of several policies, the names of those to try [default: those whose limits,
    /// tiers, total or calendar differ from what is in force]
    #[arg(value_name = "POLICY")]
    policies: Vec<String>,

    /// YAML or JSON file with the fields of a policy, or the file that `policy apply` reads; - reads standard
    /// input
    #[arg(short, long)]
    file: PathBuf,

    /// The first local day [default: 7 days before --until]
    #[arg(long, value_name = "DAY")]
    from: Option<GivenDay>,

    /// The local day after the last one [default: tomorrow, so that today is the last one]
    #[arg(long, alias = "to", value_name = "DAY")]
    until: Option<GivenDay>,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn backtest(args: BacktestArgs) -> anyhow::Result<ExitCode> {
    let file = yaml::read(&args.file)?;
    if file.get("policies").is_some() {
        return backtest_file(&args, policies_of(file, None)?).await;
    }
    let [policy] = &args.policies[..] else {
        bail!(
            "the file is a draft of one policy: write the name of this policy before --file; or write \
             policies: in the file, and each policy by its name under it"
        );
    };
    let (answer, local) = args.try_on(policy, &file).await?;
    if args.server.json {
        println!("{answer:#}");
    } else {
        args.print(&answer, &local)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Backtests the policies of a file that are named, or all that differ from what is in force.
async fn backtest_file(
    args: &BacktestArgs,
    policies: Vec<(String, Map<String, Value>)>,
) -> anyhow::Result<ExitCode> {
    // 1. The policies of the file that are meant.
    let is_in_file = |name: &&String| policies.iter().any(|(in_file, _)| in_file == *name);
    if let Some(unknown) = args.policies.iter().find(|name| !is_in_file(name)) {
        let names: Vec<&str> = policies.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        bail!("{unknown} is not in the file: write one of its policies: {names}");
    }
    let in_force = rules_in_force(&args.server).await?;
    // 2. Try each one. All refusals are collected, to report them at once.
    let mut answers = Vec::new();
    let mut refusals = Vec::new();
    for (name, draft) in policies {
        if !args.policies.is_empty() && !args.policies.contains(&name) {
            continue;
        }
        let why_not = match in_force.get(&name) {
            None => Some("new, so it has no grants to try it on"),
            Some(in_force) if args.policies.is_empty() => why_not(&draft, in_force.as_ref()),
            Some(_) => None,
        };
        if let Some(why) = why_not {
            args.say(format_args!("= {name}: {why}"));
            continue;
        }
        match args.try_on(&name, &Value::Object(draft)).await {
            Ok((answer, local)) => {
                args.say(format_args!("~ {name}:"));
                if !args.server.json {
                    args.print(&answer, &local)?;
                }
                answers.push(answer);
            }
            Err(error) => {
                let refusal = refusal_of(at_places(error, BACKTEST))?;
                refusals.push(format!("{name}: {refusal}"));
            }
        }
    }
    // 3. Say what was refused.
    if args.server.json {
        println!("{:#}", Value::Array(answers));
    }
    if !refusals.is_empty() {
        bail!(refusals.join("; "));
    }
    Ok(ExitCode::SUCCESS)
}

/// The rule in force of each policy that is not archived.
async fn rules_in_force(server: &ServerArgs) -> anyhow::Result<HashMap<String, Option<Rule>>> {
    let mut rules = HashMap::new();
    for newest in all_items(server, "/v1/policies?limit=1000").await? {
        let newest: PolicyAnswer = read(&newest)?;
        let name = newest.name.clone();
        let earlier = newest.in_force_version.filter(|it| *it != newest.version);
        let in_force = match earlier {
            Some(number) => read(&version(server, &name, number).await?)?,
            None => newest,
        };
        rules.insert(name, rule_of(in_force.into()));
    }
    Ok(rules)
}

/// Why there is nothing to try with a draft.
fn why_not(draft: &Map<String, Value>, in_force: Option<&Rule>) -> Option<&'static str> {
    // The server says what is wrong with a draft that is no rule.
    let draft = serde_json::from_value(Value::Object(draft.clone())).ok()?;
    let draft = rule_of(draft)?;
    let in_force = in_force?;
    // A backtest tries nothing else of a policy.
    let is_same = draft.limits == in_force.limits
        && draft.calendar == in_force.calendar
        && draft.tiers == in_force.tiers
        && says_the_same(&draft.shared, &in_force.shared);
    is_same.then_some("its limits, its tiers, its total and its calendar are those in force")
}

fn rule_of(policy: PolicyBody) -> Option<Rule> {
    RuleDraft::from(policy).check().ok()
}

impl BacktestArgs {
    /// Backtests a draft. Returns the server's answer, and the local time of the policy.
    async fn try_on(&self, policy: &str, draft: &Value) -> anyhow::Result<(Value, LocalTime)> {
        let local = LocalTime::of_policy(&self.server, policy).await?;
        let (from, until) = self.days(&local.at(present()))?;
        let path = format!("/v1/policies/{}/backtest", segment(policy));
        let body = json!({ "policy": draft, "from": from, "to": until });
        let request = request(&self.server, Method::POST, &path)?.json(&body);
        Ok((call(request.timeout(TIMEOUT)).await?, local))
    }

    /// The first local day, and the day after the last one.
    fn days(&self, now: &LocalNow) -> anyhow::Result<(NaiveDate, NaiveDate)> {
        let until = self.until.unwrap_or(GivenDay::FromToday(1));
        let until = now.date(until)?;
        let from = self.from.map(|from| now.date(from)).transpose()?;
        let from = from.or_else(|| until.checked_sub_days(Days::new(DAYS)));
        let from = from.filter(|from| from.year() >= 0);
        let from = from.context("--until: the days before it are not in the years 0 to 9999")?;
        Ok((from, until))
    }

    /// Prints a line for people.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        if !self.server.json {
            println!("{line}");
        }
    }

    fn print(&self, answer: &Value, local: &LocalTime) -> anyhow::Result<()> {
        let answer: BacktestAnswer = read(answer)?;
        let has_default = self.from.is_none() || self.until.is_none();
        if let (true, Some(first), Some(last)) =
            (has_default, answer.days.first(), answer.days.last())
        {
            let first = first.local_date;
            let last = last.local_date;
            println!("{first} to {last}; write other days with --from and --until");
        }
        print_days(&answer);
        print_subjects(&answer, local);
        Ok(())
    }
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
