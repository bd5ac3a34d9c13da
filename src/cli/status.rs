//! `perdiem status`: what an instance says of itself and of its ledger.

use std::process::ExitCode;

use chrono::TimeDelta;
use reqwest::Method;
use serde::Serialize;

use super::age::describe_age;
use super::client::{call, look, read, request, request_without_key, stream};
use super::local::{LocalTime, present};
use super::refusal::Refused;
use super::{FAILED, ServerArgs, TRY_AGAIN};
use crate::setting::WrongSetting;
use api::health::Readiness;
use api::reconciliations::{ReconciliationList, ReconciliationReport};
use api::seals::LatestSeal;

/// A part of the state.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum StatePart<T> {
    Known(T),
    /// Why it is not known: the key may not read it, nothing is sealed, or there is no key.
    Unknown {
        unknown: String,
    },
}

/// The state of an instance, as JSON.
#[derive(Debug, Serialize)]
struct InstanceState {
    health: Readiness,
    /// The newest reconciliation that has ended.
    reconciliation: StatePart<Option<ReconciliationReport>>,
    seal: StatePart<LatestSeal>,
    metrics: StatePart<StateMetrics>,
}

#[derive(Debug, Serialize)]
struct StateMetrics {
    /// The grants in Redis that the ledger does not have yet.
    provisional_queue: Option<f64>,
    /// The age of the oldest position that is not sealed.
    seal_lag_seconds: Option<f64>,
}

/// Shows the state of an instance. The exit code is 0 if all is well, 75 if the instance is not ready, and 1 if
/// somebody has to look.
pub async fn status(server: ServerArgs) -> anyhow::Result<ExitCode> {
    let readyz = request_without_key(&server, Method::GET, "/readyz")?;
    let state = InstanceState {
        health: read(&look(readyz).await?)?,
        reconciliation: part(reconciliation(&server).await)?,
        seal: part(seal(&server).await)?,
        metrics: part(metrics(&server).await)?,
    };
    if server.json {
        println!("{:#}", serde_json::to_value(&state)?);
    } else {
        print_state(&state);
    }
    let differs = match &state.reconciliation {
        StatePart::Known(Some(report)) => report.difference_count > report.healed_count,
        StatePart::Known(None) | StatePart::Unknown { .. } => false,
    };
    Ok(match &*state.health.status {
        "ready" if differs || !state.health.troubles.is_empty() => ExitCode::from(FAILED),
        "ready" => ExitCode::SUCCESS,
        _ => ExitCode::from(TRY_AGAIN),
    })
}

async fn reconciliation(server: &ServerArgs) -> anyhow::Result<Option<ReconciliationReport>> {
    let list = request(server, Method::GET, "/v1/reconciliations")?;
    let list: ReconciliationList = read(&call(list).await?)?;
    let mut reports = list.items.into_iter();
    Ok(reports.find(|report| report.finished_at.is_some()))
}

async fn seal(server: &ServerArgs) -> anyhow::Result<LatestSeal> {
    read(&call(request(server, Method::GET, "/v1/seals/latest")?).await?)
}

async fn metrics(server: &ServerArgs) -> anyhow::Result<StateMetrics> {
    let metrics = stream(request(server, Method::GET, "/metrics")?).await?;
    let text = metrics.text().await?;
    Ok(StateMetrics {
        provisional_queue: metric(&text, "perdiem_provisional_queue"),
        seal_lag_seconds: metric(&text, "perdiem_seal_lag_seconds"),
    })
}

/// A metric without labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.parse().ok()
}

/// A part of the state, as the server answered or refused it.
///
/// # Errors
/// The server does not answer, or its answer is of another version.
fn part<T>(found: anyhow::Result<T>) -> anyhow::Result<StatePart<T>> {
    match found {
        Ok(found) => Ok(StatePart::Known(found)),
        Err(error) if error.is::<Refused>() || error.is::<WrongSetting>() => {
            let unknown = error.to_string();
            Ok(StatePart::Unknown { unknown })
        }
        Err(error) => Err(error),
    }
}

fn print_state(state: &InstanceState) {
    let Readiness {
        status,
        version,
        ledger,
        counters,
        read_only,
        lag_seconds,
        zone_rules,
        ..
    } = &state.health;
    let redis = if *counters { "with" } else { "without" };
    let lag = lag_seconds.map(|lag| format!(" (at most {lag:.1} s behind)"));
    let reads = if *read_only { ", only reads" } else { "" };
    let lag = lag.unwrap_or_default();
    print_line(
        status,
        &format!("perdiem {version} on {ledger}, {redis} Redis{reads}{lag}"),
    );
    for trouble in &state.health.troubles {
        print_line("trouble", trouble);
    }
    print_line(
        "reconciliation",
        &describe_reconciliation(&state.reconciliation),
    );
    print_line("seals", &describe_seals(state));
    let queue = match &state.metrics {
        StatePart::Known(metrics) => match metrics.provisional_queue {
            Some(count) => format!("{count} wait for the ledger"),
            None => "not known".to_owned(),
        },
        StatePart::Unknown { unknown } => unknown.clone(),
    };
    print_line("provisional grants", &queue);
    print_line("time zone rules", zone_rules);
}

fn print_line(name: &str, text: &str) {
    println!("{name:<20} {text}");
}

fn describe_reconciliation(found: &StatePart<Option<ReconciliationReport>>) -> String {
    let report = match found {
        StatePart::Unknown { unknown } => return unknown.clone(),
        StatePart::Known(None) => return "none has ended yet".to_owned(),
        StatePart::Known(Some(report)) => report,
    };
    let ended = report.finished_at.map(|at| LocalTime::utc().show(at));
    let ReconciliationReport {
        difference_count,
        healed_count,
        alarm_count,
        ..
    } = report;
    let differences = match difference_count {
        0 => "no differences".to_owned(),
        count => format!("differences: {count}, healed: {healed_count}, alarms: {alarm_count}"),
    };
    format!("{differences} at {}", ended.unwrap_or_default())
}

fn describe_seals(state: &InstanceState) -> String {
    let seal = match &state.seal {
        StatePart::Known(latest) => &latest.seal,
        StatePart::Unknown { unknown } => return unknown.clone(),
    };
    let lag = match &state.metrics {
        StatePart::Known(metrics) => metrics.seal_lag_seconds,
        StatePart::Unknown { .. } => None,
    };
    let rest = match lag {
        Some(0.0) => ", all is sealed".to_owned(),
        Some(lag) if lag.is_finite() => {
            let age = describe_age(TimeDelta::milliseconds((lag * 1000.0) as i64));
            format!(", the oldest position without a seal is {age} old")
        }
        Some(_) | None => String::new(),
    };
    let age = describe_age(present() - seal.sealed_at);
    format!(
        "the newest is {age} old and has {} positions{rest}",
        seal.size
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let text = "# TYPE a gauge\na_b 2.5\na 1\nc{d=\"e\"} 3\n# EOF\n";
        assert_eq!(metric(text, "a"), Some(1.0));
        assert_eq!(metric(text, "a_b"), Some(2.5));
        assert_eq!(metric(text, "c"), None);
    }
}
