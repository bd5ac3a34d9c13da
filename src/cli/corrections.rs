//! The commands that correct: reverse, confirm, adjust, reset and move-calendar.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::bulk::{BulkArgs, BulkRun, LineResult, ONE};
use super::client::{account_path, once, read, request, segment, send};
use super::csv_lines::CsvLine;
use super::limits::print_limits;
use super::local::{LocalTime, present};
use super::places::{ADJUSTMENT_LINE, REVERSAL_LINE};
use super::reversal_file::reverse_lines;
use super::taking_back::{GrantFilters, reverse_all};
use super::times::GivenTime;
use super::{ServerArgs, adjustment_file};
use api::calendars::MoveRequest;
use api::entries::{AdjustmentRequest, EntryBody, ResetRequest};
use api::grants::{ConfirmationRequest, CorrectionAnswer, ReversalRequest};
use api::strict::WholeNumber;

#[derive(Debug, Args)]
pub struct ReverseArgs {
    /// The grant's id; with --file, the file names the grants
    #[arg(group = ONE, required_unless_present_any = ["policy", "file"], conflicts_with_all = ["policy", "file"])]
    grant: Option<String>,

    #[command(flatten)]
    filters: GrantFilters,

    /// Units to give back; needs a key [default: all that are left]
    #[arg(long, requires = "idempotency_key", conflicts_with_all = ["policy", "file"])]
    units: Option<u64>,

    /// A key that makes a retry safe: the same reversal with the same key is made once
    #[arg(long, conflicts_with = "file")]
    idempotency_key: Option<String>,

    /// CSV file with the column grant, and if wanted units and reason
    #[arg(long, conflicts_with = "policy")]
    file: Option<PathBuf>,

    /// A name for this file, if it gives back parts of grants: under the same name no part is given back twice
    #[arg(long, requires = "file", conflicts_with = ONE)]
    name: Option<String>,

    #[command(flatten)]
    bulk: BulkArgs,

    /// Reason of the correction; with --file, of the lines that have none
    #[arg(long, required_unless_present = "file")]
    reason: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// The grant's id
    grant: String,

    /// Units that stay used; the others are given back [default: all that are left]
    #[arg(long)]
    units: Option<u64>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct AdjustArgs {
    /// The policy's name
    policy: String,

    /// The subject; with --file, the file names the subjects
    #[arg(group = ONE, required_unless_present = "file", conflicts_with = "file")]
    subject: Option<String>,

    /// Units to add to the usage; a negative number subtracts
    #[arg(long, allow_negative_numbers = true, required_unless_present = "file")]
    units: Option<i64>,

    /// Time in whose windows the units count [default: now]
    #[arg(
        long,
        conflicts_with = "file",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    at: Option<GivenTime>,

    /// A key that makes a retry safe: the same adjustment with the same key is entered once
    #[arg(long, conflicts_with = "file")]
    idempotency_key: Option<String>,

    /// CSV file with the columns subject and units, and if wanted at and reason
    #[arg(long, requires = "name", conflicts_with = "units")]
    file: Option<PathBuf>,

    /// A name for this file of adjustments: a second run under the same name enters nothing twice
    #[arg(long, requires = "file", conflicts_with = ONE)]
    name: Option<String>,

    #[command(flatten)]
    bulk: BulkArgs,

    /// Only check the file, and show what would be entered
    #[arg(long, requires = "file", conflicts_with = ONE)]
    dry_run: bool,

    /// Reason of the correction; with --file, of the lines that have none
    #[arg(long, required_unless_present = "file")]
    reason: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    /// The limit to reset, such as day [default: all limits]
    #[arg(long)]
    per: Option<String>,

    /// A key that makes a retry safe: the same reset with the same key is made once
    #[arg(long)]
    idempotency_key: Option<String>,

    /// Reason of the reset
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("calendar").required(true).multiple(true))]
pub struct MoveCalendarArgs {
    /// The policy's name
    policy: String,

    /// The subject
    subject: String,

    /// The subject's own time zone
    #[arg(long, group = "calendar")]
    time_zone: Option<String>,

    /// The day from which the subject's weeks, months and years are counted
    #[arg(long, value_name = "YYYY-MM-DD", group = "calendar")]
    anchor: Option<String>,

    /// A key that makes a retry safe: the same move with the same key is made once
    #[arg(long)]
    idempotency_key: Option<String>,

    /// Reason of the move
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn reverse(args: ReverseArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.file {
        let run = BulkRun {
            server: &args.server,
            keeps_going: args.bulk.keep_going,
            is_dry_run: args.filters.dry_run,
            is_tried: false,
            places: REVERSAL_LINE,
            words: ["reversed", "already reversed"],
        };
        return reverse_lines(&run, file, args.name.as_ref(), args.reason.as_ref()).await;
    }
    let reason = args.reason.unwrap_or_default();
    if let Some(policy) = args.filters.policy() {
        return reverse_all(&args.server, &args.filters, policy, &reason).await;
    }
    let grant = args.grant.as_deref().unwrap_or_default();
    let path = format!("/v1/grants/{}/reversal", segment(grant));
    let body = ReversalRequest {
        reason,
        units: args.units.map(|units| WholeNumber(units.into())),
    };
    let request = request(&args.server, Method::POST, &path)?.json(&body);
    let answer = send(once(request, args.idempotency_key.as_ref())).await?;
    show_correction(&args.server, answer, "reversed").await
}

pub async fn confirm(args: ConfirmArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/grants/{}/confirmation", segment(&args.grant));
    let mut request = request(&args.server, Method::POST, &path)?;
    if args.units.is_some() {
        let units = args.units.map(|units| WholeNumber(units.into()));
        request = request.json(&ConfirmationRequest { units });
    }
    let answer = send(request).await?;
    show_correction(&args.server, answer, "confirmed").await
}

async fn show_correction(
    server: &ServerArgs,
    (status, answer): (StatusCode, Value),
    done: &str,
) -> anyhow::Result<ExitCode> {
    if server.json {
        println!("{answer:#}");
    } else {
        let CorrectionAnswer { grant, limits } = read(&answer)?;
        println!("{}{done} {}", already(status), grant.id);
        let subject = grant.subject.as_deref().unwrap_or_default();
        let local = LocalTime::of_subject(server, &grant.policy, subject).await;
        print_limits(&limits, &local);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that the same was done before.
pub fn already(status: StatusCode) -> &'static str {
    match status {
        StatusCode::OK => "already ",
        _ => "",
    }
}

pub async fn adjust(args: AdjustArgs) -> anyhow::Result<ExitCode> {
    if let (Some(file), Some(name)) = (&args.file, &args.name) {
        return adjust_from_file(&args, file, name).await;
    }
    let server = &args.server;
    let subject = args.subject.as_deref().unwrap_or_default();
    let at = args.at.filter(|at| *at != GivenTime::NOW);
    let local = LocalTime::of_policy(server, &args.policy).await?;
    let body = AdjustmentRequest {
        units: WholeNumber(args.units.unwrap_or_default().into()),
        at: local.at(present()).instant_text(at)?,
        reason: args.reason.clone().unwrap_or_default(),
    };
    let key = args.idempotency_key.as_ref();
    let answer = enter(&args, subject, &body, key).await?;
    show_entry(server, &args.policy, subject, answer, "entered").await
}

async fn show_entry(
    server: &ServerArgs,
    policy: &str,
    subject: &str,
    (status, answer): (StatusCode, Value),
    done: &str,
) -> anyhow::Result<ExitCode> {
    if server.json {
        println!("{answer:#}");
    } else {
        let entry: EntryBody = read(&answer)?;
        println!("{}{done} {}", already(status), entry.id);
        let local = LocalTime::of_subject(server, policy, subject).await;
        print_limits(&entry.limits, &local);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn reset(args: ResetArgs) -> anyhow::Result<ExitCode> {
    let body = ResetRequest {
        per: args.per,
        reason: args.reason,
    };
    let account = (&*args.policy, &*args.subject);
    let key = args.idempotency_key.as_ref();
    enter_for(&args.server, account, "resets", &body, key, "reset").await
}

pub async fn move_calendar(args: MoveCalendarArgs) -> anyhow::Result<ExitCode> {
    let body = MoveRequest {
        time_zone: args.time_zone,
        anchor: args.anchor,
        reason: args.reason,
    };
    let account = (&*args.policy, &*args.subject);
    let key = args.idempotency_key.as_ref();
    let done = "moved the calendar";
    enter_for(&args.server, account, "calendar", &body, key, done).await
}

/// Enters something for a subject, below its path, and shows its entry.
pub async fn enter_for(
    server: &ServerArgs,
    (policy, subject): (&str, &str),
    what: &str,
    body: &impl Serialize,
    key: Option<&String>,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let path = format!("{}/{what}", account_path(policy, subject));
    let request = request(server, Method::POST, &path)?.json(body);
    let answer = send(once(request, key)).await?;
    show_entry(server, policy, subject, answer, done).await
}

async fn adjust_from_file(args: &AdjustArgs, file: &Path, name: &str) -> anyhow::Result<ExitCode> {
    // 1. Read the file, and know which instants its times are.
    let lines = adjustment_file::read(file, args.reason.as_ref())?;
    let times: Vec<Option<GivenTime>> = lines.iter().map(|line| line.content.at).collect();
    let local = LocalTime::to_read(&args.server, Some(&args.policy), &times).await?;
    let local = local.at(present());
    let requests = lines.into_iter().map(|CsvLine { number, content }| {
        let at = local.instant_text(content.at);
        let at = at.with_context(|| format!("nothing was sent: line {number}, column at"))?;
        let key = content.key(name);
        let body = AdjustmentRequest {
            units: WholeNumber(content.units.into()),
            at,
            reason: content.reason,
        };
        let content = (content.subject, body, key);
        Ok(CsvLine { number, content })
    });
    let requests = requests.collect::<anyhow::Result<Vec<_>>>()?;
    // 2. No two lines are about one subject and instant, however its times are written.
    let mut seen = HashMap::new();
    for CsvLine { number, content } in &requests {
        let (subject, body, _) = content;
        if let Some(first) = seen.insert((subject, &body.at), number) {
            bail!(
                "nothing was sent: line {number}: line {first} has the same subject and instant: add the \
                 two up in one line"
            );
        }
    }
    // 3. Enter them.
    let run = BulkRun {
        server: &args.server,
        keeps_going: args.bulk.keep_going,
        is_dry_run: args.dry_run,
        is_tried: false,
        places: ADJUSTMENT_LINE,
        words: ["entered", "already entered"],
    };
    run.send(&requests, async |(subject, body, key)| {
        if run.is_dry_run {
            if run.tells_lines() {
                let at = body.at.as_ref();
                let at = at.map_or_else(String::new, |at| format!(" at {at}"));
                println!("+ {} {subject}: {} units{at}", args.policy, body.units.0);
            }
            return Ok(LineResult::Done);
        }
        let (status, _) = enter(args, subject, body, Some(key)).await?;
        Ok(match status {
            StatusCode::OK => LineResult::DoneBefore,
            _ => LineResult::Done,
        })
    })
    .await
}

async fn enter(
    args: &AdjustArgs,
    subject: &str,
    body: &AdjustmentRequest,
    key: Option<&String>,
) -> anyhow::Result<(StatusCode, Value)> {
    let path = account_path(&args.policy, subject) + "/adjustments";
    let request = request(&args.server, Method::POST, &path)?.json(body);
    send(once(request, key)).await
}
