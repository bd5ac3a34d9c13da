//! The commands that correct: reverse, confirm and adjust.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::client::{once, read, request, segment, send};
use super::limits::print_limits;
use super::local::{LocalTime, present};
use super::places::ADJUSTMENT_LINE;
use super::refusal::at_places;
use super::taking_back::{GrantFilters, reverse_all};
use super::times::GivenTime;
use super::{ServerArgs, adjustment_file};
use api::entries::{AdjustmentRequest, EntryBody};
use api::grants::{ConfirmationRequest, CorrectionAnswer, ReversalRequest};
use api::strict::WholeNumber;

#[derive(Debug, Args)]
pub struct ReverseArgs {
    /// The grant's id
    #[arg(required_unless_present = "policy", conflicts_with = "policy")]
    grant: Option<String>,

    #[command(flatten)]
    filters: GrantFilters,

    /// Units to give back; needs a key [default: all that are left]
    #[arg(long, requires = "idempotency_key", conflicts_with = "policy")]
    units: Option<u64>,

    /// A key that makes a retry safe: the same reversal with the same key is made once
    #[arg(long)]
    idempotency_key: Option<String>,

    /// Reason of the correction
    #[arg(long)]
    reason: String,

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
    #[arg(required_unless_present = "file", conflicts_with = "file")]
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

    /// CSV file with the columns subject and units; the column at is optional
    #[arg(long, requires = "name", conflicts_with = "units")]
    file: Option<PathBuf>,

    /// A name for this file of adjustments: a second run under the same name enters nothing twice
    #[arg(long, requires = "file")]
    name: Option<String>,

    /// Reason of the correction
    #[arg(long)]
    reason: String,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn reverse(args: ReverseArgs) -> anyhow::Result<ExitCode> {
    if let Some(policy) = args.filters.policy() {
        return reverse_all(&args.server, &args.filters, policy, &args.reason).await;
    }
    let grant = args.grant.as_deref().unwrap_or_default();
    let path = format!("/v1/grants/{}/reversal", segment(grant));
    let body = ReversalRequest {
        reason: args.reason,
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
fn already(status: StatusCode) -> &'static str {
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
        reason: args.reason.clone(),
    };
    let key = args.idempotency_key.as_ref();
    let (status, answer) = enter(&args, subject, &body, key).await?;
    if server.json {
        println!("{answer:#}");
    } else {
        let entry: EntryBody = read(&answer)?;
        println!("{}entered {}", already(status), entry.id);
        print_limits(&entry.limits, &local);
    }
    Ok(ExitCode::SUCCESS)
}

async fn adjust_from_file(args: &AdjustArgs, file: &Path, name: &str) -> anyhow::Result<ExitCode> {
    let rows = adjustment_file::read(file);
    let rows = rows.with_context(|| format!("{} cannot be read", file.display()))?;
    let times: Vec<Option<GivenTime>> = rows.iter().map(|row| row.at).collect();
    let local = LocalTime::to_read(&args.server, Some(&args.policy), &times).await?;
    let local = local.at(present());
    let mut entered = 0;
    let mut before = 0;
    for row in &rows {
        let body = AdjustmentRequest {
            units: WholeNumber(row.units.into()),
            at: local.instant_text(row.at)?,
            reason: args.reason.clone(),
        };
        let key = row.key(name);
        let entering = enter(args, &row.subject, &body, Some(&key)).await;
        let entering = entering.map_err(|error| at_places(error, ADJUSTMENT_LINE));
        let (status, _) = entering.with_context(|| {
            format!(
                "stopped at line {}; adjustments entered before it: {}; correct the file, and run \
                 the command again under the same name: nothing is entered twice",
                row.line,
                entered + before,
            )
        })?;
        match status {
            StatusCode::OK => before += 1,
            _ => entered += 1,
        }
    }
    println!("entered {entered}, already entered {before}");
    Ok(ExitCode::SUCCESS)
}

async fn enter(
    args: &AdjustArgs,
    subject: &str,
    body: &AdjustmentRequest,
    key: Option<&String>,
) -> anyhow::Result<(StatusCode, Value)> {
    let policy = segment(&args.policy);
    let subject = segment(subject);
    let path = format!("/v1/policies/{policy}/subjects/{subject}/adjustments");
    let request = request(&args.server, Method::POST, &path)?.json(body);
    send(once(request, key)).await
}
