//! The command that reconciles.

use std::process::ExitCode;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::ReconcileArgs;
use super::client::{call, request, text};

/// The exit code of a reconciliation that found differences and did not heal all of them.
const WRONG: u8 = 4;

/// The longest wait for a reconciliation. A large ledger takes long.
const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The time between two questions whether the reconciliation has ended.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub async fn reconcile(args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let begin = request(&args.server, Method::POST, "/v1/reconciliations")?
        .json(&json!({ "apply": args.apply }));
    let mut report = call(begin).await?;
    let deadline = Instant::now() + TIMEOUT;
    while report["finished_at"].is_null() {
        let path = format!("/v1/reconciliations/{}", text(&report["id"]));
        if Instant::now() > deadline {
            anyhow::bail!(
                "the reconciliation did not end within a day: read its report with GET {path}"
            );
        }
        sleep(ASK_EVERY).await;
        report = call(request(&args.server, Method::GET, &path)?).await?;
    }
    if args.server.json {
        println!("{report:#}");
    } else {
        print_report(&report);
    }
    Ok(if report["difference_count"] == report["healed_count"] {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    })
}

fn print_report(report: &Value) {
    let differences = report["differences"].as_array();
    let differences = differences.map_or(&[][..], Vec::as_slice);
    differences.iter().for_each(print_difference);
    let total = report["difference_count"].as_u64().unwrap_or_default();
    let more = total.saturating_sub(differences.len() as u64);
    if more > 0 {
        println!("… and {more} more");
    }
    let note = match text(&report["counters"]) {
        "absent" => " (there are none)",
        "unavailable" => " (not all: Redis is unavailable)",
        _ => "",
    };
    println!("counters compared: {}{note}", report["counter_count"]);
    println!(
        "accounts checked: {}, entries: {}",
        report["account_count"], report["entry_count"],
    );
    println!(
        "differences: {total}, healed: {}, alarms: {}",
        report["healed_count"], report["alarm_count"],
    );
}

fn print_difference(difference: &Value) {
    let state = match (&difference["alarm"], &difference["healed"]) {
        (Value::Bool(true), _) => "ALARM",
        (_, Value::Bool(true)) => "healed",
        _ => "found",
    };
    let policy = text(&difference["policy"]);
    let (whose, what) = match (
        difference["figure"].as_str(),
        difference["subject"].as_str(),
    ) {
        (Some(figure), _) => (format!("{policy} {}", text(&difference["date"])), figure),
        (None, Some(subject)) => (format!("{policy} {subject}"), "number"),
        (None, None) => (
            format!("account {}", text(&difference["account"])),
            "number",
        ),
    };
    println!(
        "{state:<7} {:<18} {whose}: {what} {}, expected {}",
        text(&difference["kind"]),
        number(&difference["found_number"]),
        number(&difference["expected_number"]),
    );
    for window in difference["windows"].as_array().into_iter().flatten() {
        println!(
            "        {:<7} from {}: {} used, expected {}",
            text(&window["per"]),
            text(&window["window_start"]),
            number(&window["found"]),
            number(&window["expected"]),
        );
    }
}

/// A number, or `none`.
fn number(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        value => value.to_string(),
    }
}
