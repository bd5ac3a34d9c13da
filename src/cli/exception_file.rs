//! The files of `override put --file`, `tier put --file` and `block put --file`: CSV with the columns subject, limit or
//! tier, until and reason.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ServerArgs;
use super::bulk::{BulkArgs, BulkRun, LineResult};
use super::client::{all_items, call, read, request, segment};
use super::condition::ConditionArgs;
use super::csv_lines::{self, CsvCells, CsvColumn, CsvLine};
use super::difference::{differences, print_changes};
use super::local::{LocalTime, present};
use super::places::EXCEPTION_LINE;
use super::times::GivenTime;
use api::overrides::OverrideLimitBody;
use domain::claim::Subject;

/// An exception of a subject: a line of a file, or what flags say for all lines.
#[derive(Debug, Clone, Default)]
pub struct ExceptionLine {
    pub subject: String,
    /// Of an override.
    pub limits: Vec<OverrideLimitBody>,
    /// Of a subject's tier.
    pub tier: Option<String>,
    pub until: Option<GivenTime>,
    pub reason: Option<String>,
}

/// What an exception of the server is known by.
#[derive(Serialize, Deserialize)]
struct ExceptionVersion {
    /// Null after the subject was erased.
    subject: Option<String>,
    version: u32,
}

/// Reads the limits of a cell, such as `10 per day, 100 per month`.
fn parse_limits(text: &str) -> Result<Vec<OverrideLimitBody>, &'static str> {
    text.split(',').map(str::parse).collect()
}

fn read_line(cells: &mut CsvCells<'_>, of_all: &ExceptionLine) -> Option<ExceptionLine> {
    let subject = cells.parsed("subject", |text| {
        Subject::new(text).map(|_| text.to_owned())
    });
    let limits = cells.parsed("limit", parse_limits);
    let tier = cells.parsed("tier", |text| Ok::<_, &str>(text.to_owned()));
    let until = cells.time("until");
    let reason = cells.reason(of_all.reason.as_ref());
    let subject = subject?;
    cells.once(subject.clone(), "subject", "leave one of them out");
    Some(ExceptionLine {
        subject,
        limits: limits.unwrap_or_else(|| of_all.limits.clone()),
        tier: tier.or_else(|| of_all.tier.clone()),
        until: until.or(of_all.until),
        reason,
    })
}

/// How the lines of such a file are put. `words` are those of [`BulkRun`].
pub fn run_of<'a>(
    server: &'a ServerArgs,
    bulk: &BulkArgs,
    condition: &ConditionArgs,
    words: [&'static str; 2],
) -> BulkRun<'a> {
    BulkRun {
        server,
        keeps_going: bulk.keep_going,
        is_dry_run: condition.dry_run,
        is_tried: true,
        places: EXCEPTION_LINE,
        words,
    }
}

/// Puts an exception for each line of a file. `list` is the path of those that are there, and `columns` are
/// those beside subject and until.
///
/// # Errors
/// As [`csv_lines::read`] and [`BulkRun::send`].
pub async fn put_lines<B: Serialize>(
    run: &BulkRun<'_>,
    policy: &str,
    list: &str,
    file: &Path,
    columns: &[CsvColumn],
    of_all: &ExceptionLine,
    body: impl Fn(&ExceptionLine, Option<String>) -> B,
) -> anyhow::Result<ExitCode> {
    // 1. Read the file. A second run must mean the same times.
    if of_all.until.is_some_and(GivenTime::is_of_now) {
        bail!(
            "--until: with --file write a time such as 2026-11-03, which a second run reads alike"
        );
    }
    let subject = CsvColumn::needed("subject");
    let until = CsvColumn::or_flag("until", "--until", true);
    let columns = [&[subject, until], columns].concat();
    let lines = csv_lines::read(file, &columns, |cells| read_line(cells, of_all))?;
    // 2. Know which instants the times are, and what is there already.
    let local = LocalTime::of_policy(run.server, policy).await?;
    let now = local.at(present());
    let requests = lines.into_iter().map(|CsvLine { number, content }| {
        let until = now.instant_text(content.until);
        let until =
            until.with_context(|| format!("nothing was sent: line {number}, column until"))?;
        let body = body(&content, until);
        let content = (content.subject, body);
        Ok(CsvLine { number, content })
    });
    let requests = requests.collect::<anyhow::Result<Vec<_>>>()?;
    let standing = standing(run.server, list).await?;
    // 3. Put them. One that is already so keeps its version.
    let condition = ConditionArgs {
        if_version: None,
        dry_run: run.is_dry_run,
    };
    run.send(&requests, async |(subject, body)| {
        let path = format!("{list}/{}", segment(subject));
        let request = request(run.server, Method::PUT, &path)?.json(body);
        let after = call(condition.on(request)).await?;
        let before = standing.get(subject);
        if run.tells_lines() {
            print_planned(&format!("{policy} {subject}"), before, &after, &local)?;
        }
        let version_before = before.map(version).transpose()?;
        Ok(if version_before == Some(version(&after)?) {
            LineResult::DoneBefore
        } else {
            LineResult::Done
        })
    })
    .await
}

/// The exceptions that are there, by their subjects. One list of them all costs less than a look at each, and
/// is no read of a named subject.
async fn standing(server: &ServerArgs, list: &str) -> anyhow::Result<HashMap<String, Value>> {
    let mut found = HashMap::new();
    for item in all_items(server, &format!("{list}?limit=1000")).await? {
        let known: ExceptionVersion = read(&item)?;
        found.extend(known.subject.map(|subject| (subject, item)));
    }
    Ok(found)
}

fn version(found: &Value) -> anyhow::Result<u32> {
    Ok(read::<ExceptionVersion>(found)?.version)
}

/// Prints what a line would change, as `policy apply` does.
fn print_planned(
    name: &str,
    before: Option<&Value>,
    after: &Value,
    local: &LocalTime,
) -> anyhow::Result<()> {
    if before.is_none() {
        for (field, _, after) in differences(None, Some(after), local) {
            println!("+ {name}: {field}: {after}");
        }
    }
    print_changes(name, before, after, local)
}
