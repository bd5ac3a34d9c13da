//! The commands that correct: reverse, confirm and adjust.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ServerArgs;
use super::client::{describe, request, segment, send, text};
use super::limits::print_limits;
use super::local::LocalTime;

#[derive(Debug, Args)]
pub struct ReverseArgs {
    /// The grant's id
    grant: String,

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

    /// Instant in whose windows the units count, such as 2026-11-03T00:00:00Z [default: now]
    #[arg(long, conflicts_with = "file")]
    at: Option<String>,

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdjustmentLine {
    subject: String,
    units: i64,
    #[serde(default)]
    at: Option<String>,
}

pub async fn reverse(args: ReverseArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/grants/{}/reversal", segment(&args.grant));
    let body = json!({ "reason": args.reason });
    let answer = send(request(&args.server, Method::POST, &path)?.json(&body)).await?;
    show_correction(&args.server, answer, "reversed").await
}

pub async fn confirm(args: ConfirmArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/v1/grants/{}/confirmation", segment(&args.grant));
    let answer = send(request(&args.server, Method::POST, &path)?).await?;
    show_correction(&args.server, answer, "confirmed").await
}

async fn show_correction(
    server: &ServerArgs,
    (status, answer): (StatusCode, Value),
    done: &str,
) -> anyhow::Result<ExitCode> {
    if !status.is_success() {
        bail!(describe(&answer));
    }
    if server.json {
        println!("{answer:#}");
    } else {
        match status {
            StatusCode::OK => println!("already {done}"),
            _ => println!("{done}"),
        }
        let grant = &answer["grant"];
        let (policy, subject) = (text(&grant["policy"]), text(&grant["subject"]));
        let local = LocalTime::of(server, policy, subject).await;
        print_limits(&answer["limits"], &local);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn adjust(args: AdjustArgs) -> anyhow::Result<ExitCode> {
    if let (Some(file), Some(name)) = (&args.file, &args.name) {
        return adjust_from_file(&args, file, name).await;
    }
    let subject = args.subject.as_deref().unwrap_or_default();
    let body = json!({ "units": args.units, "at": args.at, "reason": args.reason });
    let key = args.idempotency_key.as_deref();
    let (status, answer) = enter(&args, subject, &body, key).await?;
    if !status.is_success() {
        bail!(describe(&answer));
    }
    if args.server.json {
        println!("{answer:#}");
    } else {
        match status {
            StatusCode::OK => println!("already entered"),
            _ => println!("entered"),
        }
        let local = LocalTime::of(&args.server, &args.policy, subject).await;
        print_limits(&answer["limits"], &local);
    }
    Ok(ExitCode::SUCCESS)
}

async fn adjust_from_file(
    args: &AdjustArgs,
    file: &PathBuf,
    name: &str,
) -> anyhow::Result<ExitCode> {
    let rows = read_rows(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let (mut entered, mut before) = (0, 0);
    for (line, row) in &rows {
        let body = json!({ "units": row.units, "at": row.at, "reason": args.reason });
        let key = row.key(name);
        let (status, answer) = enter(args, &row.subject, &body, Some(&key)).await?;
        match status {
            StatusCode::CREATED => entered += 1,
            StatusCode::OK => before += 1,
            _ => bail!(
                "line {line} is refused: {}; adjustments entered before it: {}. Correct the file, \
                 and run the command again under the same name: nothing is entered twice",
                describe(&answer),
                entered + before,
            ),
        }
    }
    println!("entered {entered}, already entered {before}");
    Ok(ExitCode::SUCCESS)
}

/// All rows with their line numbers. One wrong row is an error, so nothing is entered.
fn read_rows(file: &PathBuf) -> anyhow::Result<Vec<(u64, AdjustmentLine)>> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)?;
    let headers = reader.headers()?.clone();
    let mut rows = Vec::new();
    let mut seen = HashSet::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, |position| position.line());
        let row: AdjustmentLine = record.deserialize(Some(&headers)).with_context(|| {
            format!(
                "line {line} is wrong: write a subject, units (a whole number) and, if wanted, at"
            )
        })?;
        ensure!(
            row.units != 0,
            "line {line}: units is 0: write another number"
        );
        ensure!(
            seen.insert((row.subject.clone(), row.at.clone())),
            "line {line}: another line has the same subject and instant: add the two up in one line",
        );
        rows.push((line, row));
    }
    Ok(rows)
}

impl AdjustmentLine {
    /// The idempotency key of the line: a second run of the file is safe, in any order of lines.
    fn key(&self, name: &str) -> String {
        let at = self.at.as_deref().unwrap_or_default();
        let mut hasher = blake3::Hasher::new();
        for part in [name, &self.subject, at] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        format!("adjustment-{}", &hasher.finalize().to_hex()[..32])
    }
}

async fn enter(
    args: &AdjustArgs,
    subject: &str,
    body: &Value,
    key: Option<&str>,
) -> anyhow::Result<(StatusCode, Value)> {
    let (policy, subject) = (segment(&args.policy), segment(subject));
    let path = format!("/v1/policies/{policy}/subjects/{subject}/adjustments");
    let mut request = request(&args.server, Method::POST, &path)?.json(body);
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    send(request).await
}
