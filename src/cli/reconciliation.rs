//! The command that reconciles.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use reqwest::Method;
use tokio::time::{Instant, sleep};

use super::ServerArgs;
use super::client::{call, read, request};
use api::instant::written;
use api::reconciliations::{DifferenceBody, ReconciliationAnswer, ReconciliationBody};

/// The exit code of a reconciliation that found differences and did not heal all of them.
const WRONG: u8 = 4;

/// The longest wait for a reconciliation. A large ledger takes long.
const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The time between two questions whether the reconciliation has ended.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct ReconcileArgs {
    /// Heal the counters that differ: set them to the ledger's values
    #[arg(long)]
    apply: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub async fn reconcile(args: ReconcileArgs) -> anyhow::Result<ExitCode> {
    let begin = request(&args.server, Method::POST, "/v1/reconciliations")?
        .json(&ReconciliationBody { apply: args.apply });
    let mut answer = call(begin).await?;
    let mut found: ReconciliationAnswer = read(&answer)?;
    let deadline = Instant::now() + TIMEOUT;
    while found.report.finished_at.is_none() {
        let path = format!("/v1/reconciliations/{}", found.report.id);
        if Instant::now() > deadline {
            anyhow::bail!(
                "the reconciliation did not end within a day: read its report with GET {path}"
            );
        }
        sleep(ASK_EVERY).await;
        answer = call(request(&args.server, Method::GET, &path)?).await?;
        found = read(&answer)?;
    }
    if args.server.json {
        println!("{answer:#}");
    } else {
        print_report(&found);
    }
    Ok(
        if found.report.difference_count == found.report.healed_count {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(WRONG)
        },
    )
}

fn print_report(found: &ReconciliationAnswer) {
    let ReconciliationAnswer {
        report,
        differences,
    } = found;
    differences.iter().for_each(print_difference);
    let total = report.difference_count;
    let more = total.saturating_sub(differences.len() as u64);
    if more > 0 {
        println!("… and {more} more");
    }
    let note = match report.counters.as_deref() {
        Some("absent") => " (there are none)",
        Some("unavailable") => " (not all: Redis is unavailable)",
        _ => "",
    };
    println!("counters compared: {}{note}", report.counter_count);
    println!(
        "accounts checked: {}, entries: {}",
        report.account_count, report.entry_count,
    );
    println!(
        "differences: {total}, healed: {}, alarms: {}",
        report.healed_count, report.alarm_count,
    );
}

fn print_difference(difference: &DifferenceBody) {
    let state = match difference {
        DifferenceBody { alarm: true, .. } => "ALARM",
        DifferenceBody { healed: true, .. } => "healed",
        DifferenceBody { .. } => "found",
    };
    let policy = difference.policy.as_deref().unwrap_or_default();
    let account = difference.account.map(|account| account.to_string());
    let (whose, what) = match (&difference.figure, &difference.subject) {
        (Some(figure), _) => {
            let date = difference.date.map(|date| date.to_string());
            (
                format!("{policy} {}", date.unwrap_or_default()),
                figure.as_str(),
            )
        }
        (None, Some(subject)) => (format!("{policy} {subject}"), "number"),
        (None, None) => (format!("account {}", account.unwrap_or_default()), "number"),
    };
    println!(
        "{state:<7} {:<18} {whose}: {what} {}, expected {}",
        difference.kind,
        number(difference.found_number),
        number(difference.expected_number),
    );
    for window in &difference.windows {
        println!(
            "        {:<7} from {}: {} used, expected {}",
            window.per,
            written(window.window_start),
            number(window.found),
            number(window.expected),
        );
    }
}

/// A number, or `none`.
fn number(value: Option<u64>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}
