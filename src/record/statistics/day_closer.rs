//! Records the figures of days as acts: an act has a position, and seals cover it. Deletes old figures of quarter
//! hours, which no act tells.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use claims::instance::Watch;
use domain::identity::to_micros;
use domain::policy::PolicyName;
use domain::quarters::QUARTERS_KEPT;
use domain::statistics::OpenDay;
use host::clock::Clock;
use host::retried::Retried;
use ledger::{Act, ActKind, Ledger, LedgerError, PolicyDay};

/// The pause between two looks for days that can be closed.
const EVERY: Duration = Duration::from_secs(5);
/// How long after its end, and after its last change, a day is closed.
const AFTER: TimeDelta = TimeDelta::hours(1);
/// How many days are closed at once.
const DAYS_MOST: u32 = 100;
/// How many rows of quarter hours one transaction deletes from each table.
const QUARTERS_MOST: u32 = 1000;

/// Closes days: an act has the figures of each. A day whose figures change later is closed again.
/// Each instance runs a closer. The row of a day is taken only once.
#[derive(Clone)]
pub struct DayCloser {
    pub ledger: Ledger,
    pub clock: Clock,
    /// Whether the clock is right: a wrong one would close days that go on, and delete new figures.
    pub watch: Arc<Watch>,
}

impl DayCloser {
    /// Closes days until the task is aborted. If the ledger does not answer, it tries again.
    pub async fn run(self) {
        let mut retried = Retried::default();
        loop {
            sleep(EVERY).await;
            if self.watch.clock_is_off() {
                continue;
            }
            let closed = self.close().await;
            if let Some(error) = retried.first_failure(&closed) {
                tracing::warn!(%error, "days cannot be closed: trying again");
            }
        }
    }

    async fn close(&self) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let figures = self.ledger.figures();
        figures
            .forget_quarters(now - QUARTERS_KEPT, QUARTERS_MOST)
            .await?;
        let before = now - AFTER;
        let days = self
            .ledger
            .figures()
            .days_to_close(before, DAYS_MOST)
            .await?;
        if days.is_empty() {
            return Ok(());
        }
        let figures_until = self.figures_until(now).await?;
        for (policy, day) in days {
            if day.ends_at > figures_until {
                continue;
            }
            let tell = |figures: Option<&PolicyDay>| Act {
                revision: 0,
                kind: ActKind::Day,
                about: about(&policy, day, figures),
                at: to_micros(now),
                by: "perdiem".to_owned(),
                reason: None,
            };
            self.ledger.figures().close_day(day, before, tell).await?;
        }
        Ok(())
    }

    /// The figures have everything that was recorded before this instant.
    async fn figures_until(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, LedgerError> {
        let mark = self.ledger.figures().figures_to_follow().await?;
        let next = self
            .ledger
            .record()
            .marks_to_follow(mark.position + 1..mark.position + 2)
            .await?;
        Ok(next.first().map_or(now, |mark| mark.recorded_at))
    }
}

/// The JSON of a day's act. Figures that are 0 are left out.
fn about(policy: &PolicyName, day: OpenDay, figures: Option<&PolicyDay>) -> String {
    let named = figures.iter().flat_map(|day| day.figures.named());
    let named: Map<String, Value> = named
        .map(|(name, figure)| (name.to_owned(), figure.into()))
        .collect();
    json!({
        "policy": policy.as_str(),
        "date": day.counted_on,
        "ends_at": day.ends_at.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        "figures": named,
    })
    .to_string()
}
