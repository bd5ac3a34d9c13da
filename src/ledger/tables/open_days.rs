//! Open days: days whose figures have changed since they were recorded.

use chrono::{DateTime, Utc};

use crate::domain::statistics::OpenDay;
use crate::ledger::LedgerError;
use crate::ledger::query::{Session, query};

/// Ordered by policy and day: instances that open the same days take the rows in the same order.
const OPEN: &str = "INSERT INTO open_days (policy, counted_on, ends_at, changed_at)
    VALUES ($1, $2, $3, $4) ON CONFLICT (policy, counted_on)
    DO UPDATE SET ends_at = excluded.ends_at, changed_at = excluded.changed_at";

/// Marks days as changed.
pub(super) async fn open(
    session: &mut Session<'_>,
    days: impl Iterator<Item = OpenDay>,
    now: DateTime<Utc>,
) -> Result<(), LedgerError> {
    for day in days {
        let open = query(OPEN)
            .bind(day.policy)
            .bind(day.counted_on)
            .bind(day.ends_at)
            .bind(now);
        session.execute(open).await?;
    }
    Ok(())
}
