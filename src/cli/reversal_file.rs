//! The file of `reverse --file`: CSV with the columns grant, units and reason.

use std::path::Path;
use std::process::ExitCode;

use reqwest::Method;
use uuid::Uuid;

use super::ServerArgs;
use super::bulk::{BulkRun, LineResult};
use super::client::{call, once, read, request, send};
use super::csv_lines::{self, CsvCells, CsvColumn, CsvLine, key_of};
use super::taking_back::{had_ended, units_left};
use api::grants::{GrantBody, ReversalRequest};
use api::strict::WholeNumber;
use domain::claim::Units;
use reqwest::StatusCode;

/// A grant to reverse.
struct ReversalLine {
    grant: Uuid,
    /// All that are left, if none are named.
    units: Option<Units>,
    reason: String,
}

/// Reverses the grants of a file. `name` is that of the file: units are given back in part once under a name.
///
/// # Errors
/// As [`csv_lines::read`] and [`BulkRun::send`].
pub async fn reverse_lines(
    run: &BulkRun<'_>,
    file: &Path,
    name: Option<&String>,
    reason: Option<&String>,
) -> anyhow::Result<ExitCode> {
    let columns = [
        CsvColumn::needed("grant"),
        CsvColumn::optional("units"),
        CsvColumn::or_flag("reason", "--reason", reason.is_some()),
    ];
    let read_line = |cells: &mut CsvCells<'_>| read_line(cells, name.is_some(), reason);
    let lines: Vec<CsvLine<ReversalLine>> = csv_lines::read(file, &columns, read_line)?;
    let name = name.map(String::as_str).unwrap_or_default();
    run.send(&lines, async |line| {
        if run.is_dry_run {
            rehearse(run, line).await
        } else {
            reverse(run.server, line, name).await
        }
    })
    .await
}

fn read_line(
    cells: &mut CsvCells<'_>,
    has_name: bool,
    reason: Option<&String>,
) -> Option<ReversalLine> {
    let grant = cells.parsed("grant", |text| {
        Uuid::try_parse(text).map_err(|_| {
            format!("{text:?} is no id of a grant: write it as `perdiem claim` prints it")
        })
    });
    let units = cells.parsed("units", |text| {
        let units = text.parse().ok();
        let units = units.and_then(|units: u64| Units::new(units.into()).ok());
        units.ok_or_else(|| {
            format!("{text:?} is no number of units: write one such as 2, or leave the cell empty for all")
        })
    });
    if units.is_some() && !has_name {
        let why = "a part is given back once under a name of this file: write one with --name";
        cells.fault("units", why);
    }
    let reason = cells.reason(reason);
    let grant = grant?;
    let remedy = "add the two up in one line";
    cells.once(grant.to_string(), "grant", remedy);
    Some(ReversalLine {
        grant,
        units,
        reason: reason?,
    })
}

/// Shows what a reversal would give back.
async fn rehearse(run: &BulkRun<'_>, line: &ReversalLine) -> anyhow::Result<LineResult> {
    let path = format!("/v1/grants/{}", line.grant);
    let grant: GrantBody = read(&call(request(run.server, Method::GET, &path)?).await?)?;
    if !grant.is_left() {
        return Ok(LineResult::DoneBefore);
    }
    let left = units_left(&grant);
    let units = line.units.map_or(left, Units::get);
    if units > left {
        let why = format!("column units: only {left} are left: give back at most {left}");
        return Ok(LineResult::WouldFail(why));
    }
    if run.tells_lines() {
        let subject = grant.subject.as_deref().unwrap_or("(erased)");
        let policy = grant.policy;
        println!("- {}: {units} units of {policy} {subject}", line.grant);
    }
    Ok(LineResult::Done)
}

async fn reverse(
    server: &ServerArgs,
    line: &ReversalLine,
    name: &str,
) -> anyhow::Result<LineResult> {
    let path = format!("/v1/grants/{}/reversal", line.grant);
    let body = ReversalRequest {
        reason: line.reason.clone(),
        units: line.units.map(|units| WholeNumber(units.get().into())),
    };
    let key = key_of("reversal", [name, &line.grant.to_string(), ""]);
    let key = line.units.map(|_| key);
    let request = request(server, Method::POST, &path)?.json(&body);
    match send(once(request, key.as_ref())).await {
        Ok((StatusCode::OK, _)) => Ok(LineResult::DoneBefore),
        Ok(_) => Ok(LineResult::Done),
        Err(error) if line.units.is_none() && had_ended(&error) => Ok(LineResult::DoneBefore),
        Err(error) => Err(error),
    }
}
